"""Distributions of what the gate measured, by test and metric: with the bars drawn, and the nodes that stand out named.

The values are those of the stored certificates. The gate's own judge says who would be refused today.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.gate.bars import beyond, far_off, histogram, limits_of, unit_of
from reconciler.gate.certificate import TestDigests, by_test, finite, judge_test, tests_changed, tests_digest
from reconciler.gate.cohort import distribution
from reconciler.gate.decline import declines
from reconciler.model.bars import Histogram, Limits
from reconciler.model.desired import Acceptance, Desired, GateTest
from reconciler.model.gate import Certificate, Decline, TestResult, Verdict
from reconciler.model.reference import hardware_of
from reconciler.model.vocab import NodeState
from reconciler.render.bars import Bin, bins, limit_words
from reconciler.render.html.charts import Rect, Tick
from reconciler.render.html.material import Material
from reconciler.render.text import count, plain

FIGURES: Final = 24  # more are read by nobody; those with nodes to name come first
NAMED: Final = 8
_TICKS: Final = 6
_LONG: Final = 160


@dataclass(frozen=True, slots=True)
class Outlier:
    """A node to be named. `why`: the judge's words, or how far it is from its peers."""

    node: str
    value: str
    why: str


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
    outliers: list[Outlier]
    left_out: int


@dataclass(slots=True)
class _Group:
    """Nodes with the same hardware, test and limits. `test`: with the bars of this metric alone."""

    test: GateTest
    metric: str
    hardware: str
    limits: Limits
    version: str
    values: list[tuple[str, float]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)  # by node: by how much it is less than at first

    def judge(self, node: str, result: TestResult) -> None:
        verdict, reasons = judge_test(self.test, result)
        if verdict is Verdict.FAIL:
            words = f"{self.test.name}: {self.metric} "
            self.refused[node] = plain("; ".join(why.removeprefix(words) for why in reasons), _LONG)


def distributions(material: Material) -> tuple[list[Distribution], str]:
    """Return the figures, those with nodes to name first, and a sentence on what they leave out."""
    groups, unmeasured = _Groups(), 0
    for name in material.plan.nodes:
        desired, record = material.fleet.nodes[name], material.records.get(name)
        if desired.profile.acceptance is None or desired.state is not NodeState.ACTIVE:
            continue
        certificate = None if record is None else record.certificate
        if certificate is None or certificate.adopted:
            unmeasured += 1
        else:
            groups.add(desired, desired.profile.acceptance, certificate)
    found = sorted(map(_drawn, groups.filled()), key=lambda one: (not one.outliers, one.title, one.peers))
    left = [f"{count(unmeasured, 'node')} without measurements"] if unmeasured else []
    left += [f"{count(len(found) - FIGURES, 'figure')} not shown"] if len(found) > FIGURES else []
    return found[:FIGURES], "; ".join(left)


class _Groups:
    """The groups, each under what its nodes have in common."""

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._known: dict[tuple[str, str, str, str], _Group] = {}  # by profile, since a group's key takes long to make
        self._digests: dict[str, TestDigests] = {}

    def filled(self) -> list[_Group]:
        return [group for group in self._groups.values() if group.values]

    def add(self, desired: Desired, acceptance: Acceptance, certificate: Certificate) -> None:
        digest = desired.profile.digest
        if digest not in self._digests:
            self._digests[digest] = tests_digest(acceptance)
        results, other = by_test(certificate.results), tests_changed(certificate, acceptance, self._digests[digest])
        declined = {(one.test, one.metric): _declined(one) for one in declines(certificate, acceptance)}
        for test in (test for test in acceptance.tests if test.name not in other):
            result = results.get(test.name)
            if result is None or result.tool != test.tool:
                continue
            failed = judge_test(test, result)[0] is Verdict.FAIL
            for metric in dict.fromkeys([bar.metric for bar in test.thresholds]):
                value = finite(result.metrics.get(metric))
                if value is not None:
                    group = self._of(desired, test, metric, result.tool_version)
                    group.values.append((desired.node, value))
                    if (test.name, metric) in declined:
                        group.declined[desired.node] = declined[test.name, metric]
                    if failed:
                        group.judge(desired.node, result)

    def _of(self, desired: Desired, test: GateTest, metric: str, tool_version: str) -> _Group:
        own = desired.profile.digest, test.name, metric, tool_version
        if own not in self._known:
            bars = tuple(bar for bar in test.thresholds if bar.metric == metric)
            version = tool_version if any(bar.cohort is not None for bar in bars) else ""
            limits, hardware = limits_of(bars, version), hardware_of(desired.profile.inventory)
            alike = hardware, test.name, test.tool, repr(sorted(test.args.items())), metric, limits, version
            made = _Group(replace(test, thresholds=bars), metric, hardware, limits, version)
            self._known[own] = self._groups.setdefault(alike, made)
        return self._known[own]


# --- one figure -----------------------------------------------------------------------------------------------------


