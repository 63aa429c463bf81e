"""The limits of what one plan may do, of what may befall the fleet at once, and of when."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.vocab import Reason, WindowKind


@dataclass(frozen=True, slots=True)
class Guards:
    """The limits of one plan: a plan that does more is refused as a whole. Counts, or shares rounded up.

    The defaults are low (conventions Y10, pitfall J1): a spec that means more says so.
    """

    reimage: str = "20%"
    reboot: str = "30%"
    forget: str = "5%"
    fail_gate: str = "5%"


@dataclass(frozen=True, slots=True)
class Brake:
    """The limits of a storm: more nodes of the fleet or of a failure domain that go bad in this time. Counts or shares.

    A tenth of the fleet is commonly taken for no coincidence any more (pitfall J1); half of a rack is best explained by
    its switch or supply. The time covers one outage as it comes to light: a cluster needs a minute to miss a node, a
    pass over a large fleet some more. First observations trip it, before any host counts as down.
    """

    fleet: str = "10%"
    domain: str = "50%"
    within_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Hours:
    """An interval of local time that recurs on `days` (0 = Monday), in minutes after midnight.

    When `end` is not after `start`, it ends on the next day.
    """

    days: tuple[int, ...]
    start: int
    end: int
    timezone: str  # of the IANA database


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """A limit of nodes out of service at once. `scope`: fleet | pool | a failure-domain label.

    `nodes` is a count ("3") or a share ("10%") of the active nodes in scope, rounded up (conventions Y6).
    With `per_s` it is a rate instead: so many may be newly taken out within any period of that length.
    """

    scope: str
    nodes: str
    reasons: tuple[Reason, ...] = ()  # () = whatever the reason
    per_s: float | None = None
    during: Hours | None = None  # None = always


@dataclass(frozen=True, slots=True)
class Floor:
    """A minimum of active nodes of a persona that stay in service: a count or a share, rounded up."""

    persona: str
    nodes: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """How many nodes of a persona are kept as spares: a count or a share of its active nodes, rounded up."""

    persona: str
    nodes: str


@dataclass(frozen=True, slots=True)
class Window:
    """Hours in which nodes may (`deny`: may not) be taken out of service and firmware be started. Deny wins."""

    kind: WindowKind
    hours: Hours
    pools: tuple[str, ...] = ()  # () = all
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BreakGlass:
    """An exception that lifts all windows for a while. `until`: ISO 8601 with an offset."""

    reason: str
    by: str
    until: str
