"""The report of a period: what the ledger recorded of a fleet, and the document that sums it up.

A node-hour is in service, out of service, set aside, or not observed. What was not observed never counts as available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from reconciler.model.gate import Decline, Peerless
from reconciler.model.privacy import FreeText, NodeName, PublicText
from reconciler.model.records import Attempt
from reconciler.model.reliability import Reliability, Times
from reconciler.model.status import NodeStatus
from reconciler.model.vocab import Concern

REPORT_FORMAT = "1.0"
ILL = "ill"  # code of a status: the node is out of service and shows signs of illness


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The status of a node now. `out`: out of service; None: unknown. `code`, `why`: what blocks or holds it; of
    one that is out of service and ill, ILL and the signs of it.
    """

    pool: str
    status: NodeStatus
    out: bool | None
    code: str = ""
    why: str = ""


class StatusInterval(NamedTuple):  # made by the hundred thousand, in a quarter of a frozen dataclass's time
    """One uninterrupted interval of one status. `until` None: it has not ended, and was `seen` last."""

    node: str
    pool: str
    status: NodeStatus
    out: bool | None
    since: datetime
    seen: datetime
    until: datetime | None = None
    code: str = ""
    why: str = ""

    @property
    def end(self) -> datetime:
        """The end of the interval, as far as it was observed."""
        return self.seen if self.until is None else self.until


class Episode(NamedTuple):  # as StatusInterval
    """A difference at one path of one node, from the pass that first saw it to the first pass that no longer did."""

    node: str
    path: str
    kind: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class DriftDay:
    """The drift that came and went on one day (UTC), summed up. Not signals of illness: reports need each of them.

    `came`, `went`: by hour. `seconds`: how long each difference was there. `where`: by path, the node of each.
    """

    start: datetime
    came: Sequence[int]
    went: Sequence[int]
    seconds: Sequence[float]
    where: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A failed node in whose place a spare served.

    `since`: when it was taken out of service; `until`: when the spare served. Its own repair is a Recovery,
    which takes as long as it takes.
    """

    node: NodeName
    spare: NodeName
    since: datetime
    until: datetime

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()


@dataclass(frozen=True, slots=True)
class ActionTally:
    """The number of attempts that ended in the period."""

    action: PublicText  # catalogue name, without a target
    outcome: PublicText  # done | transient | permanent | ambiguous | refused
    count: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Past:
    """The records of a period. `first`: by node, when it was observed for the first time ever.

    `attempts`: by node, those at repairs, isolations, drains and gates that began in it, the oldest first.
    """

    status_intervals: tuple[StatusInterval, ...] = ()
    episodes: tuple[Episode, ...] = ()  # without those of `drift_days`
    actions: tuple[ActionTally, ...] = ()
    first: Mapping[str, datetime] = field(default_factory=dict)
    damaged: int = 0  # rows that can't be read
    attempts: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    replacements: tuple[Replacement, ...] = ()  # oldest first
    drift_days: tuple[DriftDay, ...] = ()  # whole days of the period


@dataclass(frozen=True, slots=True)
class Day:
    """Drift in a day (UTC), or in an hour when the period is short. `open`: at its end."""

    start: datetime
    introduced: int
    removed: int
    open: int


@dataclass(frozen=True, slots=True)
class Hours:
    """Node-hours. Their sum is all that the period had; `aside`: quarantined or retired in the spec."""

    in_service: float = 0.0
    out: float = 0.0
    aside: float = 0.0
    unobserved: float = 0.0

    @property
    def total(self) -> float:
        return self.in_service + self.out + self.aside + self.unobserved


@dataclass(frozen=True, slots=True)
class Recovery:
    """An interval out of service until in service again; `until` None: still out. `seconds`: so far, as observed."""

    node: NodeName
    cause: FreeText
    since: datetime
    until: datetime | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A node that the spec sets aside (`code` quarantined), or that is isolated after all repairs (attempts)."""

    node: NodeName
    code: PublicText
    why: FreeText
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class ConcernTally:
    concern: PublicText
    introduced: int
    removed: int
    open: int
    nodes: int


@dataclass(frozen=True, slots=True)
class NodeTally:
    """`concerns`: of what drifted, in the order of every report."""

    node: PublicText
    introduced: int
    open: int
    concerns: tuple[Concern, ...]


@dataclass(frozen=True, slots=True)
class PeriodReport:
    """`watched_since`: the ledger knows nothing of before; None: nobody has ever looked. Drift is in items.

    `availability`: in service, of the node-hours in which a node was seen in or out of service; None: there are none.
    """

    format_version: PublicText
    tool_version: PublicText
    fleet: PublicText
    generated_at: datetime
    since: datetime
    until: datetime
    watched_since: datetime | None
    nodes: int
    introduced: int
    removed: int
    open: int
    bucket_s: float
    days: tuple[Day, ...]
    converge: Times  # of drift that was removed in the period
    concerns: tuple[ConcernTally, ...]  # most introduced first
    top_nodes: tuple[NodeTally, ...]  # most introduced first
    hours: Hours
    availability: float | None
    unobserved_share: float
    recover: Times  # of recoveries that ended in the period
    recoveries: tuple[Recovery, ...]  # who is still out, then the longest
    quarantined: tuple[Quarantine, ...]  # newest first
    actions: tuple[ActionTally, ...]
    damaged: int = 0  # rows of the ledger that can't be read, and are left out
    time_scale: float = 1.0
    declines: tuple[Decline, ...] = ()  # gray decline at the end of the period, the worst first
    replace: Times = field(default_factory=Times)  # of replacements: until capacity was back
    replacements: tuple[Replacement, ...] = ()  # the longest first
    under_way: Mapping[NodeName, PublicText] = field(default_factory=dict)  # at its end: how far a soak, an install is
    reliability: Reliability = field(default_factory=Reliability)
    peerless: tuple[Peerless, ...] = ()  # bars by peers that do not count, by the certificates of its end
