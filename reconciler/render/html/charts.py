"""Charts as rectangles in percent of their frame: they scale from a phone to a wall display, and text keeps its size.

A table beside each chart says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.units import format_duration
from reconciler.render import rollouts, timeline
from reconciler.render.html.material import Material
from reconciler.render.text import NodeNames, count, disruption, plain

ROWS: Final = 24  # rows of a schedule; with more nodes their number at work is drawn
_TICKS: Final = 5
_STEPS: Final = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 30 * 86400)
_BUCKETS: Final = 60
_NAMES: Final = 60


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled stretch of time. `node`: the node on the map that it links to; "" = none."""

    label: str
    nodes: str
    state: str
    when: str
    bar: Rect | None
    node: str = ""


@dataclass(frozen=True, slots=True)
class Gantt:
    ticks: list[Tick]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Panel:
    """Columns over time. `top`: the value of a column of full height."""

    title: str
    top: str
    ticks: list[Tick]
    columns: list[Rect]


class _Axis:
    """A time axis from the first of these instants to the last, at least a minute long."""

    def __init__(self, instants: Iterable[datetime]) -> None:
        found = sorted(instants)
        self.start, self.end = found[0], max(found[-1], found[0] + timedelta(minutes=1))
        self._length = (self.end - self.start).total_seconds()

    def at(self, when: datetime) -> float:
        return round(100 * (when - self.start).total_seconds() / self._length, 3)

    def bar(self, start: datetime, end: datetime, kind: str, title: str) -> Rect:
        x = self.at(max(start, self.start))
        return Rect(x, 15, max(self.at(min(end, self.end)) - x, 0.4), 70, kind, title)

    def ticks(self) -> list[Tick]:
        step = next((each for each in _STEPS if self._length / each <= _TICKS), _STEPS[-1])
        first = self.start.timestamp() // step * step + step
        found, at = list[Tick](), datetime.fromtimestamp(first, UTC)
        while at < self.end:
            form = "%m-%d" if step >= 86400 else "%H:%M" if at.date() == self.start.date() else "%d %H:%M"
            found.append(Tick(self.at(at), f"{at:{form}}"))
            at += timedelta(seconds=step)
        return found


# --- what is to come -------------------------------------------------------------------------------------------------


def waves(material: Material) -> list[Gantt]:
    """Return a chart of the waves of each rollout, all on one axis."""
    plan = material.plan
    ends = [at for each in plan.rollouts for wave in each.waves for at in (wave.start, wave.end) if at is not None]
    axis = _Axis([plan.created_at, *ends])
    found = []
    for rollout in plan.rollouts:
        rows = []
        for wave, (at, nodes, state, when, _why) in zip(
            rollout.waves, rollouts.rows(rollout, plan.created_at), strict=True
        ):
            start = wave.start or (plan.created_at if wave.end is not None else None)
            bar = None if start is None or wave.end is None else axis.bar(start, wave.end, state, f"wave {at}: {when}")
            rows.append(Row(f"wave {at}", NodeNames(nodes).within(_NAMES), state, when, bar))
        found.append(Gantt(axis.ticks(), rows))
    return found


def schedule(material: Material) -> Gantt | None:
    """Return a chart of when each node is at work; None without such nodes, or when they are more than ROWS."""
    plan = material.plan
    going = _timed(plan)
    if not going or len(going) > ROWS:
        return None
    axis = _Axis([plan.created_at, *(end for _, _, end in going)])
    rows = []
    for node, start, end in sorted(going, key=lambda each: (each[1], each[2], each[0].node)):
        when = timeline.span(start, end, plan.created_at)
        worst = disruption(node.disruption) if node.disruption else "nothing disrupted"
        bar = axis.bar(start, end, _weight(node), f"{node.node}: {worst}, {when} UTC")
        rows.append(Row(node.node, node.pool, worst, when, bar, node.node))
    return Gantt(axis.ticks(), rows)


