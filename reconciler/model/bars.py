"""Bars of the gate and what nodes measured, as values: which nodes a moved bar refuses or lets in, and histograms."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.privacy import NodeName, PublicText


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values between edges of equal distance.

    `counts` has one more entry than `edges`: below the first, from each edge to the next, and from the last on. A value
    that equals an edge counts above it.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """The least and the most that a metric may be: of `min`, `max` and the peers, whatever is the strictest."""

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A stored value beside the limit that counts for it. `share`: how far it is on the bad side, as part of the limit.

    `share` is negative where it is on the good side; 0.1 of a limit of 0 is 0.1.
    """

    node: NodeName
    value: float
    limit: float
    share: float


@dataclass(frozen=True, slots=True)
class BarSpread:
    """The stored values of nodes with the same limits. `tool_version`: "" where it does not matter."""

    tool_version: PublicText
    before: Limits
    after: Limits
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class MovedBar:
    """The bars of one metric of one test that a change moves, judged by stored metrics. Nothing was run."""

    test: PublicText
    metric: PublicText
    unit: PublicText  # "" = a count, a ratio, or not known
    before: tuple[PublicText, ...]  # as the plan says it, like ">= 440"; () = none
    after: tuple[PublicText, ...]
    place: PublicText  # file:line:column at head; "" = the change takes it away, or nobody knows
    below: tuple[Measured, ...]  # head's bars refuse them, and base's do not: the worst first
    admitted: tuple[Measured, ...]  # base's bars refuse them, and head's test passes: the nearest to the bar first
    kept: int  # judged alike by both
    unmeasured: tuple[PublicText, ...]  # nodes of which no value is stored: only a run can tell
    spreads: tuple[BarSpread, ...]
    gpus: int  # of the nodes in `below`
    gpu_hours: float  # out of service that head plans for the nodes in `below`, beyond base


@dataclass(frozen=True, slots=True)
class NewTest:
    """A test that a change adds, or of which it changes more than bars: each of the nodes needs a run of it."""

    test: PublicText
    tool: PublicText
    place: PublicText
    nodes: tuple[PublicText, ...]
    gpus: int  # of all these nodes
    timeout_s: float  # the most that one run takes

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.timeout_s / 3600