def _drawn(group: _Group) -> Distribution:
    values = [value for _, value in group.values]
    ends = [at for at, _ in limit_words(group.limits)]
    counted = histogram(values, ends)
    unit = unit_of(group.test.tool, group.metric)
    found = bins(counted)
    refused = [value for node, value in group.values if node in group.refused]
    outliers = _outliers(group, unit)
    figures = distribution(values)
    bars = [f"bar {words}{f' {unit}' if unit else ''}" for _, words in limit_words(group.limits)]
    version = f", with {plain(group.version, 60)}" if group.version else ""
    range_ = f"from {min(values):.6g} to {max(values):.6g}, median {figures.median:.6g}"
    said = f"{count(len(values), 'node')} {range_}; {len(refused):,} refused by today's bars"
    most = f"the highest column is {count(max(row.number for row in found), 'node')}"
    off = [f"{words} is off this axis" for at, words in limit_words(group.limits) if _at(found, at) is None]
    return Distribution(
        f"{group.test.name}: {group.metric}{f' in {unit}' if unit else ''}",
        plain((group.hardware or "hardware not declared") + version, _LONG),
        "; ".join([said, most, *off]),
        _ticks(found),
        list(_columns(found, _counts(counted, refused))),
        [
            Mark(x, text)
            for (at, _), text in zip(limit_words(group.limits), bars, strict=True)
            if (x := _at(found, at)) is not None
        ],
        bars,
        [f"{row.label}: {count(row.number, 'node')}" for row in found if row.number],
        outliers[:NAMED],
        max(0, len(outliers) - NAMED),
    )


def _outliers(group: _Group, unit: str) -> list[Outlier]:
    """Return the nodes that are refused, those far from their peers, then those that declined; the worst first."""
    apart = far_off([value for _, value in group.values], group.limits)
    worst = sorted(group.values, key=lambda pair: pair[1], reverse=group.limits.least is None)
    refused = [Outlier(node, _value(at, unit), _why(group, node, at)) for node, at in worst if node in group.refused]
    rest = [(node, at) for node, at in worst if node not in group.refused]
    far = [Outlier(node, _value(at, unit), why) for node, at in rest if (why := apart(at))]
    gray = [
        Outlier(node, _value(at, unit), group.declined[node])
        for node, at in rest
        if node in group.declined and not apart(at)
    ]
    return [*refused, *far, *gray]


def _declined(one: Decline) -> str:
    first = _value(one.first, one.unit)
    return f"{one.share:.1%} less than the {first} when it first passed, on {one.at:%Y-%m-%d}"


def _why(group: _Group, node: str, value: float) -> str:
    """Say by how much a refused node misses its limit, with the judge's words where peers set it."""
    at, share = beyond(group.limits, value)
    words = f"{share:.1%} {'below' if value < at else 'above'} the bar {at:.6g}"
    return f"{words}: {group.refused[node]}" if "peers" in group.refused[node] else words


def _value(value: float, unit: str) -> str:
    return f"{value:.6g} {unit}".rstrip()


def _counts(counted: Histogram, values: Sequence[float]) -> list[int]:
    """Return how many of some values are in each of the bins that are drawn."""
    counts = [0] * len(counted.counts)
    for value in values:
        counts[bisect_right(counted.edges, value)] += 1
    return counts[0 if counted.counts[0] else 1 : len(counts) if counted.counts[-1] else -1]


def _columns(found: Sequence[Bin], refused: Sequence[int]) -> Iterator[Rect]:
    """Yield a column for each bin, refused nodes below the others. Any node is high enough to be seen."""
    slot, top = 100 / max(len(found), 1), max([row.number for row in found], default=1)
    for at, (row, bad) in enumerate(zip(found, refused, strict=True)):
        lower = max(100 * bad / top, 2.0) if bad else 0.0
        upper = max(100 * (row.number - bad) / top, 2.0) if row.number > bad else 0.0
        upper = min(upper, 100 - lower)
        x, width = round(at * slot + slot * 0.04, 3), round(slot * 0.92, 3)
        if upper:
            title = f"{row.label}: {count(row.number - bad, 'node')}"
            yield Rect(x, round(100 - lower - upper, 2), width, round(upper, 2), "passes", title)
        if lower:
            yield Rect(x, round(100 - lower, 2), width, round(lower, 2), "refused", f"{row.label}: {bad:,} refused")


def _ticks(found: Sequence[Bin]) -> list[Tick]:
    slot, every = 100 / max(len(found), 1), -(-len(found) // _TICKS) or 1
    return [
        Tick(round(at * slot, 3), row.label if row.low is None else f"{row.low:.12g}")
        for at, row in enumerate(found)
        if at % every == 0
    ]


def _at(found: Sequence[Bin], at: float) -> float | None:
    """Return where a limit is on the axis; None where the axis does not reach it."""
    for place, row in enumerate(found):
        if row.low is not None and row.high is not None and row.low <= at < row.high:
            return round(100 * (place + (at - row.low) / (row.high - row.low)) / len(found), 3)
    return None
