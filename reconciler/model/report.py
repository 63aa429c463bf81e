"""The drift report: what differs now, as a document (DESIGN 6, 10). Data only; render/ makes it text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reconciler.model.desired import SpecSource
from reconciler.model.drift import DriftItem
from reconciler.model.plan import RolloutPlan, Scope

DRIFT_FORMAT = "1.0"


@dataclass(frozen=True, slots=True)
class DriftReport:
    """`changes` and `incomplete` stand apart: an unreachable node never hides a difference (DESIGN section 11)."""

    format_version: str
    tool_version: str
    fleet: str
    source: SpecSource
    generated_at: datetime
    started_at: datetime  # of the observation
    finished_at: datetime
    scope: Scope
    incomplete: tuple[str, ...]  # nodes whose observation is incomplete
    tolerated: bool  # the incomplete ones stay within Fleet.observation.tolerate
    changes: bool  # something of an actionable class is among the items, or a sign of trouble that is reported only
    items: tuple[DriftItem, ...]
    counts: Mapping[str, int]  # drift class -> items
    insecure: tuple[str, ...] = ()
    time_scale: float = 1.0
    stopped: str = ""  # by whom, why and since when
    braked: str = ""  # by the storm brake: as in Plan


APPLY_FORMAT = "1.0"


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """How a run left a node. `state`: converged | done | failed | crashed | not_started | stale | postponed."""

    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class ActionEnd:
    """One attempt. `outcome`: done | transient | permanent | ambiguous | refused; `seconds`: of the fleet's time."""

    node: str
    action: str
    outcome: str
    detail: str
    started_at: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """What a run did, and what it left. `changes`: something is still to be done; `incomplete` as in DriftReport."""

    format_version: str
    tool_version: str
    run: str
    plan: str
    fleet: str
    source: SpecSource
    scope: Scope
    started_at: datetime
    ended_at: datetime
    interrupted: bool
    nodes: Mapping[str, NodeEnd]
    actions: tuple[ActionEnd, ...]
    abandoned: tuple[str, ...]  # marks of ours on nodes that left the spec, and that may not be lifted
    incomplete: tuple[str, ...]
    tolerated: bool
    changes: bool
    insecure: tuple[str, ...] = ()
    time_scale: float = 1.0
    rollouts: tuple[RolloutPlan, ...] = ()  # as the run left them
    stopped: str = ""  # by whom, why and since when: nothing more began
    braked: str = ""  # by the storm brake: as in Plan
    next_at: datetime | None = None  # when time lets the next one start: a wave has baked, a window opens
