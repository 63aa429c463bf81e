"""The outcome of an apply as text: done, failed, not started, and the command that continues."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.model.report import ActionEnd, ApplyOutcome
from reconciler.model.units import format_duration
from reconciler.render.headline import Headline, Verdict
from reconciler.render.markdown import Cell, MarkdownWriter
from reconciler.render.tables import table
from reconciler.render.text import NodeNames, clock, count, fold, page, plain, source, stop, warnings

# What needs a person first.
_STATES = {
    "crashed": "internal error",
    "failed": "failed",
    "stale": "stale",
    "parked": "parked",
    "not_started": "not started",
    "postponed": "waiting",
    "done": "done",
    "converged": "nothing to do",
}


def verdict(outcome: ApplyOutcome) -> str:
    spent = format_duration((outcome.ended_at - outcome.started_at).total_seconds())
    head = "interrupted, everything in flight is journaled: " if outcome.interrupted else ""
    return f"{head}{ends(outcome)}; {count(len(outcome.actions), 'action')} in {spent}"


def ends(outcome: ApplyOutcome, *, idle: bool = True) -> str:
    """Count the nodes by how they ended. Without `idle`, leave out those that needed nothing."""
    states = [end.state for end in outcome.nodes.values()]
    found = [state for state in _STATES if state in states and (idle or state != "converged")]
    return ", ".join(f"{states.count(state)} {_STATES[state]}" for state in found) or "no node selected"


def _groups(outcome: ApplyOutcome) -> Mapping[str, dict[str, list[str]]]:
    """Group nodes by state and detail, worst state first."""
    groups: dict[str, dict[str, list[str]]] = {state: {} for state in _STATES}
    for node, end in outcome.nodes.items():
        groups[end.state].setdefault(end.detail, []).append(node)
    return groups


def human(outcome: ApplyOutcome) -> str:
    lines = [
        f"Apply {outcome.run} of fleet {outcome.fleet}: {verdict(outcome)}",
        *(f"  {line}" for line in stop(outcome.stopped, outcome.braked)),
        f"  spec {source(outcome.source)}; plan {outcome.plan}",
        *(f"  {line}" for line in warnings(outcome.insecure, outcome.time_scale)),
        *(f"  {line}" for line in _halted(outcome)),
        "",
    ]
    rows = [
        (_STATES[state] if at == 0 else "", f"{fold(nodes)} ({len(nodes)})", plain(detail, 400))
        for state, details in _groups(outcome).items()
        for at, (detail, nodes) in enumerate(details.items())
    ]
    lines += table(("", "nodes", "why"), rows)[1:]
    lines += [f"  release {one.name}: {_STATES[one.state]}: {plain(one.detail, 400)}" for one in outcome.releases]
    lines += [f"  abandoned: {plain(mark, 300)}" for mark in outcome.abandoned]
    advice = [f"Next: {sentence}" for sentence in _advice(outcome)]
    lines += ["", *advice] if advice else []
    return page(lines)


def _halted(outcome: ApplyOutcome) -> list[str]:
    lines = []
    for rollout in outcome.rollouts:
        if rollout.halted:
            lines += [f"HALTED: {plain(rollout.halted, 600)}", "To go on:"]
            lines += [f"  {plain(way, 300)}" for way in rollout.resume]
    return lines


def _advice(outcome: ApplyOutcome) -> list[str]:
    """Return the commands to type now, most urgent first."""
    if outcome.interrupted:
        return ["run `reconciler apply` again; it continues where this run was interrupted."]
    first: dict[str, str] = {}
    for name, end in outcome.nodes.items():
        first.setdefault(end.state, name)
    advice = []
    if "crashed" in first:
        advice.append("an internal error is a bug of the reconciler: report it with the traceback from the log.")
    if node := first.get("failed"):
        advice.append(f"`reconciler explain {node}` and `reconciler history {node}` tell why it failed.")
    if outcome.incomplete:
        advice.append("`reconciler doctor` says what to do about sources that do not answer.")
    if outcome.stopped:
        advice.append("`reconciler resume` lifts the stop; `reconciler apply` then continues where this run ended.")
    elif outcome.braked:
        advice.append(
            "find what those nodes have in common; when they are well, or the cause is known: `reconciler resume`."
        )
    elif "stale" in first:
        advice.append("stale nodes need more than was approved: `reconciler plan --out FILE` makes a new plan.")
    elif outcome.changes and not first.keys() & {"failed", "crashed"} and not _halted(outcome):
        then = f" from {clock(outcome.next_at)} on" if outcome.next_at is not None and not outcome.actions else ""
        advice.append(f"run `reconciler apply` again{then}; it continues where this run ended.")
    return advice


def headline(outcome: ApplyOutcome) -> Headline:
    states = {end.state for end in outcome.nodes.values()}
    bad = outcome.interrupted or bool(_halted(outcome)) or bool(states & {"failed", "stale", "crashed"})
    sign = "🔴" if bad else "🔶" if outcome.changes or "not_started" in states else "✅"
    idle = "nothing was done, " if bad and not outcome.actions else ""
    interrupted = "interrupted, " if outcome.interrupted else ""
    return Headline(sign, interrupted + idle + ends(outcome), Verdict.BAD if bad else Verdict.GOOD)


def write(writer: MarkdownWriter, outcome: ApplyOutcome) -> None:
    """The same for a comment."""
    said = verdict(outcome)
    writer.paragraph(said[:1].upper() + said[1:] + ".", bold=True)
    writer.quoted_list([*stop(outcome.stopped, outcome.braked), *warnings(outcome.insecure, outcome.time_scale)])
    writer.quoted_list(_halted(outcome), "CAUTION")
    rows = [
        (_STATES[state], NodeNames(tuple(nodes)), detail)
        for state, details in _groups(outcome).items()
        for detail, nodes in details.items()
    ]
    writer.table(("state", "nodes", "why"), rows)
    if outcome.abandoned:
        writer.heading("Marks of ours that may not be lifted")
        writer.bullet_list(outcome.abandoned)
    if outcome.actions and writer.level.all:
        with writer.details(f"What was done: {count(len(outcome.actions), 'action')}"):
            writer.table(("action", "outcome", "nodes", "took"), _done(outcome))
    writer.quoted_list(_advice(outcome))
    writer.footnote(
        (
            f"run {outcome.run}",
            f"plan {outcome.plan}",
            f"spec {source(outcome.source)}",
            f"{clock(outcome.started_at)} to {clock(outcome.ended_at)}",
        )
    )


def _done(outcome: ApplyOutcome) -> list[tuple[Cell, ...]]:
    """Return the actions in the order in which each first ran; failures are rows of their own."""
    groups: dict[tuple[str, str], list[ActionEnd]] = {}
    for end in outcome.actions:
        groups.setdefault((end.action, end.outcome), []).append(end)
    rows: list[tuple[Cell, ...]] = []
    for (action, came), ends in groups.items():
        times = sorted(end.seconds for end in ends)
        took = dict.fromkeys(map(format_duration, (times[0], times[-1])))
        rows.append((action, came, NodeNames(tuple(dict.fromkeys(end.node for end in ends))), " to ".join(took)))
    return rows
