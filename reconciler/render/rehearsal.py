"""A rehearsal as text: violations first; then how long it takes, how many are out, what fails, and whether it halts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from reconciler.model.rehearsal import PeakOut, Rehearsal, RehearsedRun
from reconciler.model.units import format_duration
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import clock, count, markdown, page, plain, source, warnings

SHOWN = 12  # limits, in order of how close they came to being used up
Row = tuple[str, ...]
_WELL, _NOTHING = "every node ends as specified", "nothing to do"


def verdict(found: Rehearsal) -> str:
    if found.broken:
        return f"{count(len(found.broken), 'invariant')} broken: this is a bug of the reconciler, do not apply"
    if found.refused:
        return "refused by a guard: nothing would be done at all"
    if not found.runs:
        return "nothing may start" if found.left else _NOTHING
    if found.halted:
        pools = ", ".join(sorted({halt.pool for halt in found.halted}))
        return f"the rollout halts: {pools}"
    if not any(run.actions for run in found.runs):
        return "nothing may start"
    if any(run.failed or run.not_reached for run in found.runs):
        return "it ends with nodes that are not as specified"
    return _WELL


def human(found: Rehearsal) -> str:
    lines = [
        f"Rehearsal of fleet {found.fleet}: {verdict(found)}",
        f"  spec {source(found.source)}" + (f"; changed from {source(found.base)}" if found.base else ""),
        f"  from {_seen(found)}; {found.scope.selected} of {found.scope.total} nodes, "
        f"{count(found.nodes_with_changes, 'node')} to change",
        *(f"  {line}" for line in warnings(found.insecure, 1.0)),
        *(f"  refused: {plain(line, 400)}" for line in found.refused),
        *(f"  {line}" for line in _odds(found)),
        "",
    ]
    for head, rows in _tables(found, lambda text: plain(text, 400)):
        lines += [*table(head, rows), ""]
    lines += [f"Supposed: {plain(line, 400)}" for line in found.supposed]
    return page(lines)


def as_markdown(found: Rehearsal) -> str:
    sign = "🔴" if found.broken else "✅" if verdict(found) in (_WELL, _NOTHING) else "🔶"
    lines = [
        f"## {sign} Rehearsal of fleet {markdown(found.fleet)}", "", f"**{markdown(verdict(found), 400)}**", "",
        *(f"> {markdown(line, 400)}\n" for line in warnings(found.insecure, 1.0)),
        *(f"- refused: {markdown(line, 400)}" for line in found.refused),
        *(f"- {markdown(line, 400)}" for line in _odds(found)), "",
    ]  # fmt: skip
    for head, rows in _tables(found, lambda text: markdown(text, 400)):
        lines += [*markdown_table(head, rows), ""]
    lines += [f"<sub>{markdown(line, 400)}</sub>\\" for line in (*found.supposed, _seen(found))]
    return page(lines)


def _seen(found: Rehearsal) -> str:
    where = f"the observation in {found.seen_in}" if found.seen_in else "the nodes as read now"
    return f"{where}, of {clock(found.seen_at)}"


def _odds(found: Rehearsal) -> Iterator[str]:
    """Over all runs."""
    if not found.runs or found.p50_s is None or found.p90_s is None:
        return
    seeds = [run.seed for run in found.runs]
    told = f"{count(len(seeds), 'run')}, seed {seeds[0]}" + (f" to {seeds[-1]}" if len(seeds) > 1 else "")
    if found.failure_rates:
        rates = ", ".join(
            f"{'each action' if action == '*' else action} {rate:.3g}" for action, rate in found.failure_rates.items()
        )
        told += f"; fails on a share of the nodes: {rates}"
    yield told
    if len(seeds) > 1:
        yield f"duration: {format_duration(found.p50_s)} in half of the runs, {format_duration(found.p90_s)} in 9 of 10"
    else:
        yield f"duration: {format_duration(found.p50_s)}, in this one run"
    for name, number in (("converged", _converged), ("failed", _failed), ("not reached", _left)):
        values = sorted(map(number, found.runs))
        spread = f" ({values[0]} to {values[-1]})" if values[0] != values[-1] else ""
        yield f"nodes {name}: {round(median(values))}{spread}"
    yield f"most nodes out at once: {max(run.peak_out for run in found.runs)}"


def _converged(run: RehearsedRun) -> int:
    return run.converged


def _failed(run: RehearsedRun) -> int:
    return run.failed


def _left(run: RehearsedRun) -> int:
    return run.not_reached


def _tables(found: Rehearsal, safe: Callable[[str], str]) -> Iterator[tuple[Row, Sequence[Row]]]:
    broken = [(one.invariant, safe(one.node), safe(one.evidence), str(one.seed)) for one in found.broken[:SHOWN]]
    yield from _unless_empty(("broken", "node", "evidence", "seed"), broken)
    total = len(found.runs)
    halted = [(safe(one.pool), str(one.wave), f"{one.runs} of {total}", safe(one.why)) for one in found.halted]
    yield from _unless_empty(("halted pool", "wave", "runs", "why"), halted)
    waves = [
        (
            safe(wave.pool), str(wave.number), str(wave.nodes), _after(wave.start_s), _after(wave.end_s),
            f"{wave.finished} of {total}",
        )
        for wave in found.waves
    ]  # fmt: skip
    yield from _unless_empty(("pool", "wave", "nodes", "starts", "ends", "done in runs"), waves)
    limits = [(safe(one.scope), f"{one.peak} of {one.limit}", str(one.at_start)) for one in _tightest(found.limits)]
    yield from _unless_empty(("limit", "most out", "at the start"), limits)
    failed = [(safe(action or "-"), str(nodes)) for action, nodes in _failures(found.runs)]
    yield from _unless_empty(("failed in", "nodes, over all runs"), failed)
    left = [(str(nodes), safe(why)) for why, nodes in found.left.items()]
    yield from _unless_empty(("nodes", "not as specified" + (", in the first run" if total > 1 else "")), left)


def _unless_empty(head: Row, rows: Sequence[Row]) -> Iterator[tuple[Row, Sequence[Row]]]:
    if rows:
        yield head, rows


def _after(seconds: float | None) -> str:
    return "-" if seconds is None else f"after {format_duration(seconds)}"


def _tightest(limits: Sequence[PeakOut]) -> list[PeakOut]:
    return sorted(limits, key=lambda one: (one.peak - one.limit, one.peak), reverse=True)[:SHOWN]


def _failures(runs: Sequence[RehearsedRun]) -> list[tuple[str, int]]:
    total: dict[str, int] = {}
    for run in runs:
        for action, nodes in run.failed_in.items():
            total[action] = total.get(action, 0) + nodes
    return sorted(total.items(), key=lambda pair: -pair[1])
