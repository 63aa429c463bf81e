"""Controllers of a lab's cluster that keep a number of pods, and queues of Kueue, as their own documents say.

A Deployment that wants fewer pods takes pending ones first, then those that are not ready, then the youngest
(kubernetes.io, "ReplicaSet", Scaling a ReplicaSet). A LeaderWorkerSet takes its highest numbers. A queue that drains
evicts the pods of what it has admitted: their Jobs are suspended (kueue.sigs.k8s.io, "ClusterQueue", StopPolicy).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.lab.hardware.cluster_objects import Conflict, PodObject
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.operands import Operands

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_LWS: Final = "leaderworkerset.sigs.k8s.io/name"
_LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"


@dataclass(slots=True)
class ReplicatedObject:
    """`kind`: Deployment or LeaderWorkerSet. `starts_s`: from a pod's place on a node until it is ready.

    `note`: what a client has put into its annotations. `keeper`: who sets the number back to `kept`, at once.
    """

    kind: str
    namespace: str
    name: str
    replicas: int
    starts_s: float
    pod: Mapping[str, Any]
    note: Any = None
    resource_version: int = 1
    keeper: str = ""
    numbers: int = 0  # of pods so far
    least_ready: int | None = None  # the fewest that were ready at once, from the first time that all were
    largest: int = 0

    @property
    def owner(self) -> tuple[str, str]:
        return ("ReplicaSet" if self.kind == "Deployment" else "StatefulSet"), f"{self.name}-set"


@dataclass(slots=True)
class QueueObject:
    name: str
    stop_policy: str = "None"
    note: Any = None
    resource_version: int = 1
    stops: int = 0  # how often it was stopped


class Replicas(Operands):
    """Plays what keeps numbers of pods, and Kueue."""

    def __init__(self, machines: Mapping[str, Machine], clock: Callable[[], float]) -> None:
        super().__init__(machines, clock)
        self.replicated: dict[tuple[str, str, str], ReplicatedObject] = {}
        self.queues: dict[str, QueueObject] = {}
        self._suspended: list[PodObject] = []
        self._playing = False

    @abstractmethod
    def pods(self, node: str | None = None) -> list[PodObject]:
        """Return all pods."""

    @abstractmethod
    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod, with its own grace period."""

    @abstractmethod
    def _replace(self, pod: PodObject) -> None:
        """Create a new pod for one that ended, as its controller does."""

    @abstractmethod
    def _forget(self, pod: PodObject) -> None:
        """Take a pod away, and create none in its place."""

    def _begin_anew(self) -> None:
        self.replicated.clear()
        self.queues.clear()
        self._suspended.clear()
        for release in list(self.helm.releases):  # Helm keeps them as secrets of the cluster
            self.helm.put(release, None)
        self._bring_back({})
        for pod in list(self._on_node.get(None, {}).values()):
            self._forget(pod)

    def add_replicated(
        self, kind: str, namespace: str, name: str, replicas: int, *, starts_s: float = 0.0, **pod: Any
    ) -> ReplicatedObject:
        """Add an object with its pods. `pod`: as add_pod has it, and `annotations`."""
        made = self.replicated[kind, namespace, name] = ReplicatedObject(kind, namespace, name, replicas, starts_s, pod)
        made.largest = replicas
        self._play_replicas()
        return made

    def change(self, thing: ReplicatedObject | QueueObject, revision: str, value: Any, note: Any) -> None:
        """Set value and note as a client does. Raise Conflict where the object is at another revision."""
        if str(thing.resource_version) != revision:
            raise Conflict(f"{thing.name}: the object has been modified")
        thing.resource_version += 1
        thing.note = note
        if isinstance(thing, QueueObject):
            thing.stops += thing.stop_policy == "None" and value not in (None, "None")
            thing.stop_policy = value or "None"
        elif not thing.keeper:
            thing.replicas = int(value)
            thing.largest = max(thing.largest, thing.replicas)
        self._play_replicas()

    def pods_of(self, thing: ReplicatedObject) -> list[PodObject]:
        return [pod for pod in self.pods() if self._is_of(pod, thing)]

    def ready_of(self, thing: ReplicatedObject) -> int:
        return sum(self.is_ready(pod) for pod in self.pods_of(thing))

    def is_ready(self, pod: PodObject) -> bool:
        thing = next((one for one in self.replicated.values() if self._is_of(pod, one)), None)
        placed = pod.node is not None and pod.phase == "Running" and pod.ends is None and not pod.fails
        return placed and (thing is None or self._clock() >= pod.created + thing.starts_s)

    def unready(self, node: str) -> frozenset[str]:
        """Return the UIDs of the pods on a node that are not ready. Time alone may change that."""
        if not self.replicated:
            return frozenset()
        return frozenset([pod.uid for pod in self.pods(node) if not self.is_ready(pod)])

    def _is_of(self, pod: PodObject, thing: ReplicatedObject) -> bool:
        return pod.namespace == thing.namespace and _owner(pod) == thing.owner

    def _is_kept(self, pod: PodObject) -> bool:
        """Return whether one of these controllers sees to what follows a pod that ended."""
        mine = any(self._is_of(pod, one) for one in self.replicated.values())
        return mine or any(pod is one for one in self._suspended)

    def _play_replicas(self) -> None:
        """Bring every object to its number, end what a queue drains, and start it again when the queue runs."""
        if self._playing or not (self.replicated or self.queues):
            return
        self._playing = True
        try:
            for thing in self.replicated.values():
                self._play_one(thing)
            self._play_queues()
        finally:
            self._playing = False

    def _play_one(self, thing: ReplicatedObject) -> None:
        there = [pod for pod in self.pods_of(thing) if pod.ends is None]
        for _ in range(thing.replicas - len(there)):
            self._create(thing)
        for pod in self._surplus(thing, there):
            self.delete_pod(pod.namespace, pod.name)
        ready = self.ready_of(thing)
        if thing.least_ready is not None or ready >= thing.replicas:
            thing.least_ready = ready if thing.least_ready is None else min(thing.least_ready, ready)

    def _play_queues(self) -> None:
        if any(queue.stop_policy == "HoldAndDrain" for queue in self.queues.values()):
            for pod in self.pods():
                if QUEUE_LABEL in pod.labels and pod.ends is None:
                    self._suspended.append(pod)
                    self.delete_pod(pod.namespace, pod.name)
        elif self._suspended:
            ended, self._suspended = self._suspended, []
            for pod in ended:
                self._replace(pod)

    def _create(self, thing: ReplicatedObject) -> None:
        more = dict(thing.pod)
        annotations = more.pop("annotations", {})
        if thing.kind == "Deployment":
            name = f"{thing.owner[1]}-{thing.numbers}"
            thing.numbers += 1
        else:
            taken = {pod.name for pod in self.pods_of(thing)}
            name = next(each for number in range(10**6) if (each := f"{thing.name}-{number}") not in taken)
            more["labels"] = {
                **more.get("labels", {}), _LWS: thing.name, _LWS_GROUP: name.rpartition("-")[2],
            }  # fmt: skip
        pod = self.add_pod(thing.namespace, name, None, thing.owner, **more)
        pod.annotations.update(annotations)
        self._schedule(pod)

    def _surplus(self, thing: ReplicatedObject, there: list[PodObject]) -> list[PodObject]:
        if thing.kind != "Deployment":
            return [pod for pod in there if int(pod.name.rpartition("-")[2]) >= thing.replicas]
        first = sorted(there, key=lambda pod: (pod.node is not None, self.is_ready(pod), -pod.created))
        return first[: max(0, len(there) - thing.replicas)]


def _owner(pod: PodObject) -> tuple[str, str]:
    return pod.owner_kind, pod.owner_name
