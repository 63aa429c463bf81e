"""What an apply did, as text: done, failed, not started, and the command that continues."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.model.report import ApplyOutcome
from reconciler.model.units import format_duration
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import clock, count, fold, markdown, plain, source, stop, warnings

# What needs a person first.
_STATES = {
    "failed": "failed",
    "stale": "stale",
    "not_started": "not started",
    "postponed": "waiting",
    "done": "done",
    "converged": "nothing to do",
}


def verdict(outcome: ApplyOutcome) -> str:
    states = [end.state for end in outcome.nodes.values()]
    parts = [f"{states.count(state)} {word}" for state, word in _STATES.items() if state in states]
    spent = format_duration((outcome.ended_at - outcome.started_at).total_seconds())
    head = "interrupted, everything in flight is journaled: " if outcome.interrupted else ""
    return f"{head}{', '.join(parts) or 'no node selected'}; {count(len(outcome.actions), 'action')} in {spent}"


def _groups(outcome: ApplyOutcome) -> Mapping[str, dict[str, list[str]]]:
    """State -> detail -> nodes, worst state first."""
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
    lines += [f"  abandoned: {plain(mark, 300)}" for mark in outcome.abandoned]
    advice = [f"Next: {sentence}" for sentence in _advice(outcome)]
    lines += ["", *advice] if advice else []
    return "\n".join(lines) + "\n"


def _halted(outcome: ApplyOutcome) -> list[str]:
    lines = []
    for rollout in outcome.rollouts:
        if rollout.halted:
            lines += [f"HALTED: {plain(rollout.halted, 600)}", "To go on:"]
            lines += [f"  {plain(way, 300)}" for way in rollout.resume]
    return lines


def _advice(outcome: ApplyOutcome) -> list[str]:
    """What to type now, worst first."""
    if outcome.interrupted:
        return ["run `reconciler apply` again; it continues where this run was interrupted."]
    first: dict[str, str] = {}
    for name, end in outcome.nodes.items():
        first.setdefault(end.state, name)
    advice = []
    if node := first.get("failed"):
        advice.append(f"`reconciler explain {node}` and `reconciler history {node}` tell why it failed.")
    if outcome.incomplete:
        advice.append("`reconciler doctor` says what to do about what does not answer.")
    if outcome.stopped:
        advice.append("`reconciler resume` lifts the stop; `reconciler apply` then continues where this run ended.")
    elif outcome.braked:
        advice.append(
            "see to what those nodes have in common; when they are well, or all is understood: `reconciler resume`."
        )
    elif "stale" in first:
        advice.append("what is stale needs more than was approved: `reconciler plan --out FILE` plans anew.")
    elif outcome.changes and "failed" not in first and not _halted(outcome):
        then = f" from {clock(outcome.next_at)} on" if outcome.next_at is not None and not outcome.actions else ""
        advice.append(f"run `reconciler apply` again{then}; it continues where this run ended.")
    return advice


def as_markdown(outcome: ApplyOutcome) -> str:
    states = {end.state for end in outcome.nodes.values()}
    sign = "🔴" if "failed" in states else ("🔶" if outcome.changes or states & {"stale", "not_started"} else "✅")
    lines = [f"## {sign} Applied to fleet {markdown(outcome.fleet)}", "", f"**{markdown(verdict(outcome), 400)}**", ""]
    for line in [*stop(outcome.stopped, outcome.braked), *warnings(outcome.insecure, outcome.time_scale)]:
        lines += [f"> {markdown(line, 400)}", ""]
    if halted := _halted(outcome):
        lines += [*(f"> {markdown(line, 600)}\\" for line in halted[:-1]), f"> {markdown(halted[-1], 600)}", ""]
    rows = [
        (_STATES[state], markdown(fold(nodes), 2000), str(len(nodes)), markdown(detail, 400))
        for state, details in _groups(outcome).items()
        for detail, nodes in details.items()
    ]
    lines += [*markdown_table(("state", "nodes", "count", "why"), rows), ""]
    lines.append(f"<sub>run {markdown(outcome.run)} · plan {markdown(outcome.plan)}</sub>")
    return "\n".join(lines) + "\n"
