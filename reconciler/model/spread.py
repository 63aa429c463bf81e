"""The results of the gate on many nodes, by test and metric, beside the bars that judge them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outlier:
    """A node to be named. `why`: the judge's words, or how far it is from its peers."""

    node: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class SpreadBin:
    """How many values are from `low` to below `high`; None: it has no end. `refused`: of nodes that fail today."""

    label: str
    low: float | None
    high: float | None
    passes: int
    refused: int


@dataclass(frozen=True, slots=True)
class SpreadBar:
    """A limit of today. `words`: like ">= 440 GB/s"."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Spread:
    """The stored values of one metric, of nodes with the same hardware, test and limits.

    `bins`: in ascending order. `said`: all of it in one sentence. `left_out`: outliers that are not named.
    """

    title: str
    peers: str
    unit: str
    said: str
    bins: tuple[SpreadBin, ...]
    bars: tuple[SpreadBar, ...]
    outliers: tuple[Outlier, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Spreads:
    """`figures`: those with nodes to name first. `left_out`: what they leave out, in words; "" = nothing."""

    figures: tuple[Spread, ...]
    left_out: str
