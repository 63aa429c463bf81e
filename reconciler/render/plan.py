"""The plan as text: the verdict, the disruption, who waits and why, then every node's actions with reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.plan import (
    BlockCode,
    BudgetLine,
    Goal,
    NodePlan,
    Plan,
    PlannedAction,
    SpareLine,
    WorkloadCost,
)
from reconciler.model.stakes import shown as shown_pods
from reconciler.model.units import format_duration
from reconciler.model.vocab import Certainty, Disruption
from reconciler.planner.fleet.permit import takes_out, waits
from reconciler.render import offline, releases, rollouts, spec_change, timeline
from reconciler.render.drift import REPORTED_HEAD, reported
from reconciler.render.measured import range_of, range_of_values, wording, wording_of
from reconciler.render.tables import table
from reconciler.render.text import (
    clock,
    count,
    disruption,
    estimate,
    fold,
    incidents,
    page,
    plain,
    source,
    stop,
    value,
    warnings,
)


def verdict(plan: Plan) -> str:
    totals = plan.totals
    if not plan.changes:
        text = "; ".join(["nothing is done" if plan.stopped else "nothing to do", *idle(plan.nodes.values())])
    else:
        text = (
            f"{count(totals.nodes_with_changes, 'node')} to change, {totals.nodes_disrupted:,} of them disrupted"
            f"{_out_at_once(plan)}; {timeline.finish(plan)}; {totals.gpu_hours_out:,g} GPU-hours out of service"
        )
    if plan.incomplete:
        text += f"; {count(len(plan.incomplete), 'node')} could not be read in full"
    text += f"; {halted}" if (halted := rollouts.verdict(plan)) else ""
    if plan.stopped:
        text = f"stopped, {text}" if not plan.changes else f"stopped, nothing begins; {text}"
    elif plan.braked:
        text = f"braked, nothing that disrupts begins; {text}"
    return f"refused, nothing of it will be applied; {text}" if plan.refused else text


def _out_at_once(plan: Plan) -> str:
    """Say how many nodes are out of service at once, and how many of them before anything is done."""
    peak, before = plan.totals.nodes_out_peak, plan.totals.nodes_out_before
    if peak <= before:
        return f", {before:,} out of service already" if before else ""
    return f", at most {peak:,} out of service at once" + (f" ({before:,} already)" if before else "")


def idle(nodes: Iterable[NodePlan]) -> Iterator[str]:
    """Count the nodes that are held back by what holds them: work under way, what is not known, or anything else."""
    codes = Counter(node.blocked.code for node in nodes if node.blocked is not None)
    if under_way := codes.pop(BlockCode.UNDER_WAY, 0):
        yield f"{count(under_way, 'node')} under way"
    if unknown := codes.pop(BlockCode.UNKNOWN, 0):
        yield f"{count(unknown, 'node')} unknown"
    if left := codes.total():
        yield f"{count(left, 'node')} left alone"


def heading(plan: Plan) -> list[str]:
    """Return what the plan is of and what limits it: verdict, spec, ledger, budget, warnings."""
    lines = [
        f"Plan {plan.id} for fleet {plan.fleet}: {verdict(plan)}",
        *(f"  {line}" for line in (*stop(plan.stopped, plan.braked), *isolation(plan))),
        *(f"  REFUSED: {sentence}" for sentence in plan.refused),
        f"  spec {source(plan.source)}",
        f"  made {clock(plan.created_at)}, {timeline.validity(plan)}; "
        f"scope {plan.scope.selected:,} of {count(plan.scope.total, 'node')}; fingerprint {plan.fingerprint[:12]}",
        *(f"  {line}" for line in ledger(plan)),
    ]
    # Warnings about the whole plan come before limits, which may be a hundred lines.
    lines += [f"  {note}" for note in (*offline.sentences(plan), *plan.notes)]
    lines += [f"  {line}" for line in releases.lines(plan.releases)]
    lines += [f"  {line}" for line in (*budget(plan), *spares(plan.spares))]
    return lines + [f"  {line}" for line in warnings(plan.insecure, plan.time_scale)]


def ledger(plan: Plan) -> list[str]:
    """Return which ledger the plan was made with, and of how many nodes it has a certificate."""
    known = plan.ledger
    if known is None:
        return []
    where = {"none": "none yet", "published": "as it was published"}.get(known.kind, known.kind)
    name = plain(known.name, 300)
    place = f"{where} at {name}" if known.kind == "none" and name else f"{where} {name}".rstrip()
    return [f"ledger: {place}, {count(known.certificates, 'certificate')} of {count(known.nodes, 'node')}"]


def isolation(plan: Plan) -> list[str]:
    """Return who is isolated whatever limits say, who is isolated already, and what a person has to decide."""
    lines = []
    for state, of in (("isolated at once, before any limit", "isolation"), ("isolated, not drained yet", "isolated")):
        groups: dict[str, list[str]] = {}
        for node in plan.nodes.values():
            if signals := getattr(node, of):
                groups.setdefault(", ".join(signals), []).append(node.node)
        lines += [f"{state}: {fold(nodes)} ({signals})" for signals, nodes in groups.items()]
    return lines + incidents(plan.incidents)


def spares(found: Iterable[SpareLine]) -> list[str]:
    """Return one line for the spares of each persona: who is kept, who goes into service, and what is missing."""
    lines = []
    for line in found:
        parts = [f"{fold(line.ready)} ready"] if line.ready else ["none ready"]
        parts += [f"{fold(line.preparing)} not ready yet"] if line.preparing else []
        parts += [f"{fold(line.marginal)} not promoted before a new certificate"] if line.marginal else []
        parts += [f"{spare} goes into service" + (f" in place of {of}" if of else "") for spare, of in line.promoted]
        short = line.wanted - len(line.ready) - len(line.preparing) - len(line.failed)
        parts += [f"the next {count(short, 'node')} to be admitted will be kept"] if short > 0 else []
        lines.append(
            f"spares of persona {line.persona}: {line.wanted} of {count(line.total, 'node')}: {'; '.join(parts)}"
        )
    return lines


def budget(plan: Plan) -> list[str]:
    """Return one line for each limit that is in use. The others share lines, since a fleet may have a hundred racks."""
    lines, idle = [], dict[tuple[str, str], list[str]]()
    for line in plan.budget:
        text, when = limit(line)
        if line.out:
            lines.append(f"budget of {line.scope}: {text}; {when}: {out(line)}")
        else:
            idle.setdefault((text, when), []).append(line.scope)
    return lines + [f"budget of {fold(scopes)}: {text}; none {when}" for (text, when), scopes in idle.items()]


def limit(line: BudgetLine) -> tuple[str, str]:
    """Return what a limit allows, and what it counts."""
    per = "" if line.per_s is None else f" per {format_duration(line.per_s)}"
    share = f" ({line.rule.removesuffix(per)})" if "=" in line.rule else ""
    text = f"at most {line.limit} of {count(line.total, 'node')}{share} {'taken ' if per else ''}out of service{per}"
    text += f" for {', '.join(line.reasons)}" if line.reasons else ""
    text += f", {line.during}" if line.during else ""
    text += "" if line.active else " (not now)"
    return text, "in the last" + per.removeprefix(" per") if per else "out now"


def out(line: BudgetLine) -> str:
    """Name the nodes that use up a limit. Under a rate a node counts each time that it was taken out."""
    again = [f"{node} {times} times" for node, times in sorted(Counter(line.out).items()) if times > 1]
    return fold(line.out) + (f" ({', '.join(again)})" if again else "")


def alike(nodes: Iterable[NodePlan]) -> list[list[NodePlan]]:
    """Group nodes with the same actions for the same reasons, so that what the first says is true of all.

    Where they differ in what was measured only, the first says the range.
    """
    groups: dict[tuple[object, ...], list[NodePlan]] = {}
    for node in nodes:
        drift = tuple((item.path, value(item.desired), value(wording_of(item))) for item in shown(node))
        actions = tuple(replace(action, because=tuple(map(wording, action.because))) for action in node.actions)
        key = (node.pool, node.goal, wording(_situation(node)), node.postponed, actions, drift)
        groups.setdefault(key, []).append(node)
    return [[_with_ranges(group), *group[1:]] for group in groups.values()]


def _with_ranges(group: Sequence[NodePlan]) -> NodePlan:
    """Return the first of the group, in the words of all."""
    first = group[0]
    if len(group) == 1:
        return first
    found = [range_of_values([item.observed for item in same]) for same in zip(*map(shown, group), strict=True)]
    told = dict(zip((item.path for item in shown(first)), found, strict=True))
    actions = []
    for same in zip(*(node.actions for node in group), strict=True):
        because = tuple(map(range_of, zip(*(action.because for action in same), strict=True)))
        actions.append(replace(same[0], because=because))
    return replace(
        first,
        situation=range_of([node.situation for node in group]) if _situation(first) else first.situation,
        drift=tuple(replace(i, observed=told[i.path]) if i in shown(first) else i for i in first.drift),
        actions=tuple(actions),
    )


def _situation(node: NodePlan) -> str:
    """Return the situation of a node, where it is not the ordinary one."""
    ordinary = node.goal is Goal.IN_SERVICE and (node.blocked is None or waits(node.blocked))
    return "" if ordinary and not node.illness else node.situation


def shown(node: NodePlan) -> list[DriftItem]:
    own = {"host.hostname", "image.nonce"}
    return [item for item in node.drift if item.kind in ACTIONABLE and item.path not in own]


def human(plan: Plan) -> str:
    lines = heading(plan)
    lines += spec_change.human(plan.change) if plan.change is not None else ()
    red = dangerous(plan)
    if red:
        lines += ["", "Reboots, flashes and reimages:"]
        lines += table(("action", "nodes"), [(name, f"{fold(nodes)} ({len(nodes)})") for name, nodes in red.items()])
    lost = at_stake(plan)
    if lost:
        lines += ["", "Lost with the drains:"]
        lines += table(("what", "pods"), [(what, f"{shown_pods(pods)} ({len(pods)})") for what, pods in lost.items()])
    if plan.workloads:
        lines += ["", "Interrupted by the drains:"]
        lines += table(("workload", "pods evicted", "what follows"), interruptions(plan.workloads))
    if waits := drain_waits(plan):
        lines += ["", "Before they evict, the drains wait:"]
        lines += table(
            ("for what", "nodes"), [(what, f"{fold(nodes)} ({len(nodes)})") for what, nodes in waits.items()]
        )
    lines += rollouts.human(plan)
    groups = alike(node for node in plan.nodes.values() if node.actions)
    if groups:
        lines += ["", "What is done to each, in this order (if needed: decided when what comes before it is done):"]
        # One table, so that columns line up over all nodes; its head stands once.
        steps = table(_HEAD, [row for group in groups for row in _steps(group[0])], indent="  ")
        lines.append(steps.pop(0))
        for group in groups:
            lines += [*_entry(group, plan), *steps[: len(group[0].actions)], ""]
            del steps[: len(group[0].actions)]
        lines.pop()
    waiting = [node for node in plan.nodes.values() if node.blocked is not None]
    if waiting:
        lines += ["", "Held back, and why:"]
        lines += table(HELD, [(fold(names), *others) for names, *others in blocked(waiting, plan)])
    if rows := reported(item for node in plan.nodes.values() for item in node.drift):
        lines += ["", REPORTED, *table(REPORTED_HEAD, [tuple(map(str, row)) for row in rows])]
    return page(lines)


_NUMBER = re.compile(r"\d+")
_HEAD = ("", "action", "disruption", "certainty", "because")
REPORTED = "Reported, and left as it is:"
HELD = ("nodes", "code", "begins (UTC)", "why")


def _entry(group: list[NodePlan], plan: Plan) -> list[str]:
    """Describe what the nodes of a group have in common: the disruption, the time, the trouble."""
    first = group[0]
    names = fold(node.node for node in group) + (f" ({len(group)})" if len(group) > 1 else "")
    each = " each" if len(group) > 1 else ""
    when = timeline.expected(group, plan.created_at)
    lines = [f"{names} [{first.pool}]: {worst(first)}, {estimate(first.actions)}{each}; {when}"]
    if situation := _situation(first):
        lines.append(f"    {plain(situation, 1000)}")
    for item in shown(first):
        lines.append(f"    {item.path}: {value(item.observed)} -> {value(item.desired)}  [{_kind(item, first)}]")
    return lines


def worst(node: NodePlan) -> str:
    if node.disruption:
        return f"up to {disruption(node.disruption)}"
    return "taken out of service" if takes_out(node) else "nothing disrupted"


def _kind(item: DriftItem, node: NodePlan) -> str:
    before = f", last applied {value(item.applied)}" if item.kind is DriftClass.CONFLICT else ""
    wave = ", waits for its wave" if item.path in node.postponed else ""
    way = f"; {plain(item.detail, 200)}" if item.path == "image.version" and item.detail else ""
    return item.kind.value + before + wave + way


def _steps(node: NodePlan) -> list[tuple[str, ...]]:
    said: dict[tuple[str, ...], str] = {(node.situation,): "as said above"}
    return [
        (f"{at}.", a.id, _hurts(a), _sure(a), said.get(a.because) or because(a)) for at, a in enumerate(node.actions, 1)
    ]


def _hurts(action: PlannedAction) -> str:
    return disruption(action.disruption) if action.disruption else "-"


def _sure(action: PlannedAction) -> str:
    return "if needed" if action.certainty is Certainty.PREDICTED else ""


def because(action: PlannedAction) -> str:
    shown = ", ".join(action.because[:3])
    return shown + (f" and {len(action.because) - 3} more" if len(action.because) > 3 else "")


def at_stake(plan: Plan) -> dict[str, list[str]]:
    """Return what the drains of the plan end for good -> the pods."""
    nodes = plan.nodes.values()
    found = {
        "pods that declare no controller": [pod for node in nodes for pod in node.unmanaged_pods],
        "data of pods with local storage": [pod for node in nodes for pod in node.local_pods],
    }
    return {what: pods for what, pods in found.items() if pods}


def interruptions(costs: Iterable[WorkloadCost]) -> list[tuple[str, str, str]]:
    """Return a row for workloads whose names differ in a number alone and that lose as much: a job for each node."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name, pods, follows in map(interrupted, costs):
        alike.setdefault((_NUMBER.sub("0", name), pods, follows), []).append(name)
    return [
        (f"{fold(names)} ({len(names)})", f"{pods} each", follows) if len(names) > 1 else (names[0], pods, follows)
        for (_, pods, follows), names in alike.items()
    ]


