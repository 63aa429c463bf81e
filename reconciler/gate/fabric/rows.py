"""Rows for the ledger from what a search measured: one test of each node that took part, with what its tool printed.

In pairs they look as those of a gate that tests with partners: `gbps.PARTNER.RAIL.there` is what the node sent to a
partner, `back` what came from there, `gbps.PARTNER` the slowest of these, and `gbps` the slowest with a partner that is
good. In groups they have the figures of the last run of the whole group, and those of a smaller one as `busbw.4nodes`:
collectives of fewer nodes are faster, and no peers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from statistics import median

from reconciler.gate.fabric.group_steps import size_of
from reconciler.gate.fabric.measured import METRIC, rails_of
from reconciler.gate.fabric.results import Leg, LoopbackRun, Reading
from reconciler.gate.printed import bounded
from reconciler.gate.results import key_of, measurements
from reconciler.model.desired import Desired, GateTest
from reconciler.model.fabric_report import FabricReport
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.results import LOW_RUNS, RUNS, SEARCH, TestRun


@dataclass(frozen=True, slots=True)
class Searched:
    """The results of a search in pairs. `versions`: of the tool on each node, where it told it.

    `printed`: by node, what the tool printed in one run with each partner, a low one if there was any.
    """

    test: GateTest
    readings: Sequence[Reading]
    loopbacks: Sequence[LoopbackRun]
    versions: Mapping[str, str]
    printed: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Met:
    """The figures of a node by partner, rail and way; by partner, how many runs there were and how many were low."""

    values: defaultdict[tuple[str, ...], list[float]] = field(default_factory=lambda: defaultdict(list))
    runs: Counter[str] = field(default_factory=Counter)
    lows: Counter[str] = field(default_factory=Counter)


def rows_of(
    results: Mapping[str, TestResult], test: GateTest, report: FabricReport, nodes: Mapping[str, Desired], attempt: int
) -> tuple[list[TestRun], Mapping[str, str]]:
    """Return the row of each node that took part, and what its tool printed by digest. The verdict is the report's."""
    rows, outputs = [], {}
    for name in report.nodes:
        verdict, reasons = _verdict(report, name)
        found = results.get(name, TestResult(test.name, test.tool, verdict, (), {}))
        digest = sha256(found.printed.encode()).hexdigest() if found.printed else ""
        if digest:
            outputs[digest] = found.printed
        rows.append(
            TestRun(
                node=name,
                attempt=attempt,
                profile=SEARCH,
                test=test.name,
                tool=test.tool,
                tool_version=found.tool_version,
                verdict=verdict,
                reasons=reasons,
                key=key_of(nodes[name], found, test.args),
                started_at=report.started_at,
                ended_at=report.ended_at,
                output=digest,
                measurements=measurements(found),
            )
        )
    return rows, outputs


def of_pairs(searched: Searched, report: FabricReport) -> Mapping[str, TestResult]:
    """Return what each node measured with its partners. A figure is the median of the runs of a search."""
    test, good, every = searched.test, set(report.good), _by_node(searched)
    found = {}
    for name in dict.fromkeys((*every, *searched.versions)):
        metrics = dict(_metrics(every[name], good, name)) if name in every else {}
        text, version = bounded("".join(searched.printed.get(name, ()))), searched.versions.get(name, "")
        found[name] = TestResult(test.name, test.tool, Verdict.UNJUDGED, (), metrics, version, printed=text)
    return found


def of_groups(test: GateTest, ran: Sequence[tuple[frozenset[str], TestResult]]) -> Mapping[str, TestResult]:
    """Return what each node measured in groups, the last run of each size, and what the first node of these printed."""
    found: dict[str, dict[int, TestResult]] = {}
    for nodes, result in ran:
        text = f"=== {', '.join(sorted(nodes))} together\n{result.printed}" if result.printed else ""
        for name in nodes if result.metrics else ():
            found.setdefault(name, {})[len(nodes)] = replace(result, printed=text)
    return {name: _of_sizes(test, by_size) for name, by_size in found.items()}


def _of_sizes(test: GateTest, by_size: Mapping[int, TestResult]) -> TestResult:
    whole = size_of(test)
    metrics = {
        metric if size == whole else f"{metric}.{size}nodes": value
        for size, result in sorted(by_size.items())
        for metric, value in result.metrics.items()
    }
    last = by_size[max(by_size)]
    text = "".join(one.printed for _, one in sorted(by_size.items()))
    return TestResult(
        test.name, test.tool, Verdict.UNJUDGED, (), metrics, last.tool_version, units=last.units, printed=bounded(text)
    )


def _by_node(searched: Searched) -> Mapping[str, _Met]:
    found: defaultdict[str, _Met] = defaultdict(_Met)
    for reading in searched.readings:
        run = reading.run
        ends = ((run.one, run.other, run.there, run.back), (run.other, run.one, run.back, run.there))
        for node, partner, out, into in ends:
            met, measured = found[node], False
            for way, leg in (("there", out), ("back", into)):
                measured |= _add(met, searched.test, leg, partner, way)
            if measured:
                met.runs[partner] += 1
                met.lows[partner] += bool(reading.there or reading.back)
    for alone in searched.loopbacks:
        _add(found[alone.node], searched.test, Leg(alone.bandwidth), alone.node, "")
    return found


def _add(met: _Met, test: GateTest, leg: Leg, partner: str, way: str) -> bool:
    """Add the figures of one way; return whether there were any."""
    measured = [(rail, value) for rail, value in zip(rails_of(test), leg.bandwidth, strict=False) if value is not None]
    for rail, value in measured:
        met.values[tuple(filter(None, (partner, rail, way)))].append(value)
    return bool(measured)


def _metrics(met: _Met, good: set[str], node: str) -> Iterator[tuple[str, float]]:
    slowest: dict[str, float] = {}
    for (partner, *part), values in met.values.items():
        value = median(values)
        yield ".".join((METRIC, partner, *part)), value
        if partner != node:
            slowest[partner] = min(value, slowest.get(partner, value))
    if deciding := [value for partner, value in slowest.items() if partner in good]:
        yield METRIC, min(deciding)
    yield from ((f"{METRIC}.{partner}", value) for partner, value in slowest.items())
    for name, counts in ((RUNS, met.runs), (LOW_RUNS, met.lows)):
        yield name, float(counts.total())
        yield from ((f"{name}.{partner}", float(count)) for partner, count in counts.items())


def _verdict(report: FabricReport, node: str) -> tuple[Verdict, tuple[str, ...]]:
    """Return what the search says of a node. What nodes share is no node's fault, so it is unjudged for that."""
    if parts := [f"{part} is at fault" for part in report.at_fault if part.name == node]:
        return Verdict.FAIL, tuple(parts)
    if node in report.good:
        return Verdict.PASS, ()
    return Verdict.UNJUDGED, (report.undecided.get(node, "nothing tells"),)
