"""Rows for the ledger from what a search measured: one test of each node that took part, with all of its partners.

They look as those of a gate that tests with partners: `gbps.PARTNER.RAIL.there` is what the node sent to a partner,
`back` what came from there, `gbps.PARTNER` the slowest of these, and `gbps` the slowest with a partner that is good.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from reconciler.gate.fabric.measured import METRIC, rails_of
from reconciler.gate.fabric.results import Leg, LoopbackRun, Reading
from reconciler.gate.results import key_of, measurements
from reconciler.model.desired import Desired, GateTest
from reconciler.model.fabric_report import FabricReport
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.results import SEARCH, TestRun

RUNS, LOW_RUNS = "runs", "low_runs"


@dataclass(frozen=True, slots=True)
class Searched:
    """The results of a search. `versions`: of the tool on each node, where it told it."""

    test: GateTest
    readings: Sequence[Reading]
    loopbacks: Sequence[LoopbackRun]
    versions: Mapping[str, str]


@dataclass(slots=True)
class _Met:
    """The figures of a node by partner, rail and way; by partner, how many runs there were and how many were low."""

    values: defaultdict[tuple[str, ...], list[float]] = field(default_factory=lambda: defaultdict(list))
    runs: Counter[str] = field(default_factory=Counter)
    lows: Counter[str] = field(default_factory=Counter)


def rows_of(searched: Searched, report: FabricReport, nodes: Mapping[str, Desired], attempt: int) -> Iterator[TestRun]:
    """Yield the row of each node that took part. A figure is the median of the runs of a search."""
    met = _by_node(searched)
    for name in report.nodes:
        verdict, reasons = _verdict(report, name)
        version = searched.versions.get(name, "")
        metrics = dict(_metrics(met[name], set(report.good), name)) if name in met else {}
        result = TestResult(searched.test.name, searched.test.tool, verdict, reasons, metrics, version)
        yield TestRun(
            node=name,
            attempt=attempt,
            profile=SEARCH,
            test=result.test,
            tool=result.tool,
            tool_version=version,
            verdict=verdict,
            reasons=reasons,
            key=key_of(nodes[name], result, searched.test.args),
            started_at=report.started_at,
            ended_at=report.ended_at,
            output="",
            measurements=measurements(result),
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
