"""ports.Cluster on the lab's cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from reconciler.lab.hardware import maintenance
from reconciler.lab.hardware.cluster_objects import TwoBudgets
from reconciler.lab.hardware.control_plane import (
    KUBELET_VERSION,
    ClusterTruth,
    Conflict,
    Gone,
    NodeObject,
    NotFound,
    PodObject,
    TooManyRequests,
)
from reconciler.lab.inprocess.adjustments import TruthAdjustments
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, ClusterState, MaintenanceRequest, Member, Pod, Silent, Taint
from reconciler.model.operands import OPERANDS
from reconciler.model.own_writes import OwnWrites
from reconciler.model.ports import Clock
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, write_mark
from reconciler.model.slurm import JOB
from reconciler.model.vocab import SignalTo, UnknownReason
from reconciler.model.workloads import FINITE, checkpoint_of, surge_of, workload_of

LATENCY_S = 0.1
CLIENT_VERSION = "v1.31.4"
_OURS = Taint(MARK_TAINT, "", "NoSchedule")


class TruthCluster:
    """`latency_s`: of a request; 0 = no wait. `own`: notes what is written, for a TruthWatch."""

    def __init__(
        self, truth: ClusterTruth, clock: Clock, *, latency_s: float = LATENCY_S, own: OwnWrites | None = None
    ) -> None:
        self._own = own or OwnWrites()
        self._latency_s = latency_s
        self._truth = truth
        self._clock = clock
        self._read: dict[str, tuple[Hashable, Member]] = {}  # node -> (state that it was read at, member)
        self._members: dict[str, Member] = {}  # at the revision of the last read
        self._revision = -1

    async def state(self) -> Answered[ClusterState] | Silent:
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        if self._truth.down:
            return Silent(self._clock.now(), UnknownReason.UNREACHABLE, "the API server does not answer")
        self._refresh()
        requests = self._requests()
        members = {
            name: replace(member, requests=requests[name]) if name in requests else member
            for name, member in self._members.items()
        }
        return Answered(self._clock.now(), ClusterState(CLIENT_VERSION, KUBELET_VERSION, members))

    def _requests(self) -> Mapping[str, tuple[MaintenanceRequest, ...]]:
        """Return by node what other operators are asked to do to it."""
        found: dict[str, tuple[MaintenanceRequest, ...]] = {}
        for operator in maintenance.served(self._truth.machines):
            for item in maintenance.objects(self._truth.machines, operator.group):
                for node, request in operator.requests(item):
                    found[node] = (*found.get(node, ()), request)
        return found

    def _refresh(self) -> None:
        """Read the members that have changed since the last read."""
        nodes = self._truth.nodes()  # this lets them catch up with the clock
        try:
            names = self._truth.changed_since(self._revision)
        except Gone:
            self._members, names = {}, {node.name for node in nodes}
        self._revision = self._truth.revision
        for name in names:
            try:
                self._members[name] = self._member(self._truth.node(name))
            except NotFound:
                self._members.pop(name, None)

    async def member(self, node: str, *, cached: bool = False) -> Member | None:  # noqa: ARG002 - nothing here is behind
        await self._reach()
        try:
            found = self._member(self._truth.node(node))
        except NotFound:
            return None
        requests = self._requests().get(node, ())
        return replace(found, requests=requests) if requests else found

    async def mark(self, member: Member, mark: Mark) -> None:
        await self._patch(
            member,
            annotations={OWNER_ANNOTATION: write_mark(mark)},
            taints=[_OURS],
            unschedulable=True if mark.cordoned else None,
        )

    async def unmark(self, member: Member, *, uncordon: bool) -> None:
        await self._reach()
        annotations = {name: value for name, value in member.annotations.items() if name != OWNER_ANNOTATION}
        taints = [taint for taint in member.taints if (taint.key, taint.effect) != (_OURS.key, _OURS.effect)]
        self._guard(
            lambda: self._truth.update_node(
                member.name,
                resource_version=member.resource_version,
                annotations=annotations,
                taints=taints,
                unschedulable=False if uncordon else None,
            )
        )

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        await self._patch(member, labels=labels, taints=taints)

    async def remove(self, member: Member) -> None:
        await self._reach()
        try:
            if self._truth.node(member.name).uid == member.uid:
                self._truth.remove_node(member.name)
        except NotFound:
            return

    async def _patch(
        self,
        member: Member,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        taints: Sequence[Taint] = (),
        unschedulable: bool | None = None,
    ) -> None:
        """Add labels, annotations and taints to those of the member as read. Key and effect identify a taint."""
        await self._reach()
        replaced = {(taint.key, taint.effect) for taint in taints}
        kept = [taint for taint in member.taints if (taint.key, taint.effect) not in replaced]
        self._guard(
            lambda: self._truth.update_node(
                member.name,
                resource_version=member.resource_version,
                labels={**member.labels, **(labels or {})},
                annotations={**member.annotations, **(annotations or {})},
                taints=[*kept, *taints],
                unschedulable=unschedulable,
            )
        )

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._reach()
        self._remove(lambda: self._truth.evict(pod.namespace, pod.name, uid=pod.uid, grace_s=grace_s))

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._reach()
        self._remove(lambda: self._truth.delete_pod(pod.namespace, pod.name, uid=pod.uid, grace_s=grace_s))

    async def signal(self, pod: Pod, name: str, to: SignalTo) -> None:  # noqa: ARG002 - the port's signature
        """End a job of Slurm, which a rehearsal plays as a pod: it saves its state and ends."""
        if pod.owner_kind != JOB:
            raise DriverError(Failure.UNSUPPORTED, f"{pod.name} is no job of Slurm, and gets no signals")
        await self.delete(pod, grace_s=None)

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        await self._reach()
        self._remove(lambda: self._truth.annotate_pod(pod.namespace, pod.name, pod.uid, annotations))

    async def post(self, pod: Pod, port: int, path: str, body: str) -> None:  # noqa: ARG002 - a pod has one program
        await self._reach()
        try:
            status = self._truth.ask_pod(pod.namespace, pod.name, "POST")
        except NotFound:
            return
        if status >= 300:
            raise DriverError(Failure.BUSY, f"the pod answers {status}")

    async def answers(self, pod: Pod, port: int, path: str) -> bool:  # noqa: ARG002 - a pod has one program
        await self._reach()
        try:
            return self._truth.ask_pod(pod.namespace, pod.name, "GET") < 300
        except NotFound:
            return False

    def adjustments(self) -> TruthAdjustments:
        return TruthAdjustments(self._truth, self._reach)

    async def _reach(self) -> None:
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        if self._truth.down:
            raise DriverError(Failure.UNREACHABLE, "the API server does not answer")

    def _guard(self, write: Callable[[], NodeObject]) -> None:
        try:
            self._own.add(str(write().resource_version))
        except (Conflict, NotFound) as moved:
            raise DriverError(Failure.CONFLICT, str(moved)) from moved

    def _remove(self, write: Callable[[], object]) -> None:
        """Write to a pod, mostly remove it. A missing one is success (H7), also when another pod now has its name."""
        try:
            write()
        except (NotFound, Conflict):
            return
        except TooManyRequests as busy:
            raise DriverError(Failure.BUSY, str(busy), retry_after=5.0) from busy
        except TwoBudgets as error:  # the server gives no reason, so nobody can say that it passes
            raise DriverError(Failure.REJECTED, str(error)) from error

    def _member(self, node: NodeObject) -> Member:
        """Return the member; the same object as long as nothing changes."""
        unready = self._truth.unready(node.name)
        state = self._truth.generation(node.name), node.ready, node.unschedulable, node.control_plane, unready
        known = self._read.get(node.name)
        if known is None or known[0] != state:
            known = self._read[node.name] = state, self._snapshot(node)
        return known[1]

    def _snapshot(self, node: NodeObject) -> Member:
        pods = (pod for pod in self._truth.pods(node.name) if pod.phase not in ("Succeeded", "Failed"))
        machine = self._truth.machines.get(node.name)
        return Member(
            name=node.name,
            uid=node.uid,
            resource_version=str(node.resource_version),
            ready=node.ready == "True",
            conditions={"Ready": node.ready} | {kind: found.status for kind, found in node.conditions.items()},
            unschedulable=node.unschedulable,
            labels=dict(node.labels),
            annotations=dict(node.annotations),
            taints=node.taints,
            kubelet_version=node.kubelet_version,
            pods=tuple(map(self._pod, pods)),
            control_plane=node.control_plane,
            system_uuid="" if machine is None else machine.state.uuid,
            allocatable=dict(node.allocatable),
            reasons={kind: f"{one.reason}: {one.message}".rstrip(": ") for kind, one in node.conditions.items()},
        )

    def _pod(self, pod: PodObject) -> Pod:
        operand = pod.owner_name if pod.owner_kind == "DaemonSet" and pod.owner_name in OPERANDS else ""
        return Pod(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.phase,
            pod.owner_kind,
            pod.evictable,
            local_storage=pod.local_storage,
            terminating_since=self._instant(pod.deletion_started),
            ends_at=self._instant(pod.ends),
            finalizers=pod.finalizers,
            finite=pod.owner_kind in FINITE,
            checkpoint=checkpoint_of(pod.annotations),
            workload=workload_of(pod.namespace, (pod.owner_kind, pod.owner_name), pod.labels, pod.annotations),
            operand=operand,
            surge=surge_of(pod.annotations),
            ready=(pod.evictable or bool(operand)) and self._truth.is_ready(pod),
            on_gpus=pod.gpus > 0 and pod.phase not in ("Succeeded", "Failed"),
        )

    def _instant(self, at: float | None) -> datetime | None:
        """Return an instant of the cluster's clock as the date that it has on ours."""
        return None if at is None else self._clock.now() + timedelta(seconds=at - self._truth.now())
