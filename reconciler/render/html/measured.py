"""Distributions of what the gate measured, drawn: spreads as columns, with the bars of today as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.model.spread import Outlier, Spread, SpreadBin
from reconciler.render.html.charts import Rect, Tick
from reconciler.render.html.material import Material
from reconciler.render.spreads import spreads
from reconciler.render.text import count

_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    title: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """The values of one metric. `said`: the figure in words; `left_out`: outliers without a name."""

    title: str
    peers: str
    said: str
    ticks: list[Tick]
    columns: list[Rect]
    marks: list[Mark]
    legend: list[str]
    rows: list[str]
    outliers: tuple[Outlier, ...]
    left_out: int


def distributions(material: Material) -> tuple[list[Distribution], str]:
    """Return the figures, those with nodes to name first, and a sentence on what they leave out."""
    found = spreads(material.fleet, list(material.plan.nodes), material.records)
    return list(map(_drawn, found.figures)), found.left_out


def _drawn(one: Spread) -> Distribution:
    legend = [f"bar {bar.words}" for bar in one.bars]
    places = [_at(one.bins, bar.at) for bar in one.bars]
    return Distribution(
        one.title, one.peers, one.said, _ticks(one.bins), list(_columns(one.bins)),
        [Mark(x, text) for x, text in zip(places, legend, strict=True) if x is not None],
        legend, [f"{row.label}: {count(_number(row), 'node')}" for row in one.bins if _number(row)],
        one.outliers, one.left_out,
    )  # fmt: skip


def _number(row: SpreadBin) -> int:
    return row.passes + row.refused


def _columns(found: Sequence[SpreadBin]) -> Iterator[Rect]:
    """Yield a column for each bin, refused nodes below the others. Any node is high enough to be seen."""
    slot, top = 100 / max(len(found), 1), max([_number(row) for row in found], default=1)
    for at, row in enumerate(found):
        lower = max(100 * row.refused / top, 2.0) if row.refused else 0.0
        upper = max(100 * row.passes / top, 2.0) if row.passes else 0.0
        upper = min(upper, 100 - lower)
        x, width = round(at * slot + slot * 0.04, 3), round(slot * 0.92, 3)
        if upper:
            title = f"{row.label}: {count(row.passes, 'node')}"
            yield Rect(x, round(100 - lower - upper, 2), width, round(upper, 2), "passes", title)
        if lower:
            yield Rect(
                x, round(100 - lower, 2), width, round(lower, 2), "refused", f"{row.label}: {row.refused:,} refused"
            )


def _ticks(found: Sequence[SpreadBin]) -> list[Tick]:
    slot, every = 100 / max(len(found), 1), -(-len(found) // _TICKS) or 1
    return [
        Tick(round(at * slot, 3), row.label if row.low is None else f"{row.low:.12g}")
        for at, row in enumerate(found)
        if at % every == 0
    ]


def _at(found: Sequence[SpreadBin], at: float) -> float | None:
    """Return where a limit is on the axis; None where the axis does not reach it."""
    for place, row in enumerate(found):
        if row.low is not None and row.high is not None and row.low <= at < row.high:
            return round(100 * (place + (at - row.low) / (row.high - row.low)) / len(found), 3)
    return None
