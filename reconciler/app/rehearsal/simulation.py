"""The simulation of a rollout: the real planner, scheduler and executor run against a lab under virtual time.

No node is contacted and nothing is written. The lab is seeded from an observation; the ledger is a copy in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from statistics import median

from reconciler import __version__
from reconciler.app.rehearsal.inputs import RehearsalInput
from reconciler.app.rehearsal.processes import simulate_all
from reconciler.app.rehearsal.run import REASONS_SHOWN, RunResult, why_left
from reconciler.converge.run import Ended, NodeResult
from reconciler.model.observed import Silent
from reconciler.model.plan import Plan
from reconciler.model.rehearsal import (
    REHEARSAL_FORMAT,
    PeakOut,
    Rehearsal,
    RehearsedHalt,
    RehearsedWave,
)
from reconciler.model.vocab import UnknownReason


def rehearse(
    inputs: RehearsalInput,
    seeds: Sequence[int],
    starting: Callable[[int], None],
    jobs: int = 1,
    play: Callable[[Sequence[int]], Sequence[RunResult]] | None = None,
) -> Rehearsal:
    """Simulate one run for each seed, `jobs` of them at once. `starting` gets the number of each run, from 1.

    `play`: returns the results of all seeds, in place of this process and its children.
    """
    refused = inputs.plan.refused
    due = () if refused or not inputs.plan.changes else seeds
    results = list(simulate_all(inputs, due, starting, jobs)) if play is None or not due else play(due)
    runs = tuple(result.run for result in results)
    seconds = sorted(run.seconds for run in runs)
    return Rehearsal(
        format_version=REHEARSAL_FORMAT,
        tool_version=__version__,
        fleet=inputs.fleet.settings.fleet,
        source=inputs.fleet.source,
        base=inputs.base,
        scope=inputs.scope,
        seen_at=inputs.observation.finished_at,
        seen_in=inputs.seen_in,
        starts_at=inputs.starts_at,
        failure_rates=dict(inputs.rates),
        nodes_with_changes=inputs.plan.totals.nodes_with_changes,
        refused=refused,
        runs=runs,
        p50_s=_rank(seconds, 50),
        p90_s=_rank(seconds, 90),
        limits=_limits(results),
        waves=tuple(_waves(inputs.plan, results)),
        halted=_halts(results),
        broken=tuple(broken for result in results for broken in result.broken),
        left=results[0].left if results else _held_back(inputs.plan),
        supposed=tuple(_assumptions(inputs)),
        insecure=inputs.fleet.settings.insecure,
    )


def _held_back(plan: Plan) -> Mapping[str, int]:
    """Return why nothing is planned for nodes that differ from the spec: reason -> number of nodes."""
    blocks = {name: node.blocked for name, node in plan.nodes.items() if node.blocked and not node.changes}
    ends = {name: NodeResult(name, Ended.NOT_STARTED, blocked.detail) for name, blocked in blocks.items()}
    return dict(Counter(why_left(name, end) for name, end in ends.items()).most_common(REASONS_SHOWN))


def _rank(values: Sequence[float], percent: int) -> float | None:
    """Return the percentile of sorted values by nearest rank; None for no values."""
    return values[(percent * len(values) + 99) // 100 - 1] if values else None


def _limits(results: Sequence[RunResult]) -> tuple[PeakOut, ...]:
    found = []
    for lines in zip(*(result.peaks for result in results), strict=True):
        found.append(replace(lines[0], peak=max(line.peak for line in lines)))
    return tuple(found)


def _waves(plan: Plan, results: Sequence[RunResult]) -> Iterator[RehearsedWave]:
    for rollout in plan.rollouts:
        for number, wave in enumerate(rollout.waves, start=1):
            moving = [name for name in wave.nodes if name in plan.nodes and plan.nodes[name].changes]
            if not moving:
                continue
            starts = [
                min(result.began[n] for n in moving if n in result.began)
                for result in results
                if result.began.keys() & moving
            ]
            ends = [max(result.ended[n] for n in moving) for result in results if result.ended.keys() >= set(moving)]
            yield RehearsedWave(
                rollout.pool, number, len(moving),
                start_s=median(starts) if starts else None, end_s=median(ends) if ends else None,
                reached=len(starts), finished=len(ends),
            )  # fmt: skip


def _halts(results: Sequence[RunResult]) -> tuple[RehearsedHalt, ...]:
    found: dict[tuple[str, int], list[str]] = {}
    for result in results:
        for pool, (wave, why) in result.halted.items():
            found.setdefault((pool, wave), []).append(why)
    return tuple(RehearsedHalt(pool, wave, len(whys), whys[0]) for (pool, wave), whys in sorted(found.items()))


def _assumptions(inputs: RehearsalInput) -> Iterator[str]:
    """Yield the sentences that a report lists as assumptions."""
    yield "tests are passed and actions succeed, but for the failure rates; nobody else does anything meanwhile"
    yield "where nodes are left, apply runs again half an hour later, while that helps"
    if inputs.history:
        known = ", ".join(inputs.history)
        yield f"durations as in the ledger's history for {known}; otherwise as typical machines have them"
    else:
        yield "durations as typical machines have them: the ledger has no history yet"
    unseen = [name for name in inputs.plan.nodes if _unseen(inputs, name)]
    if unseen:
        yield (
            f"{len(unseen)} nodes could not be seen in full: what nobody saw is as it was last applied, or as specified"
        )
    age = inputs.starts_at - inputs.observation.finished_at
    if age > timedelta(hours=1):
        yield f"the nodes are as they were seen {round(age.total_seconds() / 3600)} hours ago"


def _unseen(inputs: RehearsalInput, name: str) -> bool:
    """Return whether a source of the node did not answer."""
    seen = inputs.observation.nodes[name]
    readings = (seen.hot, seen.inventory, seen.host, seen.member)
    return any(isinstance(one, Silent) and one.reason is not UnknownReason.NOT_ASKED for one in readings)
