"""Events that runs report while they work. The command line shows them; nothing is decided by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every command's options import this module, and help needs no model
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
    """A step of an action that is under way, in words: "powering off", "waiting for the host"."""

    node: str
    action: str  # the action's id, such as "update_firmware:bmc"
    step: str


@dataclass(frozen=True, slots=True)
class ActionFinished:
    node: str
    action: PlannedAction
    outcome: Outcome
    seconds: float


@dataclass(frozen=True, slots=True)
class NodeSettled:
    """Nothing more will be done to this node in this run. `state`: a value of `run.Ended`, such as "done"."""

    node: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run can start nothing now. `seconds`: how much longer it waits for budget, a window or a boot."""

    nodes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class LoopTold:
    """A message of a run about itself or a Helm release. `event` is a word for the log, such as "leading" or "spec"."""

    event: str
    message: str
    problem: bool = False
    fields: Mapping[str, str | int | float] = field(default_factory=dict)


Event = NodeObserved | ActionStarted | ActionStep | ActionFinished | NodeSettled | Waiting | LoopTold
Progress = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Show no progress."""
