"""Events that runs report while they work. The command line shows them; nothing is decided by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every command's options import this module, and help needs no model
    from datetime import datetime

    from reconciler.model.outcome import Outcome
    from reconciler.model.plan import PlannedAction
    from reconciler.model.silences import Silence


@dataclass(frozen=True, slots=True)
class NodeObserved:
    node: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class PassEnded:
    """Every node of a pass was asked. `silent`: the sources that did not answer, and why."""

    silent: tuple[Silence, ...]


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
class RunProgress:
    """How far a run is.

    `nodes`: those that it changes or has changed; `done` and `failed` of them have ended. `out` of `limit`: the budget
    of the whole fleet, None where it has none. `wave` of `waves`: of the rollout that has most before it; 0: there is
    none. `ends_at`: when the last node is expected to be done; None: nobody can say.
    """

    nodes: int
    done: int
    failed: int
    at_work: int
    out: int
    limit: int | None
    wave: int
    waves: int
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunPlanned:
    """The nodes of a run are planned, or planned anew. `how_far`: how far it is; ask while an event is told."""

    run: str
    how_far: Callable[[], RunProgress]
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class LoopTold:
    """A message of a run about itself or a Helm release. `event` is a word for the log, such as "leading" or "spec"."""

    event: str
    message: str
    problem: bool = False
    fields: Mapping[str, str | int | float] = field(default_factory=dict)


_Run = RunPlanned | ActionStarted | ActionStep | ActionFinished | NodeSettled | Waiting | LoopTold
Event = NodeObserved | PassEnded | _Run
Progress = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Show no progress."""
