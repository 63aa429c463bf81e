"""Charts as rectangles in percent of their frame, so that they fit a phone and a wall, and their words keep their size.

Each is drawn beside a table that says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.units import format_duration
from reconciler.render import rollouts, timeline
from reconciler.render.html.material import Material
from reconciler.render.text import Names, count, disruption, plain

ROWS: Final = 24  # turns told one by one
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
    """A stretch of time, and what it is. `node`: whom it leads to on the map."""

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
    """Columns over time. `top`: what a column of full height stands for."""

    title: str
    top: str
    ticks: list[Tick]
    columns: list[Rect]


class _Axis:
    """From the first of these instants to the last."""

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
    """Of each rollout, all on one axis."""
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
            rows.append(Row(f"wave {at}", Names(nodes).within(_NAMES), state, when, bar))
        found.append(Gantt(axis.ticks(), rows))
    return found


def turns(material: Material) -> Gantt | None:
    """When each node is at work, where these are few."""
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


def at_work(material: Material) -> Panel | None:
    """How many nodes are at work at once, where they are too many to be told one by one."""
    plan = material.plan
    going = _timed(plan)
    if len(going) <= ROWS:
        return None
    axis = _Axis([plan.created_at, *(end for _, _, end in going)])
    width = (axis.end - axis.start) / _BUCKETS
    counts = []
    for at in range(_BUCKETS):
        begin, finish = axis.start + at * width, axis.start + (at + 1) * width
        counts.append(sum(start < finish and end > begin for _, start, end in going))
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
    return "mild" if node.disruption.label in ("none", "restart", "drain") else "heavy"


# --- what was --------------------------------------------------------------------------------------------------------


def over_time(chronicle: PeriodReport) -> list[Panel]:
    """Drift that there was at the end of each stretch, and what came and went in it."""
    days = chronicle.days
    if not days:
        return []
    axis = _Axis([days[0].start, days[-1].start + timedelta(seconds=chronicle.bucket_s)])
    form, word = ("%Y-%m-%d", "day") if chronicle.bucket_s >= 86400 else ("%Y-%m-%d %H:%M", "hour")
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


def recoveries(chronicle: PeriodReport, most: int) -> list[Row]:
    """How long nodes were out of service, the longest first."""
    longest = max([each.seconds for each in chronicle.recoveries], default=0) or 1
    rows = []
    for each in chronicle.recoveries[:most]:
        took = format_duration(each.seconds)
        state = "still out" if each.until is None else "back"
        title = f"{each.node}: {took}"
        bar = Rect(
            0, 15, max(100 * each.seconds / longest, 0.4), 70, "open" if each.until is None else "removed", title
        )
        rows.append(Row(each.node, plain(each.cause, 300), state, took, bar, each.node))
    return rows


def _columns(series: Sequence[tuple[str, Sequence[int], Sequence[str]]]) -> list[Rect]:
    """Side by side where there are several; a number that is not 0 can be seen."""
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
