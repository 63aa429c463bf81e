"""The simulated scheduler: which nodes accept pods, and which pods are pending."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

from reconciler.lab.hardware.cluster_objects import NodeObject, PodObject
from reconciler.lab.hardware.machine import Machine

_TOLERATED = frozenset({"nvidia.com/gpu"})


class Scheduler(ABC):
    """Assigns pods to nodes. `machines`: by node name, for machines that are in the cluster or may join it."""

    def __init__(self, machines: Mapping[str, Machine], clock: Callable[[], float]) -> None:
        self.machines = machines
        self._clock = clock
        self._nodes: dict[str, NodeObject] = {}
        self._on_node: dict[str | None, dict[str, PodObject]] = {}
        self._may_have_gpus: set[str] = set()  # nodes that may have free GPUs
        self._next_node = 0  # round robin for pods without GPUs
        self._room_changed = False

    @abstractmethod
    def _record(self, kind: Literal["ADDED", "MODIFIED", "DELETED"], thing: NodeObject | PodObject) -> None:
        """Record a change of an object for watchers."""

    def has_work(self, node: str) -> bool:
        """Tell whether an evictable pod runs there. Pods past their grace period do not count."""
        now = self._clock()
        pods = self._on_node.get(node, {}).values()
        return any(pod.evictable and (pod.ends is None or pod.ends > now) for pod in pods)

    def _schedule_all(self) -> None:
        """Schedule pending pods. When one finds no node, skip those that want as many GPUs or more."""
        too_many: int | None = None
        for pod in list(self._on_node.get(None, {}).values()):
            if too_many is None or pod.gpus < too_many:
                self._schedule(pod)
                too_many = pod.gpus if pod.node is None else too_many

    def _schedule(self, pod: PodObject) -> None:
        node = self._node_with_gpus(pod.gpus) if pod.gpus else self._next_open_node()
        if node is None:
            return
        del self._on_node[None][pod.uid]
        pod.node, pod.phase = node, "Running"
        self._on_node.setdefault(node, {})[pod.uid] = pod
        self._record("MODIFIED", pod)

    def _next_open_node(self) -> str | None:
        names = list(self._nodes)
        for step in range(len(names)):
            name = names[(self._next_node + step) % len(names)]
            if self._open(name):
                self._next_node += step + 1
                return name
        return None

    def _node_with_gpus(self, wanted: int) -> str | None:
        for name in sorted(self._may_have_gpus):
            free = self._free_gpus(name) if self._open(name) else 0
            if free >= wanted:
                return name
            if not free:
                self._may_have_gpus.discard(name)
        return None

    def _open(self, name: str) -> bool:
        node = self._nodes.get(name)
        if node is None or node.unschedulable or node.ready != "True" or node.control_plane:
            return False
        return all(taint.key in _TOLERATED or taint.effect == "PreferNoSchedule" for taint in node.taints)

    def _free_gpus(self, name: str) -> int:
        machine = self.machines.get(name)
        used = sum(pod.gpus for pod in self._on_node.get(name, {}).values() if pod.evictable)
        return sum(not gpu.lost for gpu in machine.state.gpus) - used if machine is not None else 0

    def _room_on(self, node: str) -> None:
        self._may_have_gpus.add(node)
        self._room_changed = True
