"""The status of a long-running reconciler and of its fleet, for probes, metrics and alerts. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from reconciler.model.drift import DriftClass
from reconciler.model.plan import BudgetLine
from reconciler.model.vocab import Concern, Source, UnknownReason


class Role(StrEnum):
    STARTING = "starting"
    LEADER = "leader"
    STANDBY = "standby"  # somebody else holds the lease


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """The status of the loop, which replaces it whenever a part of it changes."""

    role: Role = Role.STARTING
    spec_commit: str = ""  # in force; "" until there is one
    spec_head: str = ""  # newest of the branch, as last seen
    spec_trouble: str = ""  # why the newest is not in force, in a word: "invalid", "unsigned", ...
    last_pass: datetime | None = None  # end of the last whole pass
    pass_due_s: float = 900.0  # a leader whose last pass ended longer ago is stuck
    time_scale: float = 1.0  # how many times as fast as ours the fleet's time runs: a lab
    stopped: str = ""  # by whom, why and since when: nothing begins until the stop is lifted

    def unready(self, now: datetime) -> str:
        """Return why others should not count on this process; "" when they may, as on a standby, which takes over."""
        if not self.spec_commit:
            return "no spec is in force" + (f": the newest commit is {self.spec_trouble}" if self.spec_trouble else "")
        if self.role is Role.STARTING:
            return "starting"
        if self.role is Role.STANDBY:
            return ""
        if self.last_pass is None:
            return "the first pass has not ended"
        age = (now - self.last_pass).total_seconds()
        return (
            f"the last pass ended {age:.0f} s ago, {self.pass_due_s:.0f} s are allowed" if age > self.pass_due_s else ""
        )


class NodeStatus(StrEnum):
    """The status of a node, in the words that alerts are written with."""

    CONVERGED = "converged"  # as specified
    WAITING = "waiting"  # differs; time alone lets it go: budget, window, wave, back-off
    ACTING = "acting"  # an action runs on it
    PLANNED = "planned"  # differs; the next apply or run acts on it
    BLOCKED = "blocked"  # differs, and a person must look
    HELD = "held"  # by a hold, or by the stop of the whole fleet
    SET_ASIDE = "set_aside"  # quarantined or retired in the spec
    UNKNOWN = "unknown"  # too little could be read to say


@dataclass(frozen=True, slots=True)
class NodeReport:
    """`since`: how long it has stood so. `out_since`: how long it has been out of service; None: it is not, or nobody
    can say."""

    pool: str
    status: NodeStatus
    since: datetime
    out_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class PersonaStatus:
    """Nodes of a persona that are in service and out of it now; others are not known, or set aside. `objective`: the
    share of node-hours in service that the spec asks for, None = nothing.
    """

    in_service: int = 0
    out: int = 0
    objective: float | None = None


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The findings of one pass. `observed`: per source, the instant of the oldest answer that it goes by."""

    started_at: datetime
    ended_at: datetime
    nodes: Mapping[str, NodeReport] = field(default_factory=dict)
    drift: Mapping[tuple[Concern, DriftClass], int] = field(default_factory=dict)  # items
    budget: tuple[BudgetLine, ...] = ()
    observed: Mapping[Source, datetime] = field(default_factory=dict)
    silent: Mapping[tuple[Source, UnknownReason], int] = field(default_factory=dict)  # nodes
    halted: tuple[str, ...] = ()  # pools whose rollout is halted
    braked: str = ""  # by the storm brake, why and since when
    held_by_brake: int = 0  # nodes
    insecure: int = 0  # what reports call INSECURE: each is a sentence there
    isolated: Mapping[str, int] = field(default_factory=dict)  # by pool: nodes with a mark on evidence of illness
    incidents: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (signal or cause, scope) -> nodes
    personas: Mapping[str, PersonaStatus] = field(default_factory=dict)
    spares: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (persona, ready|preparing|marginal) -> nodes
