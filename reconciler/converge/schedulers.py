"""`TwoSchedulers`, which implements ports.Cluster for nodes that Kubernetes and Slurm both place work on.

A cordon says nothing to another scheduler (pitfall H11): each write goes to both, and each read joins both. A node is
in service if both would use it, drained if both say so, marked if both carry our mark, and what runs there is the pods
and the jobs. A member of which one half was not read is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reconciler.model.adjustment_port import Adjustments
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, ClusterState, Member, Pod, Silent, Taint
from reconciler.model.ports import Cluster
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, read_mark
from reconciler.model.slurm import JOB
from reconciler.model.vocab import SignalTo


class TwoSchedulers:
    """`kubernetes` knows every node that is a member; Slurm may know any of them."""

    def __init__(self, kubernetes: Cluster, slurm: Cluster) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm

    # --- reads ---------------------------------------------------------------------------------------------------

    async def state(self) -> Answered[ClusterState] | Silent:
        ours, theirs = await self._kubernetes.state(), await self._slurm.state()
        for name, half in (("Kubernetes", ours), ("Slurm", theirs)):
            if isinstance(half, Silent):
                return replace(half, detail=f"{name}: {half.detail}")
        assert isinstance(ours, Answered)
        assert isinstance(theirs, Answered)
        kube, slurm = ours.value, theirs.value
        names = {**kube.members, **slurm.members}
        found = {name: joined(kube.members.get(name), slurm.members.get(name)) for name in names}
        members = {name: member for name, member in found.items() if member is not None}
        version = f"{kube.server_version}, {slurm.server_version}"
        return Answered(min(ours.at, theirs.at), ClusterState(kube.client_version, version, members))

    async def member(self, node: str, *, cached: bool = False) -> Member | None:
        kube = await self._kubernetes.member(node, cached=cached)
        return joined(kube, await self._slurm.member(node, cached=cached))

    async def _decided_on(self, member: Member) -> tuple[Member | None, Member | None]:
        """Return both halves as they are now. CONFLICT when one is no longer what was decided on."""
        kube, slurm = await self._kubernetes.member(member.name), await self._slurm.member(member.name)
        now = joined(kube, slurm)
        if now is None or now.resource_version != member.resource_version:
            raise DriverError(Failure.CONFLICT, f"{member.name} has changed since it was read")
        return kube, slurm

    # --- writes on nodes -----------------------------------------------------------------------------------------

    async def mark(self, member: Member, mark: Mark) -> None:
        """Mark both halves. What one of them refuses leaves the other marked: then the node is not marked as a whole.

        A cordon that somebody else set in Kubernetes stays theirs, whatever Slurm shows.
        """
        kube, slurm = await self._decided_on(member)
        if slurm is not None and slurm.unschedulable and OWNER_ANNOTATION not in slurm.annotations:
            raise DriverError(Failure.REJECTED, slurm.reasons.get("Ready") or "somebody keeps it out of Slurm")
        if kube is not None:
            before = read_mark(kube.annotations.get(OWNER_ANNOTATION))
            ours = before is not None and before.cordoned
            await self._kubernetes.mark(kube, replace(mark, cordoned=not kube.unschedulable or ours))
        if slurm is not None:
            await self._slurm.mark(slurm, replace(mark, cordoned=True))

    async def unmark(self, member: Member, *, uncordon: bool) -> None:
        kube, slurm = await self._decided_on(member)
        if slurm is not None:
            await self._slurm.unmark(slurm, uncordon=True)
        if kube is not None:
            await self._kubernetes.unmark(kube, uncordon=uncordon)

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        kube, _ = await self._decided_on(member)
        if kube is not None:
            await self._kubernetes.set_labels(kube, labels, taints)

    async def remove(self, member: Member) -> None:
        kube, slurm = await self._decided_on(member)
        if kube is not None:
            await self._kubernetes.remove(kube)
        if slurm is not None:
            await self._slurm.remove(slurm)

    # --- writes on pods and jobs ---------------------------------------------------------------------------------

    def _of(self, pod: Pod) -> Cluster:
        return self._slurm if pod.owner_kind == JOB else self._kubernetes

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._of(pod).evict(pod, grace_s=grace_s)

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._of(pod).delete(pod, grace_s=grace_s)

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        await self._of(pod).annotate(pod, annotations)

    async def post(self, pod: Pod, port: int, path: str, body: str) -> None:
        await self._of(pod).post(pod, port, path, body)

    async def answers(self, pod: Pod, port: int, path: str) -> bool:
        return await self._of(pod).answers(pod, port, path)

    def adjustments(self) -> Adjustments | None:
        return self._kubernetes.adjustments()

    async def signal(self, pod: Pod, name: str, to: SignalTo) -> None:
        await self._of(pod).signal(pod, name, to)


def joined(kube: Member | None, slurm: Member | None) -> Member | None:
    """Return both halves as one member; None if neither has the node.

    A mark on either half shows, so that it is lifted. The taint shows where Kubernetes has it, and the cordon of a
    tainted node only if both are out of the way: so a node counts as marked only if both halves are. A node that
    Kubernetes lacks is not registered, and the jobs on it are work all the same.
    """
    if kube is None and slurm is not None:
        why = {**slurm.reasons, "Ready": "Kubernetes has no such node"}
        return replace(slurm, ready=False, registered=False, reasons=why)
    if kube is None or slurm is None:
        return kube
    annotations = dict(kube.annotations)
    if OWNER_ANNOTATION not in annotations and OWNER_ANNOTATION in slurm.annotations:
        annotations[OWNER_ANNOTATION] = slurm.annotations[OWNER_ANNOTATION]
    tainted = any(taint.key == MARK_TAINT for taint in kube.taints)
    out = (kube.unschedulable, slurm.unschedulable)
    return replace(
        kube,
        resource_version=f"{kube.resource_version} {slurm.resource_version}",
        ready=_both(kube.ready, slurm.ready),
        conditions={**kube.conditions, **({} if slurm.ready else slurm.conditions)},
        unschedulable=all(out) if tainted else any(out),
        annotations=annotations,
        taints=(*kube.taints, *(taint for taint in slurm.taints if taint.key != MARK_TAINT)),
        pods=(*kube.pods, *slurm.pods),
        reasons={**slurm.reasons, **kube.reasons},
    )


def _both(kube: bool | None, slurm: bool | None) -> bool | None:
    if kube and slurm:
        return True
    return False if kube is False or slurm is False else None