def most_at_once(spans: Sequence[tuple[datetime, datetime]], edges: Sequence[datetime]) -> list[int]:
    """Return the most spans at one moment between each two edges. One that ends when another begins is over then."""
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    counts, current, at = [], 0, 0
    for _, finish in pairwise(edges):
        most = current
        while at < len(steps) and (steps[at][0] < finish or finish == edges[-1]):
            current += steps[at][1]
            at += 1
            most = max(most, current)
        counts.append(most)
    return counts


def at_work(material: Material) -> Panel | None:
    """Return how many nodes are at work at once, over time; None when `schedule` shows each of them."""
    plan = material.plan
    going = _timed(plan)
    if len(going) <= ROWS:
        return None
    axis = _Axis([plan.created_at, *(end for _, _, end in going)])
    width = (axis.end - axis.start) / _BUCKETS
    edges = [axis.start + at * width for at in range(_BUCKETS + 1)]
    counts = most_at_once([(start, end) for _, start, end in going], edges)
    labels = [timeline.hour(axis.start + at * width, plan.created_at) for at in range(_BUCKETS)]
    titles = [f"{label} UTC: {count(number, 'node')} at work" for label, number in zip(labels, counts, strict=True)]
    return Panel("Nodes at work at once", f"{max(counts):,}", axis.ticks(), _columns([("work", counts, titles)]))


def _timed(plan: Plan) -> list[tuple[NodePlan, datetime, datetime]]:
    return [
        (node, node.start, node.end)
        for node in plan.nodes.values()
        if node.actions and node.start is not None and node.end is not None
    ]


def _weight(node: NodePlan) -> str:
    return "mild" if node.disruption.label in ("none", "service_restart", "drain") else "heavy"


# --- what was --------------------------------------------------------------------------------------------------------


def over_time(report: PeriodReport) -> list[Panel]:
    """Return the drift that was open at the end of each day or hour, and what appeared and went during it."""
    days = report.days
    if not days:
        return []
    axis = _Axis([days[0].start, days[-1].start + timedelta(seconds=report.bucket_s)])
    form, word = ("%Y-%m-%d", "day") if report.bucket_s >= 86400 else ("%Y-%m-%d %H:%M", "hour")
    names = [f"{day.start:{form}}" for day in days]
    opened, came, went = ([getattr(day, word) for day in days] for word in ("open", "introduced", "removed"))

    def said(values: Sequence[int], word: str) -> list[str]:
        return [f"{name}: {number:,} {word}" for name, number in zip(names, values, strict=True)]

    def top(values: Sequence[int]) -> str:
        return f"{max(values):,}"

    still = [("open", opened, said(opened, "open"))]
    pair = [("introduced", came, said(came, "introduced")), ("removed", went, said(went, "removed"))]
    return [
        Panel(f"Drift open at the end of each {word}", top(opened), axis.ticks(), _columns(still)),
        Panel(f"Introduced and removed, each {word}", top([*came, *went]), axis.ticks(), _columns(pair)),
    ]


def recoveries(report: PeriodReport, most: int) -> list[Row]:
    """Return how long nodes were out of service, the longest first."""
    longest = max([each.seconds for each in report.recoveries], default=0) or 1
    rows = []
    for each in report.recoveries[:most]:
        took = format_duration(each.seconds)
        state = "still out" if each.until is None else "back"
        title = f"{each.node}: {took}"
        bar = Rect(
            0, 15, max(100 * each.seconds / longest, 0.4), 70, "open" if each.until is None else "removed", title
        )
        rows.append(Row(each.node, plain(each.cause, 300), state, took, bar, each.node))
    return rows


def _columns(series: Sequence[tuple[str, Sequence[int], Sequence[str]]]) -> list[Rect]:
    """Return columns, side by side for several series. Every number but 0 is high enough to be seen."""
    top = max([number for _, numbers, _ in series for number in numbers], default=0) or 1
    found = []
    for at, (kind, numbers, titles) in enumerate(series):
        slot = 100 / len(numbers)
        width = slot * 0.8 / len(series)
        for place, (number, title) in enumerate(zip(numbers, titles, strict=True)):
            height = max(100 * number / top, 1.5) if number else 0
            x = place * slot + slot * 0.1 + at * width
            found.append(Rect(round(x, 3), round(100 - height, 2), round(width, 3), round(height, 2), kind, title))
    return found
