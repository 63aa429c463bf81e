"""The reliability of a period: incidents, rungs that healed, times, failure rates, objectives, spares, lemons.

Durations are seconds of the fleet's time, exposures hours. All is for people: nothing acts on any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.model.privacy import NodeName, PublicText, ValuePath


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds of the fleet's time. None when there are none."""

    count: int = 0
    mean_s: float | None = None
    median_s: float | None = None
    p90_s: float | None = None


@dataclass(frozen=True, slots=True)
class PastIncident:
    """An incident of a failure domain. `until` None: a node still shows it."""

    cause: PublicText  # environment | fabric
    scope: PublicText  # "rack r1"
    signals: tuple[ValuePath, ...]
    nodes: tuple[NodeName, ...]
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class RungTally:
    """How often a rung was tried while a model showed a signal, and how often that was gone before the next attempt.

    `heal`: from the start of the rung to the signal's end. `take_s`: the mean time of an attempt, healed or not.
    """

    model: PublicText
    signal: ValuePath
    rung: PublicText
    attempts: int
    healed: int
    heal: Times
    take_s: float | None


@dataclass(frozen=True, slots=True)
class LadderProposal:
    """An order of rungs for a signal of a model: the least expected time until it is healed comes first.

    `ladder`: that of the policy now. A person changes it, or the row's `rungs`.
    """

    model: PublicText
    signal: ValuePath
    rungs: tuple[PublicText, ...]
    ladder: tuple[PublicText, ...]


@dataclass(frozen=True, slots=True)
class SignalTally:
    """`mtbf_h`: observed node-hours for each time that the signal began. None: it did not.

    `detect`: from the first reading that showed it to the first action for it. How long a fault was there before it was
    read, no source tells: it is less than the time between two observations. `repair`: until the signal was gone.
    """

    model: PublicText
    signal: ValuePath
    failures: int
    node_hours: float
    mtbf_h: float | None
    detect: Times
    repair: Times


@dataclass(frozen=True, slots=True)
class PartRate:
    """Failures for a million hours of a part, with the exact 95 % interval of a Poisson count (Garwood 1936)."""

    model: PublicText
    part: PublicText  # gpu, dimm, drive, port; psu, fan and node by the node
    failures: int
    part_hours: float
    per_million_h: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ObjectiveReport:
    """The availability of the nodes of a persona. `objective` None: the spec has none.

    `budget_h`: node-hours out of service that the objective allows in the hours observed; `burn`: the share of them
    that is spent, so 1 is all of it.
    """

    persona: PublicText
    nodes: int
    objective: float | None
    availability: float | None
    observed_h: float
    out_h: float
    budget_h: float | None
    burn: float | None


@dataclass(frozen=True, slots=True)
class SpareForecast:
    """How many spares keep a persona at strength, and how many it needed.

    `out_share`: of the nodes, that are out at any moment for a failure, by rate and lead time; with its upper limit, by
    that of the rate. `spares`: the fewest that cover the nodes out with probability `target`. `demand`: the most nodes
    that were out for illness at once.
    """

    persona: PublicText
    nodes: int
    target: float
    failures: int
    node_hours: float
    lead_s: float | None  # from a failure until the node serves again; None: no failure, and none was given
    out_share: float
    out_share_high: float
    spares: int
    spares_high: int
    demand: int


@dataclass(frozen=True, slots=True)
class Lemon:
    """The cost of a node in 28 days. `signals`: times that signals of each class began; XIDs apart."""

    node: NodeName
    score: int
    repairs: int
    isolations: int
    gate_failures: int
    xids: int
    signals: Mapping[PublicText, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reliability:
    incidents: tuple[PastIncident, ...] = ()
    rungs: tuple[RungTally, ...] = ()
    proposals: tuple[LadderProposal, ...] = ()
    signals: tuple[SignalTally, ...] = ()
    parts: tuple[PartRate, ...] = ()
    objectives: tuple[ObjectiveReport, ...] = ()
    spares: tuple[SpareForecast, ...] = ()
    lemons: tuple[Lemon, ...] = ()  # the highest score first
