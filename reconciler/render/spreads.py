"""Spreads of what the gate measured, by test and metric: with the bars of today, and the nodes that stand out named.

The values are those of the stored certificates. The gate's own judge says who would be refused today.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.gate.bars import beyond, far_off, histogram, limits_of, unit_of
from reconciler.gate.certificate import TestDigests, by_test, finite, judge_test, tests_changed, tests_digest
from reconciler.gate.cohort import distribution
from reconciler.gate.decline import declines
from reconciler.model.bars import Histogram, Limits
from reconciler.model.desired import Acceptance, Desired, Fleet, GateTest
from reconciler.model.gate import Certificate, Decline, TestResult, Verdict
from reconciler.model.records import NodeRecord
from reconciler.model.reference import hardware_of
from reconciler.model.spread import Outlier, Spread, SpreadBar, SpreadBin, Spreads
from reconciler.model.vocab import NodeState
from reconciler.render.bars import Bin, bins, limit_words
from reconciler.render.text import count, plain

FIGURES: Final = 24  # more are read by nobody; those with nodes to name come first
NAMED: Final = 8
_LONG: Final = 160


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


def spreads(fleet: Fleet, nodes: Sequence[str], records: Mapping[str, NodeRecord]) -> Spreads:
    """Return the spreads of these nodes' results."""
    groups, unmeasured = _Groups(), 0
    for name in nodes:
        desired, record = fleet.nodes[name], records.get(name)
        if desired.profile.acceptance is None or desired.state is not NodeState.ACTIVE:
            continue
        certificate = None if record is None else record.certificate
        if certificate is None or certificate.adopted:
            unmeasured += 1
        else:
            groups.add(desired, desired.profile.acceptance, certificate)
    found = sorted(map(_spread, groups.filled()), key=lambda one: (not one.outliers, one.title, one.peers))
    left = [f"{count(unmeasured, 'node')} without measurements"] if unmeasured else []
    left += [f"{count(len(found) - FIGURES, 'figure')} not shown"] if len(found) > FIGURES else []
    return Spreads(tuple(found[:FIGURES]), "; ".join(left))


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


def _spread(group: _Group) -> Spread:
    values = [value for _, value in group.values]
    limits = limit_words(group.limits)
    counted = histogram(values, [at for at, _ in limits])
    unit = unit_of(group.test.tool, group.metric)
    found = bins(counted)
    refused = [value for node, value in group.values if node in group.refused]
    outliers = _outliers(group, unit)
    figures = distribution(values)
    bars = tuple(SpreadBar(at, f"{words}{f' {unit}' if unit else ''}") for at, words in limits)
    version = f", with {plain(group.version, 60)}" if group.version else ""
    range_ = f"from {min(values):.6g} to {max(values):.6g}, median {figures.median:.6g}"
    said = f"{count(len(values), 'node')} {range_}; {len(refused):,} refused by today's bars"
    most = f"the highest column is {count(max(row.number for row in found), 'node')}"
    off = [f"bar {one.words} is off this axis" for one in bars if not any(_has(row, one.at) for row in found)]
    bad = _counts(counted, refused)
    return Spread(
        f"{group.test.name}: {group.metric}{f' in {unit}' if unit else ''}",
        plain((group.hardware or "hardware not declared") + version, _LONG),
        unit,
        "; ".join([said, most, *off]),
        tuple(
            SpreadBin(row.label, row.low, row.high, row.number - refused, refused)
            for row, refused in zip(found, bad, strict=True)
        ),
        bars,
        tuple(outliers[:NAMED]),
        max(0, len(outliers) - NAMED),
    )


def _has(row: Bin, at: float) -> bool:
    """Return whether a value is in a bin with two ends, which an axis can show."""
    return row.low is not None and row.high is not None and row.low <= at < row.high


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
