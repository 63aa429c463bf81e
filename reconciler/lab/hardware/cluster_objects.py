"""Objects of a lab's Kubernetes API, the errors it returns, and the conditions that node detectors set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from reconciler.lab.hardware.machine import Machine
from reconciler.model.observed import Taint

KUBELET_VERSION = "v1.31.4"


class NotFound(Exception):
    """The object does not exist."""


class Conflict(Exception):
    """The object has a newer version, or another UID than the one requested."""


class TooManyRequests(Exception):
    """A disruption budget refuses an eviction. `budget`: its name."""

    def __init__(self, budget: str) -> None:
        super().__init__(f"Cannot evict pod as it would violate the pod's disruption budget {budget}.")
        self.budget = budget


class TwoBudgets(Exception):
    """A pod that two disruption budgets cover can't be evicted: the API server answers with an internal error."""

    def __init__(self) -> None:
        super().__init__(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )


class Gone(Exception):
    """The revision is older than the server's history."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A node condition set by a detector. `good`: the status to which the detector resets it.

    `boot_id`: the boot that it was seen in, if only the next boot clears it; "" if it ends with its fault.
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
    allocatable: Mapping[str, int] = field(default_factory=dict)  # of resources that device plugins advertise
    plugin: str = ""  # uid of the last pod of the device plugin
    plugin_looked: bool = False  # since it started
    plugin_found: int = 0


@dataclass(slots=True)
class PodObject:
    """A pod. `ends`: when its graceful deletion is over; None = not being deleted.

    With finalizers the object stays until somebody removes them.
    """

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
    finalizers: tuple[str, ...] = ()
    local_storage: bool = False  # it has an emptyDir
    runs_until: float | None = None  # when it ends by itself; None = never
    saves_s: float | None = None  # how long its program takes to save its state once asked; None = it never does
    asked_at: float | None = None  # when its program took note of the request
    requests: int = 0  # how often it was asked
    fails: bool = False  # its readiness probe does

    @property
    def evictable(self) -> bool:
        return self.owner_kind not in ("DaemonSet", "Node") and self.phase not in ("Succeeded", "Failed")


@dataclass(slots=True)
class DisruptionBudget:
    """At least `min_available` pods with these labels must stay. The fault pdb_never_yields adds one per node."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    min_available: int

    def covers(self, pod: PodObject) -> bool:
        return self.namespace == pod.namespace and self.selector.items() <= pod.labels.items()


@dataclass(frozen=True, slots=True)
class WatchEvent:
    revision: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: NodeObject | PodObject  # a copy made at the time of the event
    at: float


def node_of(thing: NodeObject | PodObject) -> str | None:
    """Return the name of the node, or of the node that the pod runs on; None for a pending pod."""
    return thing.name if isinstance(thing, NodeObject) else thing.node


def detect_conditions(node: NodeObject, machine: Machine, now: float) -> Mapping[str, Condition]:
    """Return the conditions as a running node problem detector sets them; it resets them after a boot."""
    fault = machine.fault("node_condition")
    if (fault is None and not node.conditions) or not machine.detector_runs:
        return node.conditions
    found, boot_id = dict(node.conditions), machine.system().boot_id
    for kind, condition in node.conditions.items():
        if condition.status != condition.good and condition.boot_id != boot_id:
            found[kind] = replace(condition, status=condition.good, reason="NoProblem", message="", since=now)
    if fault is not None:
        kind, status, reason, message = (str(fault[key]) for key in ("type", "status", "reason", "message"))
        before = node.conditions.get(kind)
        since = now if before is None or before.status != status else before.since
        found[kind] = Condition(status, reason, message, since, "False" if status == "True" else "True")
    return found
