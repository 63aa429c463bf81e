"""A collective over one rail after another: each has a figure of its own, and the worst counts.

Over all rails at once a slow one hides: NCCL spreads its channels, and the rest makes up for it in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reconciler.gate.tools.common import ResultBuilder, storable
from reconciler.model.desired import GateTest
from reconciler.model.gate import TestResult
from reconciler.model.gate_arguments import RAIL_BY_RAIL, RAILS, listed


def each_rail(test: GateTest) -> Mapping[str, GateTest]:
    """Return the test of each rail by itself; none where all of them are tested at once."""
    if not test.args.get(RAIL_BY_RAIL):
        return {}
    rest = {name: value for name, value in test.args.items() if name != RAIL_BY_RAIL}
    return {rail: replace(test, args={**rest, RAILS: rail}) for rail in listed(test.args[RAILS])}


def by_rail(test: GateTest, results: Mapping[str, TestResult]) -> TestResult:
    """Return one result: METRIC.RAIL of each, METRIC of the worst, METRIC.spread. What one rail lacks has no worst."""
    builder, first = ResultBuilder(), next(iter(results.values()))
    for rail, result in results.items():
        builder.note(result.verdict, [f"{rail}: {reason}" for reason in result.reasons])
    builder.version = first.tool_version
    for rail, result in results.items():
        if result.tool_version not in ("", builder.version):
            builder.unjudged(f"{rail}: version {result.tool_version}, and {builder.version} on {next(iter(results))}")
    for metric in dict.fromkeys([name for result in results.values() for name in result.metrics]):
        found = {rail: one.metrics[metric] for rail, one in results.items() if metric in one.metrics}
        if len(found) == len(results):
            highest = any(bar.metric == metric and bar.min is None and bar.max is not None for bar in test.thresholds)
            builder.parts(metric, found, worst=max if highest else min)
        else:
            builder.metrics |= {f"{metric}.{rail}": value for rail, value in found.items()}
    builder.units = dict(first.units)
    share = 4000 // len(results)
    shown = "\n".join(f"=== {rail}\n{one.evidence[: share - len(rail) - 6]}" for rail, one in results.items())
    return builder.result(test, (), evidence=storable(shown))
