"""Objects of a lab's Kubernetes API, and the ways in which the API says no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reconciler.model.observed import Taint

KUBELET_VERSION = "v1.31.4"


class NotFound(Exception):
    """No such object."""


class Conflict(Exception):
    """The object moved on, or is not the one that was meant."""


class TooManyRequests(Exception):
    """A disruption budget says not now. `budget`: its name."""

    def __init__(self, budget: str) -> None:
        super().__init__(f"Cannot evict pod as it would violate the pod's disruption budget {budget}.")
        self.budget = budget


class Gone(Exception):
    """The revision is older than what the server remembers."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Of a node, set by a detector. `good`: the status to which the detector takes it back.

    `boot_id`: of the system under which it was seen, if it stands until the next; "": it goes with its fault.
    """

    status: str
    reason: str
    message: str
    since: float
    good: str
    boot_id: str = ""


@dataclass(slots=True)
class NodeObject:
    name: str
    uid: str
    created: float
    resource_version: int
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: str = "Unknown"  # True | False | Unknown: status of the Ready condition
    ready_since: float = 0.0
    kubelet_version: str = KUBELET_VERSION
    control_plane: bool = False
    conditions: Mapping[str, Condition] = field(default_factory=dict)  # of detectors, by type


@dataclass(slots=True)
class PodObject:
    """`ends`: when a graceful deletion is over; None = not being deleted."""

    namespace: str
    name: str
    uid: str
    created: float
    resource_version: int
    node: str | None
    owner_kind: str  # DaemonSet | ReplicaSet | Job | Node (a mirror pod) | "" = bare
    owner_name: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    phase: str = "Running"  # Pending | Running | Succeeded | Failed
    gpus: int = 0
    grace_s: float = 30.0
    deletion_started: float | None = None
    ends: float | None = None

    @property
    def evictable(self) -> bool:
        return self.owner_kind not in ("DaemonSet", "Node") and self.phase not in ("Succeeded", "Failed")


@dataclass(slots=True)
class DisruptionBudget:
    """`min_available` pods with these labels stay. Built per call for a node whose fault is pdb_never_yields."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    min_available: int


@dataclass(frozen=True, slots=True)
class WatchEvent:
    revision: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: NodeObject | PodObject  # a copy, as it was then
    at: float


def node_of(thing: NodeObject | PodObject) -> str | None:
    """The node itself, or the one that a pod is on."""
    return thing.name if isinstance(thing, NodeObject) else thing.node
