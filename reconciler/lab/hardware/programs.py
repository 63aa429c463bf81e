"""The programs in pods: some end by themselves, and some save their state when they are asked to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace

from reconciler.lab.hardware.cluster_objects import NodeObject, PodObject
from reconciler.lab.hardware.k3s_site import K3sSite
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.scheduler import Scheduler
from reconciler.model.drain import DRAIN_AT, READY_TO_EVICT, TAKES_PART


class Programs(Scheduler):
    """Plays programs of pods. A request by annotation and one by HTTP are the same to them."""

    def __init__(self, machines: Mapping[str, Machine], clock: Callable[[], float]) -> None:
        super().__init__(machines, clock)
        self.k3s: K3sSite | None = None  # of a cluster that the reconciler installs
        self._down = False
        self._dirty = set(machines)  # nodes that may have changed since the last read of all
        self._programs: dict[str, PodObject] = {}  # pods whose program ends by itself, or answers

    @property
    def down(self) -> bool:
        """Tell whether the API server does not answer; the servers simulate it."""
        return self._down or (self.k3s is not None and not any(map(self.k3s.serves, self.k3s.members)))

    @down.setter
    def down(self, down: bool) -> None:
        self._down = down

    def serve_k3s(self, site: K3sSite) -> None:
        """Be the API of a K3s cluster, whose snapshots hold the node objects."""
        self.k3s, site.forget, site.bring_back = site, self.remove_node, self._bring_back
        site.begin_anew = self._begin_anew
        site.known = lambda name: name in self._nodes
        site.nodes = lambda: {name: replace(node) for name, node in self._nodes.items()}

    def _bring_back(self, saved: Mapping[str, NodeObject]) -> None:
        """Have the node objects of a snapshot, whatever was done to them since."""
        for name in set(self._nodes) - set(saved):
            self.remove_node(name)
        for name, node in saved.items():
            self._nodes[name] = replace(node)
            self._dirty.add(name)
            self._record("MODIFIED", self._nodes[name])

    @abstractmethod
    def _begin_anew(self) -> None:
        """Be the API of a new cluster, whose datastore has nothing of the one before."""

    @abstractmethod
    def remove_node(self, name: str) -> None:
        """Delete the node object and its pods."""

    def is_k3s_server(self, name: str) -> bool:
        return self.k3s is not None and name in self.k3s.members

    def drop_k3s_server(self, name: str) -> None:
        if self.k3s is not None:
            self.k3s.dropped(name)

    @abstractmethod
    def pod(self, namespace: str, name: str) -> PodObject:
        """Return a pod. Raise NotFound."""

    @abstractmethod
    def _target(self, namespace: str, name: str, uid: str | None) -> PodObject:
        """Return a pod. Raise NotFound, or Conflict if it has another UID."""

    def give_program(
        self, namespace: str, name: str, *, runs_s: float | None = None, saves_s: float | None = None
    ) -> None:
        """Let the program of a pod end by itself after `runs_s`, and save its state in `saves_s` once it is asked."""
        pod, now = self.pod(namespace, name), self._clock()
        pod.runs_until, pod.saves_s = None if runs_s is None else now + runs_s, saves_s
        if saves_s is not None:
            pod.annotations[TAKES_PART] = "true"
        self._programs[pod.uid] = pod
        self._record("MODIFIED", pod)

    def annotate_pod(
        self, namespace: str, name: str, uid: str | None, annotations: Mapping[str, str | None]
    ) -> PodObject:
        """Merge annotations into those of a pod; None takes one away. Raise NotFound or Conflict (another UID)."""
        pod = self._target(namespace, name, uid)
        merged = {**pod.annotations, **annotations}
        found = {key: value for key, value in merged.items() if value is not None}
        if found == pod.annotations:
            return pod
        if (wanted := found.get(DRAIN_AT)) != pod.annotations.get(DRAIN_AT):
            pod.asked_at = None if wanted is None else self._clock()
            pod.requests += wanted is not None
        pod.annotations = found
        self._record("MODIFIED", pod)
        return pod

    def ask_pod(self, namespace: str, name: str, method: str) -> int:
        """Answer an HTTP request with a status. POST asks to save the state; GET has 200 when that is done."""
        pod, now = self.pod(namespace, name), self._clock()
        if pod.saves_s is None:
            return 503  # nothing listens there
        if method == "POST":
            pod.asked_at, pod.requests = now, pod.requests + 1
            return 202
        return 200 if pod.asked_at is not None and now >= pod.asked_at + pod.saves_s else 503

    def _run_programs(self) -> None:
        """Do what is due by now, and drop the pods whose programs have ended."""
        now = self._clock()
        for pod in list(self._programs.values()):
            if pod.runs_until is not None and pod.runs_until <= now and pod.phase == "Running":
                pod.phase, pod.ends, pod.deletion_started = "Succeeded", None, None
                del self._programs[pod.uid]
                self._room_on(pod.node or "")
                self._record("MODIFIED", pod)
            elif pod.saves_s is not None and pod.asked_at is not None and now >= pod.asked_at + pod.saves_s:
                wanted = pod.annotations.get(DRAIN_AT)
                if wanted is not None and pod.annotations.get(READY_TO_EVICT) != wanted:
                    pod.annotations = {**pod.annotations, READY_TO_EVICT: wanted}
                    self._record("MODIFIED", pod)
