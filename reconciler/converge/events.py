"""What the shell tells while it works. The command line renders it; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reconciler.model.outcome import Outcome
from reconciler.model.plan import PlannedAction


@dataclass(frozen=True, slots=True)
class NodeObserved:
    node: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ActionStarted:
    node: str
    action: PlannedAction


@dataclass(frozen=True, slots=True)
class ActionStep:
    """A line about an action that is under way: "powering off", "waiting for the host"."""

    node: str
    action: str  # its id
    step: str


@dataclass(frozen=True, slots=True)
class ActionFinished:
    node: str
    action: PlannedAction
    outcome: Outcome
    seconds: float


@dataclass(frozen=True, slots=True)
class NodeSettled:
    """Nothing more will be done to this node in this run. `state`: done | failed | crashed | ..."""

    node: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run has nothing to start now. `seconds`: how much longer it will wait for budget or a boot."""

    nodes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The report of a run that was interrupted (an `ApplyReport`): its caller gets a CancelledError."""

    report: object


@dataclass(frozen=True, slots=True)
class LoopTold:
    """What a long-running reconciler says of itself: `event` is a word, such as "leading" or "spec_changed"."""

    event: str
    message: str
    problem: bool = False
    fields: Mapping[str, str | int | float] = field(default_factory=dict)


Event = NodeObserved | ActionStarted | ActionStep | ActionFinished | NodeSettled | Waiting | RunEnded | LoopTold
Progress = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Progress for those who don't show any."""
