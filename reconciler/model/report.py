"""The drift report: what differs now, as a document (DESIGN 6, 10). Data only; render/ makes it text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reconciler.model.desired import SpecSource
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import Incident, RolloutPlan, Scope
from reconciler.model.privacy import FreeText, NodeName, PublicText

DRIFT_FORMAT = "1.0"


@dataclass(frozen=True, slots=True)
class DriftReport:
    """The drift of a fleet. `changes` and `incomplete` are apart: an unreachable node hides nothing (DESIGN 11)."""

    format_version: PublicText
    tool_version: PublicText
    fleet: PublicText
    source: SpecSource
    generated_at: datetime
    started_at: datetime  # of the observation
    finished_at: datetime
    scope: Scope
    incomplete: tuple[PublicText, ...]  # nodes whose observation is incomplete
    tolerated: bool  # the incomplete ones stay within Fleet.observation.tolerate
    changes: bool  # something of an actionable class is among the items, or a sign of trouble that is reported only
    items: tuple[DriftItem, ...]
    counts: Mapping[PublicText, int]  # drift class -> items
    insecure: tuple[PublicText, ...] = ()
    time_scale: float = 1.0
    stopped: FreeText = ""  # by whom, why and since when
    braked: FreeText = ""  # by the storm brake: as in Plan
    incidents: tuple[Incident, ...] = ()  # as in Plan

    @property
    def unknown(self) -> frozenset[str]:
        """The nodes with values that nobody could read, also where the cause is known: they may not be as specified."""
        return frozenset(item.node for item in self.items if item.kind is DriftClass.UNKNOWN)


APPLY_FORMAT = "1.1"


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The state in which a run left a node: converged | done | failed | crashed | parked | not_started | stale |
    postponed."""

    state: PublicText
    detail: FreeText


@dataclass(frozen=True, slots=True)
class ActionEnd:
    """One attempt. `outcome`: done | transient | permanent | ambiguous | refused; `seconds`: of the fleet's time."""

    node: NodeName
    action: PublicText
    outcome: PublicText
    detail: FreeText
    started_at: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class ReleaseEnd:
    """How the work on a Helm release ended. `state`: as of a node."""

    name: PublicText
    state: PublicText
    detail: FreeText


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The actions of a run and the state that it left. `changes`: work remains; `incomplete` as in DriftReport."""

    format_version: PublicText
    tool_version: PublicText
    run: PublicText
    plan: PublicText
    fleet: PublicText
    source: SpecSource
    scope: Scope
    started_at: datetime
    ended_at: datetime
    interrupted: bool
    nodes: Mapping[NodeName, NodeEnd]
    actions: tuple[ActionEnd, ...]
    abandoned: tuple[PublicText, ...]  # marks of ours on nodes that left the spec, and that may not be lifted
    incomplete: tuple[PublicText, ...]
    tolerated: bool
    changes: bool
    insecure: tuple[PublicText, ...] = ()
    time_scale: float = 1.0
    rollouts: tuple[RolloutPlan, ...] = ()  # as the run left them
    stopped: FreeText = ""  # by whom, why and since when: nothing more began
    braked: FreeText = ""  # by the storm brake: as in Plan
    releases: tuple[ReleaseEnd, ...] = ()
    next_at: datetime | None = None  # when time lets the next one start: a wave has baked, a window opens