def interrupted(cost: WorkloadCost) -> tuple[str, str, str]:
    """Return the workload, how much of it is evicted, and what that does to the rest of it."""
    name = cost.workload + (f" (queue {cost.queue})" if cost.queue else "")
    pods = f"{cost.pods} of {cost.of_pods}, on {cost.nodes} {'node' if cost.nodes == 1 else 'nodes'}"
    if cost.of_replicas:
        whole = f"{cost.replicas} of {cost.of_replicas} replicas restart whole, the others serve on"
        return name, pods, whole if cost.replicas < cost.of_replicas else "every replica restarts"
    return name, pods, "all of its pods depend on each other: the whole is interrupted"


def drain_waits(plan: Plan) -> dict[str, list[str]]:
    """Return what the drains of the plan give the work time for -> nodes."""
    found: dict[str, list[str]] = {}
    for node in plan.nodes.values():
        for what in node.drain_waits:
            found.setdefault(what, []).append(node.node)
    return found


def dangerous(plan: Plan) -> dict[str, list[str]]:
    """Return action -> nodes, for all actions that reboot, power cycle, flash or reimage."""
    found: dict[str, list[str]] = {}
    for node in plan.nodes.values():
        for action in node.actions:
            if action.disruption >= Disruption.REBOOT:
                sure = " (if needed)" if action.certainty is Certainty.PREDICTED else ""
                nodes = found.setdefault(action.id + sure, [])
                if node.node not in nodes[-1:]:  # it may reboot twice
                    nodes.append(node.node)
    return dict(sorted(found.items()))


def blocked(nodes: Iterable[NodePlan], plan: Plan) -> Iterator[tuple[list[str], str, str, str]]:
    """Return rows of nodes that wait for the same: nodes, code, expected begin, reason and end.

    Pauses after failures differ by node: the row has the first that ends.
    """
    groups: dict[tuple[str, str], list[NodePlan]] = {}
    for node in nodes:
        assert node.blocked is not None
        detail = wording(node.blocked.detail) if node.illness else node.blocked.detail
        groups.setdefault((node.blocked.code.value, detail), []).append(node)
    for (code, _), alike in groups.items():
        detail = range_of([node.blocked.detail for node in alike if node.blocked is not None])
        ends = sorted({node.blocked.until for node in alike if node.blocked is not None and node.blocked.until})
        told = not ends or code == BlockCode.HELD.value  # a hold says itself until when
        until = "" if told else f" (until {clock(ends[0])}{' at the earliest' if len(ends) > 1 else ''})"
        for begins, those in timeline.by_start(alike, plan.created_at).items():
            yield [node.node for node in those], code, begins, detail + until
