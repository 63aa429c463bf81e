"""The progress of changes, pool by pool and wave by wave, and what would resume a halted one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from reconciler.model.plan import Plan, RolloutPlan, Wave, WaveState
from reconciler.model.units import format_duration
from reconciler.render.drift import OWN
from reconciler.render.markdown import MarkdownWriter
from reconciler.render.tables import table
from reconciler.render.text import NodeNames, clock, count, fold, plain, value
from reconciler.render.timeline import UNSAID, is_relative, span

_HEAD = ("wave", "nodes", "state", "expected (UTC)", "waits for")
_HEAD_FROM_T = ("wave", "nodes", "state", "expected", "waits for")
SHOWN = 8  # paths that change; the document has all


def verdict(plan: Plan) -> str:
    """Return the sentence that a reader must not miss; "" = there is none."""
    halted = [rollout.pool for rollout in plan.rollouts if rollout.halted]
    return f"the rollout of pool {fold(halted)} is HALTED" if halted else ""


def human(plan: Plan) -> list[str]:
    lines = ["", "Rollouts, wave by wave:"] if plan.rollouts else []
    cells = [
        (at, f"{fold(nodes)} ({len(nodes)})", *others)
        for rollout in plan.rollouts
        for at, nodes, *others in rows(rollout, plan.created_at)
    ]
    waves = table(_HEAD, cells, indent="    ")
    head = waves.pop(0)
    for rollout in plan.rollouts:
        lines.append(f"  {title(rollout)}")
        lines += [f"    {plain(line, 1000)}" for line in changes(rollout)]
        lines += [head, *waves[: len(rollout.waves)]]
        del waves[: len(rollout.waves)]
        lines += [f"    {plain(line, 1000)}" for line in notes(rollout)]
    return lines


def write(writer: MarkdownWriter, plan: Plan) -> None:
    """The same for a comment."""
    relative = is_relative(plan)
    for rollout in plan.rollouts[: writer.level.rows]:
        writer.paragraph(title(rollout), bold=True)
        writer.bullet_list(changes(rollout))
        writer.table(
            _HEAD_FROM_T if relative else _HEAD,
            [
                (at, NodeNames(nodes), state, when, why)
                for at, nodes, state, when, why in rows(rollout, plan.created_at, relative=relative)
            ],
        )
        writer.quoted_list(line.removeprefix("- ") for line in notes(rollout))
    writer.left_out(len(plan.rollouts) - writer.level.rows, "rollout")


def title(rollout: RolloutPlan) -> str:
    what = "rollback" if rollout.rollback else "rollout"
    nodes = count(sum(len(wave.nodes) for wave in rollout.waves), "node")
    begun = "the next apply begins it" if rollout.started_at is None else f"begun {clock(rollout.started_at)}"
    bake = f"a wave bakes for {format_duration(rollout.bake_s)}" if rollout.bake_s else "nothing bakes"
    return f"{what} in pool {rollout.pool}, {nodes}: {begun}; {bake}"


def changes(rollout: RolloutPlan) -> list[str]:
    """Return the new values by path. Values that differ from node to node are only counted."""
    lines = []
    paths = [path for path in rollout.changes if path not in OWN] or list(rollout.changes)
    for path in paths[:SHOWN]:
        values = rollout.changes[path]
        told = " or ".join(map(value, values)) if len(values) <= 3 else f"{len(values)} different values"
        lines.append(f"{path} -> {told}")
    return lines + ([f"and {len(paths) - SHOWN} more"] if len(paths) > SHOWN else [])


def rows(
    rollout: RolloutPlan, made: datetime, *, relative: bool = False
) -> Iterator[tuple[str, tuple[str, ...], str, str, str]]:
    for at, wave in enumerate(rollout.waves, 1):
        # Of the others the state says what they wait for: an earlier wave, time, or a person.
        why = wave.detail if wave.state is WaveState.OPEN else ""
        yield (
            f"{at} of {len(rollout.waves)}",
            wave.nodes,
            wave.state.value,
            _expected(wave, made, relative=relative),
            why,
        )


def _expected(wave: Wave, made: datetime, *, relative: bool) -> str:
    if wave.state is WaveState.HALTED:
        return UNSAID
    return "" if wave.state is WaveState.DONE else span(wave.start, wave.end, made, relative=relative) or UNSAID


def notes(rollout: RolloutPlan) -> Iterator[str]:
    if rollout.halted:
        yield f"HALTED: {rollout.halted}"
        yield "what would resume it:"
        yield from (f"- {way}" for way in rollout.resume)
    elif rollout.failed:
        yield f"failed, as it may: {fold(rollout.failed)}"
    if rollout.left_out:
        named = f"{fold(rollout.left_out)} ({len(rollout.left_out)})"
        yield f"left out: {named}: held, quarantined, retired, gone from the spec, or ill beyond repair"
    if rollout.supersedes:
        yield f"takes the place of rollout {rollout.supersedes[:12]}, which was not through"
