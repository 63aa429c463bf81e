"""The plan of a pull request for its reviewer: the disruption and its nodes, what is held back, when, then details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from reconciler.model.change import Change
from reconciler.model.drift import DriftItem
from reconciler.model.plan import BlockCode, NodePlan, Plan
from reconciler.model.units import format_duration
from reconciler.model.vocab import Certainty, Disruption
from reconciler.render import offline, plan, releases, rollouts, spec_change, timeline
from reconciler.render.drift import OWN, REPORTED_HEAD, reported
from reconciler.render.headline import Headline, Verdict
from reconciler.render.markdown import Cell, MarkdownWriter
from reconciler.render.text import NodeNames, clock, count, disruption, estimate, fold, source, stop, value, warnings

SHOWN = 24  # rows of the timetable
HELD = 12  # rows of what is held back for one reason


def headline(made: Plan) -> Headline:
    """Return the headline of a change by what it does itself. Earlier drift is not its doing."""
    left = made.incomplete or (_left_alone(made) if made.change is None else made.change.unknown)
    idle = "⚠️" if left else "✅"  # not that all is well
    sign = "🔴" if _hurts(made) else "🔶" if _acts(made) else idle
    verdict = Verdict.GOOD
    if made.refused or made.stopped or made.braked or any(rollout.halted for rollout in made.rollouts):
        sign, verdict = "⛔", Verdict.BAD
    elif not made.tolerated or offline.doubtful(made):
        sign, verdict = "⚠️", Verdict.BAD
    return Headline(sign, _counts(made), verdict)


def _hurts(made: Plan) -> bool:
    if made.change is None:
        return any(node.disruption >= Disruption.REBOOT for node in made.nodes.values())
    moved = made.change.endpoints  # whom we would send secrets to
    return bool(moved or made.change.forgotten) or any(
        level >= Disruption.REBOOT for level, _ in spec_change.levels(made.change)
    )


def _acts(made: Plan) -> bool:
    return made.changes if made.change is None else not made.change.empty


def _counts(made: Plan) -> str:
    touched = dict(spec_change.levels(made.change)) if made.change is not None else _classes(made.nodes.values())
    nodes = len({name for names in touched.values() for name in names})
    if made.change is not None and made.change.empty:
        text = "this change makes no difference"
    elif nodes:
        hurts = [f"{len(touched[level]):,} {_WORDS[level]}" for level in sorted(touched, reverse=True) if level]
        text = f"{count(nodes, 'node')} to change" + (f": {', '.join(hurts)}" if hurts else ", none disrupted")
        if made.change is not None and made.change.unknown:
            text += f", {len(made.change.unknown):,} unknown"
    elif made.change is not None and made.change.unknown:
        text = f"nobody can say what this change touches: {count(len(made.change.unknown), 'node')} unknown"
    elif made.change is not None:
        text = "this change touches no node"
    else:
        text = "nothing is done" if _left_alone(made) else "nothing to do"
        text = ", ".join([text, *plan.idle(n for n in made.nodes.values() if not n.actions and not _by_order(n))])
    if made.change is not None and made.change.below_bar:
        text += f", {len(made.change.below_bar):,} below a bar that the change moves"
    if made.incomplete:
        text += f", {len(made.incomplete):,} not read in full"
    if made.change is not None and made.change.endpoints:
        text += f", {count(len(made.change.endpoints), 'address or credential', 'addresses or credentials')} edited"
    if made.offline is not None:
        text += f", going by what was known {format_duration(offline.age_s(made))} before"
    return f"REFUSED, {text}" if made.refused else text


def _left_alone(made: Plan) -> list[NodePlan]:
    """List the nodes that differ from the spec and that nothing may be done about."""
    return [
        node
        for node in made.nodes.values()
        if node.blocked is not None
        and not node.actions
        and not _by_order(node)
        and node.blocked.code is not BlockCode.UNDER_WAY
    ]


def _by_order(node: NodePlan) -> bool:
    return node.blocked is not None and node.blocked.code in _BY_ORDER


# Nobody has to look into what somebody has said: a spec, a hold.
_BY_ORDER = frozenset(
    {BlockCode.QUARANTINED, BlockCode.RETIRED, BlockCode.DECOMMISSIONED, BlockCode.HELD, BlockCode.JOINING}
)
_WORDS = {
    Disruption.SERVICE_RESTART: "with services restarted",
    Disruption.DRAIN: "drained",
    Disruption.REBOOT: "rebooted",
    Disruption.POWER_CYCLE: "power cycled",
    Disruption.AC_CYCLE: "cut off from mains",
    Disruption.FIRMWARE: "flashed",
    Disruption.REIMAGE: "reimaged",
}


def _classes(nodes: Iterable[NodePlan]) -> dict[Disruption, tuple[str, ...]]:
    """Return the nodes by how much they are disrupted, worst first."""
    found: dict[Disruption, list[str]] = {}
    for node in nodes:
        if node.actions:
            found.setdefault(node.disruption, []).append(node.node)
    return {level: tuple(found[level]) for level in sorted(found, reverse=True)}


def write(writer: MarkdownWriter, made: Plan) -> None:
    if made.change is not None:
        writer.paragraph(f"This change: {spec_change.verdict(made.change)}.", bold=True)
        writer.paragraph(f"With all that had drifted before: {plan.verdict(made)}.")
    else:
        writer.paragraph(_sentence(plan.verdict(made)), bold=True)
    writer.quoted_list(offline.sentences(made), alert="IMPORTANT")
    above = [*stop(made.stopped, made.braked), *plan.isolation(made)]
    above += [*(f"REFUSED: {sentence}" for sentence in made.refused), *made.notes]
    above += [f"Lost with the drains: {len(pods)} {what}" for what, pods in plan.at_stake(made).items()]
    above += [f"Interrupted by the drains: {count(len(made.workloads), 'workload')}"] if made.workloads else []
    above += [f"Drains wait {what}: {count(len(nodes), 'node')}" for what, nodes in plan.drain_waits(made).items()]
    writer.quoted_list([*above, *warnings(made.insecure, made.time_scale)])
    _red(writer, made)
    _held(writer, made)
    releases.write(writer, made.releases)
    _pools(writer, made)
    if writer.level.all:
        _when(writer, made)
        if made.change is not None:
            _change(writer, made.change)
        _details(writer, made)
        _set_by(writer, made)
    _footer(writer, made)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


# --- what nobody may overlook ---------------------------------------------------------------------------------------


def _red(writer: MarkdownWriter, made: Plan) -> None:
    """List all nodes that are disrupted, by how much; those that would be without the change are apart."""
    whole = {level: names for level, names in _classes(made.nodes.values()).items() if level >= Disruption.DRAIN}
    if made.change is None:
        writer.alert("CAUTION", "Who is disturbed:", [(disruption(at), NodeNames(who)) for at, who in whole.items()])
        return
    own = [(level, names) for level, names in spec_change.levels(made.change) if level >= Disruption.DRAIN]
    rows = [(disruption(level), NodeNames(names)) for level, names in own]
    if made.change.forgotten:
        rows.append(("forget", NodeNames(made.change.forgotten)))
    writer.alert("CAUTION", "Who is disturbed by this change:", rows)
    moved = dict.fromkeys(end.subject for end in made.change.endpoints)
    told = "Whom it would reach elsewhere, or with other secrets, once it is merged:"
    writer.alert("CAUTION", told, [("address or credential", NodeNames(tuple(moved)))] if moved else [])
    hit = {name for _, names in own for name in names}
    rest = {level: tuple(n for n in names if n not in hit) for level, names in whole.items()}
    rows = [(disruption(level), NodeNames(names)) for level, names in rest.items() if names]
    writer.alert("WARNING", "Who is disturbed whether it is merged or not:", rows)


def _held(writer: MarkdownWriter, made: Plan) -> None:
    waiting = [node for node in made.nodes.values() if node.blocked is not None]
    blocked = plan.blocked(waiting, made)
    rows = _few([(NodeNames(tuple(names)), code, begins, why) for names, code, begins, why in blocked])
    if rows:
        writer.heading("Held back, and why")
        writer.table(("nodes", "code", "begins (UTC)", "why"), rows)
    if told := reported(item for node in made.nodes.values() for item in node.drift):
        writer.heading("Reported, and left as it is")
        writer.table(REPORTED_HEAD, told)
    unread: dict[tuple[str, ...], list[str]] = {}
    for node in made.nodes.values():
        if node.incomplete:
            unread.setdefault(node.incomplete, []).append(node.node)
    if unread:
        writer.heading("Could not be read in full")
        writer.table(("nodes", "what"), [(NodeNames(tuple(names)), "; ".join(what)) for what, names in unread.items()])


def _few(rows: Sequence[tuple[NodeNames, str, str, str]]) -> list[tuple[Cell, ...]]:
    """Join rows with one code that hold back many nodes in many ways, such as the limits of each rack."""
    codes: dict[str, list[tuple[NodeNames, str, str, str]]] = {}
    for row in rows:
        codes.setdefault(row[1], []).append(row)
    found: list[tuple[Cell, ...]] = []
    for code, alike in codes.items():
        reasons = list(dict.fromkeys(why for *_, why in alike))
        if len(alike) <= HELD:
            found += alike
            continue
        names = [name for who, *_ in alike for name in who.nodes]
        times = sorted({begins for _, _, begins, _ in alike if begins})
        span = " to ".join(dict.fromkeys((times[0], times[-1]))) if times else ""
        why = f"{len(reasons):,} reasons, such as: {reasons[0]}" if len(reasons) > 1 else reasons[0]
        found.append((NodeNames(tuple(sorted(names))), code, span, why))
    return found


def _pools(writer: MarkdownWriter, made: Plan) -> None:
    """Count the nodes of each action, pool by pool."""
    pools: dict[str, list[NodePlan]] = {}
    for node in made.nodes.values():
        if node.actions:
            pools.setdefault(node.pool, []).append(node)
    rows: list[tuple[Cell, ...]] = []
    for name, nodes in pools.items():
        actions = Counter(action for node in nodes for action in dict.fromkeys(action.id for action in node.actions))
        worst = max(node.disruption for node in nodes)
        what = ", ".join(f"{action} {number}" for action, number in actions.items())
        rows.append((name, str(len(nodes)), disruption(worst) if worst else "none", what))
    if rows:
        writer.heading("What is done, pool by pool")
        writer.table(("pool", "nodes", "at worst", "nodes for each action"), rows)


# --- when -----------------------------------------------------------------------------------------------------------


def _when(writer: MarkdownWriter, made: Plan) -> None:
    """Add the rollouts wave by wave, and when each node is expected to begin."""
    if made.rollouts:
        writer.heading("Rollouts, wave by wave")
        rollouts.write(writer, made)
    if not made.changes:
        return
    rows: list[tuple[Cell, ...]] = []
    relative = timeline.is_relative(made)
    for nodes in _together([node for node in made.nodes.values() if node.actions and node.start is not None]):
        ends = [node.end for node in nodes if node.end is not None]
        hours = timeline.span(nodes[0].start, max(ends, default=None), made.created_at, relative=relative)
        rows.append((hours, NodeNames(tuple(node.node for node in nodes))))
    with writer.details(f"Timeline: {timeline.finish(made)}"):
        writer.table(("expected" if relative else "expected (UTC)", "nodes"), rows)
        if relative:
            writer.paragraph("T is when the apply begins.")
        writer.bullet_list(plan.budget(made))


def _together(nodes: Iterable[NodePlan]) -> list[list[NodePlan]]:
    """Group nodes that begin in the same minute; if these are many, in the same hour, then on the same day."""
    timed = sorted(nodes, key=lambda node: (node.start is None, node.start))
    groups: dict[str, list[NodePlan]] = {}
    for form in ("%F %H:%M", "%F %H", "%F"):
        groups = {}
        for node in timed:
            groups.setdefault(f"{node.start:{form}}", []).append(node)
        if len(groups) <= SHOWN:
            break
    return list(groups.values())


# --- the change -----------------------------------------------------------------------------------------------------


def _change(writer: MarkdownWriter, made: Change) -> None:
    for block in spec_change.blocks(made):
        writer.heading(block.title, 4)
        writer.table(block.head, block.rows)
        if block.figure and writer.level.nodes:
            writer.fenced("text", block.figure)
        writer.paragraph(block.note)


def _set_by(writer: MarkdownWriter, made: Plan) -> None:
    """Return which commit set the lines that cause drift, and who wrote it."""
    if made.change is None or not made.change.origins:
        return
    paths: dict[str, list[str]] = {}
    for path, places in made.change.set_by.items():
        for place in places:
            paths.setdefault(place, []).append(path)
    rows: list[tuple[Cell, ...]] = []
    for place, origin in sorted(made.change.origins.items()):
        commit = (origin.commit[:12] or "not committed") + (" or earlier" if origin.or_earlier else "")
        day = f"{origin.at:%Y-%m-%d}" if origin.at is not None else ""
        rows.append((place, ", ".join(paths.get(place, ())), commit, origin.author, day, origin.summary))
    with writer.details(f"Who set what: {count(len(rows), 'line')} of the spec"):
        writer.table(("line", "sets", "commit", "author", "on", "saying"), rows)


# --- details --------------------------------------------------------------------------------------------------------


def _details(writer: MarkdownWriter, made: Plan) -> None:
    """Add a diff of values with the actions, pool by pool; only the actions if that is too long."""
    if not writer.level.nodes:
        return
    pools: dict[str, list[list[NodePlan]]] = {}
    for group in plan.alike(node for node in made.nodes.values() if node.actions):
        pools.setdefault(group[0].pool, []).append(group)
    shown = list(pools.items())[: writer.level.rows]
    for name, groups in shown:
        nodes = sum(map(len, groups))
        with writer.details(f"Pool {name}: {count(nodes, 'node')}, {count(len(groups), 'kind')} of work"):
            if writer.level.diffs:
                lines = [line for group in groups[: writer.level.rows] for line in ("", *_diff(writer, group, made))]
                writer.fenced("diff", lines[1:])
                writer.left_out(len(groups) - writer.level.rows, "kind", "kinds of work")
            else:
                writer.table(("nodes", "at worst", "takes", "actions"), [_row(group) for group in groups])
    writer.left_out(len(pools) - len(shown), "pool")


def _diff(writer: MarkdownWriter, group: Sequence[NodePlan], made: Plan) -> list[str]:
    first = group[0]
    who = writer.names(NodeNames(tuple(node.node for node in group)))
    each = " each" if len(group) > 1 else ""
    when = timeline.expected(group, made.created_at, relative=timeline.is_relative(made))
    lines = [f"@@ {who}: {plan.worst(first)}, {estimate(first.actions)}{each}; {when} @@"]
    if first.illness:
        lines.append(f"! {first.situation}")
    for item in plan.shown(first):
        lines += _values(item, several=len(group) > 1)
    for at, action in enumerate(first.actions, 1):
        sure = ", if needed" if action.certainty is Certainty.PREDICTED else ""
        hurts = f" ({disruption(action.disruption)}{sure})" if action.disruption else f" ({sure[2:]})" if sure else ""
        lines.append(f"  {at}. {action.id}{hurts}: {plan.because(action)}")
    return lines


def _values(item: DriftItem, *, several: bool) -> list[str]:
    """Return the values as text, without serials, which name hardware (pitfall M5)."""
    if item.path in OWN:
        return [f"- {item.path}: another", f"+ {item.path}: {'each its own' if several else 'its own'}"]
    return [f"- {item.path}: {value(item.observed)}", f"+ {item.path}: {value(item.desired)}  ({item.kind})"]


def _row(group: Sequence[NodePlan]) -> tuple[Cell, ...]:
    first = group[0]
    actions = ", ".join(action.id for action in first.actions)
    return NodeNames(tuple(node.node for node in group)), plan.worst(first), estimate(first.actions), actions


_ONLINE = (
    "to have it planned on the nodes as they are: read the change, then push its commit to a branch of this repository",
)


def _footer(writer: MarkdownWriter, made: Plan) -> None:
    seen = sorted(node.observed_at for node in made.nodes.values())
    ages = [format_duration(max(0.0, (made.created_at - at).total_seconds())) for at in (seen or [made.created_at])]
    span = ages[0] if ages[0] == ages[-1] else f"{ages[-1]} to {ages[0]}"
    nodes = [node.node for node in made.nodes.values() if node.actions]
    with writer.details("What to do next"):
        commands = ["reconciler show plan.json"]
        if made.offline is not None:
            writer.bullet_list(_ONLINE)
        elif nodes:
            held = next((n.node for n in made.nodes.values() if n.blocked and n.blocked.code is BlockCode.UNKNOWN), "")
            commands.append(f"reconciler explain {held or fold(nodes[:1])}")
        if made.change is None and made.changes and not made.refused and made.source.directory and made.offline is None:
            commands.append(f"reconciler apply {made.source.directory} --plan plan.json --yes")
        writer.fenced("sh", commands)
    writer.footnote(
        (
            f"plan {made.id}",
            f"fingerprint {made.fingerprint[:12]}",
            f"spec {source(made.source)}",
            f"scope {made.scope.selected:,} of {count(made.scope.total, 'node')}",
            f"made {clock(made.created_at)}",
            f"observed {span} before" if seen else "",
            timeline.validity(made) if made.offline is None else "",
            *plan.ledger(made),
        )
    )
