"""The Kubernetes cluster of a lab: nodes, pods and disruption budgets, as the API server holds them.

The in-process Cluster port and the wire API both serve this state. Nothing runs in the background: every call first
plays what kubelets, the node controller, the scheduler and graceful deletions have done by now.

A node is Ready when its machine's kubelet says so, and NotReady (`Unknown`) when that kubelet is silent. An evicted pod
of a controller comes back elsewhere if there is room, otherwise it is Pending.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import takewhile
from typing import Any, Literal

from reconciler.lab.hardware.cluster_objects import (
    KUBELET_VERSION,
    Condition,
    Conflict,
    DisruptionBudget,
    Gone,
    NodeObject,
    NotFound,
    PodObject,
    TooManyRequests,
    TwoBudgets,
    WatchEvent,
    detect_conditions,
    node_of,
)
from reconciler.lab.hardware.k3s_disk import first_taints
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.outages import Outages
from reconciler.lab.hardware.replicas import Replicas
from reconciler.model.observed import Taint
from reconciler.model.records import MARK_TAINT

__all__ = [
    "KUBELET_VERSION", "MIRROR_ANNOTATION", "ClusterTruth", "Condition", "Conflict", "DisruptionBudget", "Gone",
    "NodeObject", "NotFound", "PodObject", "TooManyRequests", "WatchEvent",
]  # fmt: skip

WATCH_WINDOW = 4096  # events kept for watchers; an older revision is Gone, as on a real server
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_UNREACHABLE = Taint("node.kubernetes.io/unreachable", "", "NoExecute")
_NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoExecute")
AUTOMATIC = frozenset({_UNSCHEDULABLE.key, _UNREACHABLE.key, _NOT_READY.key})  # taints that come and go by themselves
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


class ClusterTruth(Replicas):
    """`members`: node name -> machine, for those that are in the cluster or may join it."""

    def __init__(self, members: Mapping[str, Machine], clock: Callable[[], float], rng: random.Random) -> None:
        super().__init__(members, clock)
        self.outages = Outages({})
        self.watcher: Callable[[NodeObject, bool], None] | None = None  # told of each change whether the node serves
        self.budgets: list[DisruptionBudget] = []
        self.operators: frozenset[str] = frozenset()  # API groups of operators that may maintain nodes
        self.revision = 1
        self.evictions = 0
        self._rng = rng
        self._pods: dict[tuple[str, str], PodObject] = {}
        self._terminating: dict[str, PodObject] = {}
        self._soonest = float("inf")  # when the first of them ends
        self._generations: dict[str, int] = {}
        self._history: deque[WatchEvent] = deque(maxlen=WATCH_WINDOW)
        for name, machine in members.items():
            machine.dirty = self._dirty
            machine.gpu_clients = lambda name=name: self.has_work(name)  # type: ignore[misc]  # mypy: default in lambda

    def now(self) -> float:
        """Return the time of `created`, `ready_since` and `deletion_started`."""
        return self._clock()

    def count_outages(self, groups: Mapping[str, Sequence[str]]) -> None:
        """Count outages from now on. `groups` as in Outages."""
        self.outages = Outages(groups)
        for node in self.nodes():
            self.outages.record(node.name, _serves(node), self._clock())

    # --- reads; each one catches up first ---

    def in_service(self) -> set[str]:
        """Return the nodes that are ready, not cordoned and not marked for maintenance."""
        return {node.name for node in self.nodes() if _serves(node)}

    def nodes(self) -> list[NodeObject]:
        self.sync()
        return list(self._nodes.values())

    def generation(self, node: str) -> int:
        """Return a number that grows whenever the node object or a pod on it changes."""
        return self._generations.get(node, 0)

    def node(self, name: str) -> NodeObject:
        self.sync(name)
        if name not in self._nodes:
            raise NotFound(f'nodes "{name}" not found')
        return self._nodes[name]

    def pods(self, node: str | None = None) -> list[PodObject]:
        """Return all pods, or those bound to one node."""
        self.sync(node)
        return list(self._pods.values()) if node is None else list(self._on_node.get(node, {}).values())

    def pod(self, namespace: str, name: str) -> PodObject:
        found = self._pods.get((namespace, name))
        self.sync(None if found is None else found.node)
        if (namespace, name) not in self._pods:
            raise NotFound(f'pods "{name}" not found')
        return self._pods[namespace, name]

    def disruption_budgets(self) -> list[DisruptionBudget]:
        return self.budgets + [
            DisruptionBudget("default", f"never-{name}", {"kubernetes.io/hostname": name}, 10**6)
            for name, machine in self.machines.items()
            if machine.fault("pdb_never_yields")
        ]

    def healthy(self, budget: DisruptionBudget) -> int:
        """Return the number of healthy pods of a budget."""
        return sum(self._healthy(pod, budget) for pod in self._pods.values())

    def events_since(self, revision: int) -> list[WatchEvent]:
        """Return the events after `revision`, oldest first. Raise Gone when it is older than the history."""
        self.sync()
        return self._after(revision)

    def _after(self, revision: int) -> list[WatchEvent]:
        if revision + 1 < self.revision and (not self._history or self._history[0].revision > revision + 1):
            raise Gone(f"too old resource version: {revision} ({self.revision})")
        newer = takewhile(lambda event: event.revision > revision, reversed(self._history))
        return list(newer)[::-1]

    def changed_since(self, revision: int) -> set[str]:
        """Return nodes that changed, or whose pods did, after `revision`. Raise Gone if too old. Does not catch up."""
        return {where for event in self._after(revision) if (where := node_of(event.object)) is not None}

    def node_events(self, node: str) -> list[dict[str, Any]]:
        """Return the events of a node object and the pods on it, oldest first, as far back as the history goes."""
        self.sync()
        return [
            asdict(event) | {"kind": "Node" if isinstance(event.object, NodeObject) else "Pod"}
            for event in self._history
            if node_of(event.object) == node
        ]

    def dump(self) -> dict[str, Any]:
        """Return the whole cluster as JSON values."""
        self.sync()
        return {
            "revision": self.revision,
            "evictions": self.evictions,
            "out_of_service": self.outages.dump(),
            "nodes": {name: asdict(node) for name, node in self._nodes.items()},
            "pods": [asdict(pod) for pod in self._pods.values()],
        }

    # --- writing ---

    def add_node(
        self, name: str, *, labels: Mapping[str, str] | None = None, control_plane: bool = False,
        taints: tuple[Taint, ...] = (),
    ) -> NodeObject:  # fmt: skip
        """Register a node."""
        node = NodeObject(name, self._uid(), self._clock(), 0, control_plane=control_plane, taints=taints)
        node.labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        node.labels |= labels or {}
        if control_plane:
            node.labels["node-role.kubernetes.io/control-plane"] = ""
        self._nodes[name] = node
        self._record("ADDED", node)
        return node

    def modified(self, name: str) -> None:
        """Tell watchers that a caller has set fields of the node object directly."""
        self._record("MODIFIED", self._nodes[name])

    def update_node(
        self,
        name: str,
        *,
        resource_version: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        taints: Iterable[Taint] | None = None,
        unschedulable: bool | None = None,
    ) -> NodeObject:
        """Replace the given fields whole. Raise Conflict when the node is no longer at `resource_version`."""
        node = self.node(name)
        machine = self.machines.get(name)
        moved = machine is not None and machine.fault("node_conflicts") is not None
        if resource_version is not None and (moved or str(node.resource_version) != resource_version):
            raise Conflict(
                f'Operation cannot be fulfilled on nodes "{name}": the object has been modified; '
                "please apply your changes to the latest version and try again"
            )
        before = replace(node)
        node.labels = node.labels if labels is None else dict(labels)
        node.annotations = node.annotations if annotations is None else dict(annotations)
        node.taints = node.taints if taints is None else tuple(taints)
        node.unschedulable = node.unschedulable if unschedulable is None else unschedulable
        if node != before:
            self._record("MODIFIED", node)
        return node

    def remove_node(self, name: str) -> None:
        """Delete the node object and its pods. A running kubelet registers the node again when it restarts."""
        self.drop_k3s_server(name)
        node = self.node(name)
        for pod in list(self._on_node.get(name, {}).values()):
            self._forget(pod)
        del self._nodes[name]
        self._record("DELETED", node)

    def add_pod(
        self,
        namespace: str,
        name: str,
        node: str | None,
        owner: tuple[str, str],
        *,
        labels: Mapping[str, str] | None = None,
        gpus: int = 0,
        phase: str = "Running",
        grace_s: float = 30.0,
        finalizers: Sequence[str] = (),
        local_storage: bool = False,
    ) -> PodObject:
        """Add a pod. `owner`: kind and name; ("", "") = a bare pod."""
        pod = PodObject(namespace, name, self._uid(), self._clock(), 0, node, *owner, dict(labels or {}))
        pod.gpus, pod.grace_s, pod.finalizers, pod.local_storage = gpus, grace_s, tuple(finalizers), local_storage
        pod.phase = phase if node is not None else "Pending"
        if owner[0] == "Node":
            pod.annotations[MIRROR_ANNOTATION] = pod.uid
        self._pods[namespace, name] = pod
        self._on_node.setdefault(node, {})[pod.uid] = pod
        self._record("ADDED", pod)
        return pod

    def evict(self, namespace: str, name: str, *, uid: str | None = None, grace_s: float | None = None) -> None:
        """Evict a pod; do nothing if it is being deleted. Raise NotFound, Conflict (another UID) or TooManyRequests."""
        pod = self.pod(namespace, name)  # budgets are asked before UIDs are compared, as in Kubernetes' eviction.go
        if pod.ends is None and pod.phase == "Running":
            self._check_budgets(pod)
        self._target(namespace, name, uid)
        if pod.ends is None:
            self.evictions += 1
            self._delete(pod, grace_s)

    def delete_pod(self, namespace: str, name: str, *, uid: str | None = None, grace_s: float | None = None) -> None:
        """Delete a pod, whatever the budgets say. `grace_s` 0 removes it at once, even with a silent kubelet."""
        self._delete(self._target(namespace, name, uid), grace_s)

    def _target(self, namespace: str, name: str, uid: str | None) -> PodObject:
        pod = self.pod(namespace, name)
        if uid is not None and pod.uid != uid:
            raise Conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.uid}")
        return pod

    def _check_budgets(self, pod: PodObject) -> None:
        machine = self.machines.get(pod.node or "")
        if machine is not None and machine.fault("pdb_never_yields"):
            raise TooManyRequests(f"never-{pod.node}")
        covering = [budget for budget in self.budgets if budget.covers(pod)]
        if len(covering) > 1:
            raise TwoBudgets
        for budget in covering:
            if self.healthy(budget) - 1 < budget.min_available:
                raise TooManyRequests(budget.name)

    def _healthy(self, pod: PodObject, budget: DisruptionBudget) -> bool:
        runs = pod.phase == "Running" and pod.ends is None and pod.node is not None
        return budget.covers(pod) and runs and self._nodes[pod.node or ""].ready == "True"

    def _delete(self, pod: PodObject, grace_s: float | None) -> None:
        now, grace = self._clock(), pod.grace_s if grace_s is None else grace_s
        if (grace <= 0 or pod.node is None) and not pod.finalizers:
            self._forget(pod)
            self._replace(pod)
            return
        started = now if pod.deletion_started is None else pod.deletion_started
        if pod.ends is None or started + grace < pod.ends:
            pod.deletion_started, pod.ends = started, started + grace
            self._soonest = min(self._soonest, pod.ends)
            self._terminating[pod.uid] = pod
            self._record("MODIFIED", pod)

    # --- controllers ---

    def sync(self, node: str | None = None) -> None:
        """Catch up with the clock, for one node or for the whole cluster."""
        names: Sequence[str] = sorted(self._dirty) if node is None else [node] if node in self.machines else []
        for name in names:
            machine = self.machines[name]
            waits = self._sync_node(name, machine)
            if node is None and not waits and not machine.may_change_with_time:
                self._dirty.discard(name)
        if self._soonest <= self._clock():
            self._end_pods()
        self._run_programs()
        self._play_replicas()
        if self._room_changed:
            self._room_changed = False
            self._schedule_all()

    def _end_pods(self) -> None:
        """End pods whose grace period is over, except where the kubelet is silent. Objects with finalizers stay."""
        now = self._clock()
        for pod in [pod for pod in self._terminating.values() if pod.ends is not None and pod.ends <= now]:
            assert pod.node is not None
            if self.machines[pod.node].kubelet_running if pod.node in self.machines else True:
                if pod.finalizers:
                    del self._terminating[pod.uid]
                    pod.phase = "Failed"  # from kubelet 1.27 on
                    self._record("MODIFIED", pod)
                else:
                    self._forget(pod)
                self._replace(pod)
        self._soonest = min(
            (pod.ends for pod in self._terminating.values() if pod.ends is not None), default=float("inf")
        )

    def _sync_node(self, name: str, machine: Machine) -> bool:
        """Bring a node up to the clock; return whether time alone will change its operands."""
        running = machine.kubelet_running
        if not running and name not in self._nodes:
            return False
        node = self._nodes.get(name) or self.add_node(
            name, control_plane=self.k3s is not None and name in self.k3s.members, taints=first_taints(machine.disk())
        )
        ready = "Unknown" if not running else "True" if machine.kubelet_ready else "False"
        automatic = ((_UNSCHEDULABLE,) if node.unschedulable else ()) + {
            "True": (),
            "False": (_NOT_READY,),
            "Unknown": (_UNREACHABLE,),
        }[ready]
        taints = tuple(taint for taint in node.taints if taint.key not in AUTOMATIC) + automatic
        conditions = detect_conditions(node, machine, self._clock())
        version = (machine.k3s_version if running else "") or node.kubelet_version
        if (ready, taints, conditions, version) != (node.ready, node.taints, node.conditions, node.kubelet_version):
            if ready != node.ready:
                node.ready_since = self._clock()
            node.ready, node.taints, node.conditions, node.kubelet_version = ready, taints, conditions, version
            self._record("MODIFIED", node)
        return self._play_operands(node, machine)

    def _replace(self, pod: PodObject) -> None:
        """Create a new pod for a deleted one, as its controller does."""
        if pod.owner_kind not in ("ReplicaSet", "Job", "StatefulSet") or self._is_kept(pod):
            return
        suffix = "".join(self._rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        new = self.add_pod(
            pod.namespace,
            f"{pod.owner_name}-{suffix}",
            None,
            (pod.owner_kind, pod.owner_name),
            labels=pod.labels,
            gpus=pod.gpus,
            grace_s=pod.grace_s,
        )
        self._schedule(new)

    def _forget(self, pod: PodObject) -> None:
        del self._pods[pod.namespace, pod.name]
        del self._on_node[pod.node][pod.uid]
        self._terminating.pop(pod.uid, None)
        self._programs.pop(pod.uid, None)
        if pod.node is not None:
            self._room_on(pod.node)
        self._record("DELETED", pod)

    def _record(self, kind: Literal["ADDED", "MODIFIED", "DELETED"], thing: NodeObject | PodObject) -> None:
        self.revision += 1
        thing.resource_version = self.revision
        self._history.append(WatchEvent(self.revision, kind, replace(thing), self._clock()))
        where = node_of(thing)
        if where is not None:
            self._generations[where] = self._generations.get(where, 0) + 1
        if isinstance(thing, NodeObject):
            self._room_on(thing.name)
            serves = kind != "DELETED" and _serves(thing)
            self.outages.record(thing.name, serves, self._clock())
            if self.watcher is not None:
                self.watcher(thing, serves)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))


def _serves(node: NodeObject) -> bool:
    """Tell whether new pods can come to a node: not to one that is cordoned, marked or not ready."""
    marked = any(taint.key == MARK_TAINT for taint in node.taints)
    return node.ready == "True" and not node.unschedulable and not marked
