"""The documents of the API of `run`, beside those that commands print, and the port that it reads them from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from reconciler.model.desired import LineOrigin
from reconciler.model.drift import DriftItem
from reconciler.model.errors import ReconcilerError
from reconciler.model.fleet_overview import FleetOverview, Holder
from reconciler.model.gate import Certificate
from reconciler.model.period_report import Hours
from reconciler.model.plan import Incident, PlannedAction, RolloutPlan
from reconciler.model.records import Hold, JournalEntry
from reconciler.model.spread import Spreads
from reconciler.model.status import NodeStatus, Role


class NotReady(ReconcilerError):
    """This process has made no pass over the fleet yet, or another one leads."""


class NoSuchNode(ReconcilerError):
    """The fleet has no node of that name."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """An action under way. `percent`: where the action tells it. `next_actions`: what the plan has after it."""

    node: str
    pool: str
    action: str
    step: str
    percent: int | None
    since: datetime
    estimate_s: float
    next_actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The work of the loop now. `why_not_ready`: "" when it may be counted on. `run`: "" before the first pass.

    `spec_url`: of the commit in force, where its forge is known. `waiting`: nodes that are planned and wait.
    """

    fleet: str
    run: str
    role: Role
    holders: tuple[Holder, ...]
    why_not_ready: str
    drift_mode: str
    spec_commit: str
    spec_head: str
    spec_trouble: str
    spec_url: str
    last_pass: datetime | None
    now: datetime
    stopped: str
    time_scale: float
    at_work: tuple[AtWork, ...]
    waiting: int


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node in the list. `since`: of the status; `why`: in one sentence; `drift`: values that differ."""

    name: str
    pool: str
    persona: str
    domains: Mapping[str, str]
    status: NodeStatus
    since: datetime | None
    in_service: bool | None
    out_since: datetime | None
    why: str
    blocked: str
    drift: int
    actions: int
    disruption: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The news since a `version` that a reader was given. `whole`: `nodes` are all there are, and none are `gone`.

    `planned`: changes with each pass; "" while this process has no fleet to show.
    """

    version: str
    whole: bool
    planned: str
    run: CurrentRun
    nodes: tuple[NodeLine, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueLine:
    """A value that the spec manages. `place`: file:line:column; `url`, `pull_url`: of the commit that set the line."""

    path: str
    desired: Any
    observed: Any
    verdict: str
    place: str
    origin: LineOrigin | None
    url: str
    pull_url: str


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """All about one node. `difference`: a unified diff of desired and observed as YAML; "" = nothing differs."""

    line: NodeLine
    at_work: AtWork | None
    incomplete: tuple[str, ...]
    difference: str
    values: tuple[ValueLine, ...]
    drift: tuple[DriftItem, ...]
    actions: tuple[PlannedAction, ...]
    start: datetime | None
    end: datetime | None
    certificate: Certificate | None
    holds: tuple[Hold, ...]
    history: tuple[JournalEntry, ...]


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A cell of the matrix of versions. `what`: "image" or a firmware component; `wanted`: the spec asks for it."""

    pool: str
    what: str
    version: str
    wanted: bool
    nodes: int


@dataclass(frozen=True, slots=True)
class PoolLine:
    name: str
    nodes: int
    in_service: int
    out: int
    statuses: Mapping[NodeStatus, int]
    versions: tuple[VersionLine, ...]


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """An entry of the journal. `id` grows; `problem`: an attempt that did not end well."""

    id: int
    at: datetime
    run: str
    node: str
    event: str
    action: str
    detail: str
    commit: str
    problem: bool


@dataclass(frozen=True, slots=True)
class WavePast:
    """How many nodes of a wave have been converged to the change, and when the first and the last of them were."""

    nodes: int
    converged: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class RolloutPast:
    """The past of a rollout, wave by wave, as the ledger knows it. `digest`: of the rollout."""

    pool: str
    digest: str
    waves: tuple[WavePast, ...]


@dataclass(frozen=True, slots=True)
class DayHours:
    """The node-hours of a day (UTC). `availability`: in service, of those seen in or out; None: there are none."""

    start: datetime
    end: datetime
    hours: Hours
    availability: float | None


@dataclass(frozen=True, slots=True)
class Approvable:
    """The plan of a node that waits for approval. `fingerprint` binds every value that its actions use.

    `approved_by`: who has approved it, so that it waits for its turn alone; "" = nobody.
    """

    node: str
    fingerprint: str
    disruption: str
    actions: tuple[str, ...]
    blocked: str
    approved_by: str = ""


@dataclass(frozen=True, slots=True)
class Approvals:
    """The plans that `apply` would ask to approve now; none where the loop corrects. `fingerprint`: of all of it."""

    fingerprint: str
    drift_mode: str
    nodes: tuple[Approvable, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class NewHold:
    """A hold to set. `subject`: a node, or "pool/NAME". `for_s`: None = until it is released."""

    subject: str
    reason: str
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class NewApproval:
    """An approval. `nodes`: each node with the fingerprint of its plan, as /approvals showed it."""

    nodes: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class NewStop:
    """A stop of the whole fleet."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a write, in one sentence."""

    message: str


class FleetControl(Protocol):
    """The port that the API writes through. `by`: the caller, as the journal shows it. UsageError: what can't be."""

    def approve(self, wanted: NewApproval, by: str) -> Done:
        """Raise StalePlan where a plan is another one than was shown, and Refused where it may not be carried out."""

    def hold(self, wanted: NewHold, by: str) -> Done: ...

    def release(self, subject: str, by: str) -> Done: ...

    def stop(self, wanted: NewStop, by: str) -> Done: ...

    def resume(self, by: str) -> Done: ...


class FleetView(Protocol):
    """The port that the API reads from. Calls come from any thread, and are short. NotReady: before the first pass."""

    def overview(self) -> FleetOverview: ...

    def current_run(self) -> CurrentRun: ...

    def pools(self) -> Sequence[PoolLine]: ...

    def nodes(self) -> Sequence[NodeLine]: ...

    def changes(self, since: str) -> Changes:
        """Return what has changed since a version; everything for "" and for one that this process did not give."""

    def node(self, name: str) -> NodeDetail:
        """Raise NoSuchNode."""

    def history(self, name: str, last: int) -> Sequence[JournalEntry]:
        """Return the newest entries of a node, oldest first. Raise NoSuchNode."""

    def events(self, after: int | None, limit: int) -> Sequence[FeedEntry]:
        """Return the journal's entries after one, oldest first; None: the newest."""

    def incidents(self) -> Sequence[Incident]: ...

    def rollouts(self) -> Sequence[RolloutPlan]: ...

    def rollouts_past(self) -> Sequence[RolloutPast]: ...

    def measured(self) -> Spreads: ...

    def availability(self, days: int) -> Sequence[DayHours]: ...

    def approvals(self) -> Approvals: ...

    def holds(self) -> Sequence[Hold]:
        """Return the holds in force. Those of the spec are among them, since each pass copies them to the ledger."""
