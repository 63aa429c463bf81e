"""The reasons that keep a node from its goal in `explain`: since when, and what would let it go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reconciler.health.ladder import REMEDIATION
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE, DriftClass
from reconciler.model.observed import Answered, Silent
from reconciler.model.plan import BlockCode, BudgetLine, Goal, NodePlan, RolloutPlan
from reconciler.model.records import FLEET, OWNER_ANNOTATION, STORM, Hold, Mark, read_mark
from reconciler.model.units import format_duration
from reconciler.planner.fleet.permit import takes_out
from reconciler.planner.node.backoff import failures
from reconciler.planner.node.goals import FAILURES
from reconciler.planner.node.holds import is_active
from reconciler.render.explanation import Explanation
from reconciler.render.text import clock, position


@dataclass(frozen=True, slots=True)
class WaitStart:
    at: datetime
    what: str  # happened then


_SET = {
    BlockCode.HELD: "it was held",
    BlockCode.STOPPED: "the fleet was stopped",
    BlockCode.STORM: "the storm brake was set",
}


def since(made: Explanation) -> WaitStart | None:
    """Return when the cause that holds the node back began, if anybody recorded it."""
    plan = made.node_plan
    if plan is None:
        return None
    match plan.blocked.code if plan.blocked is not None else None:
        case BlockCode.HELD | BlockCode.STOPPED | BlockCode.STORM as code:
            what = _SET[code]
            return min((WaitStart(h.since, what) for h in holds(made)), key=lambda s: s.at, default=None)
        case BlockCode.BACKOFF:
            return _last_failure(made)
        case BlockCode.UNKNOWN | BlockCode.UNDER_WAY:
            return _silence(made) or _first_seen(plan, frozenset({DriftClass.UNKNOWN}), "it could first not be read")
        case BlockCode.FOREIGN_MARK:
            return _marked(made) or _first_seen(plan)
        case BlockCode.FOREIGN_CORDON | BlockCode.QUARANTINED | BlockCode.RETIRED | BlockCode.DECOMMISSIONED:
            return None  # who did it, wrote down nothing
        case _:
            return _first_seen(plan)


def holds(made: Explanation) -> tuple[Hold, ...]:
    """Return the active holds of the ledger on the node."""
    return tuple(hold for hold in made.holds if hold.subject in _subjects(made) and is_active(hold, made.now))


def _subjects(made: Explanation) -> tuple[str, ...]:
    """Return the subjects whose holds hold the node. A stop of the fleet comes first, since it is lifted first."""
    plan = made.node_plan
    code = plan.blocked.code if plan is not None and plan.blocked is not None else None
    if code is BlockCode.STOPPED:
        return (FLEET,)
    if code is BlockCode.STORM:
        return (STORM,)
    return made.node, f"pool/{made.desired.pool}"


def _last_failure(made: Explanation) -> WaitStart | None:
    failed = [a for a in made.record.attempts if a.outcome not in ("done", "started", "refused")] if made.record else []
    if not failed:
        return None
    action = f"{failed[-1].action}:{failed[-1].target}" if failed[-1].target else failed[-1].action
    return WaitStart(failed[-1].ended_at or failed[-1].at, f"{action} failed")


def _silence(made: Explanation) -> WaitStart | None:
    if made.record is None or made.observed is None:
        return None
    readings = {"redfish": ("its BMC", made.observed.hot), "ssh": ("its host", made.observed.host)}
    found = [
        WaitStart(made.record.silent_since[source], f"{who} stopped answering")
        for source, (who, reading) in readings.items()
        if isinstance(reading, Silent) and source in made.record.silent_since
    ]
    return min(found, key=lambda s: s.at, default=None)


def mark(made: Explanation) -> Mark | None:
    """Return the mark that says who took the node out of service, whichever ledger that is."""
    seen = made.observed
    if seen is None or not isinstance(seen.member, Answered) or seen.member.value is None:
        return None
    return read_mark(seen.member.value.annotations.get(OWNER_ANNOTATION))


def _marked(made: Explanation) -> WaitStart | None:
    found = mark(made)
    try:
        return None if found is None else WaitStart(datetime.fromisoformat(found.at), "it was marked")
    except ValueError:
        return None  # an annotation is text, whoever wrote it


def _first_seen(
    plan: NodePlan, kinds: frozenset[DriftClass] = ACTIONABLE, what: str = "its drift was first seen"
) -> WaitStart | None:
    seen = [item.first_seen for item in plan.drift if item.first_seen is not None and item.kind in kinds]
    return WaitStart(min(seen), what) if seen else None


# --- when it may go ------------------------------------------------------------------------------------------------


def may_go(made: Explanation) -> list[str]:
    """Return sentences: the time when it is known, otherwise what has to happen first."""
    plan = made.node_plan
    if plan is None or plan.blocked is None:
        return []
    said, blocked = [], plan.blocked
    if blocked.until is not None:
        left = (blocked.until - made.now).total_seconds()
        said.append(f"not before {clock(blocked.until)}" + (f", in {format_duration(left)}" if left > 0 else ""))
    said += TERMS[blocked.code](made, plan)
    if plan.start is not None and plan.end is not None and not made.alone and not goes_anyway(plan):
        said.append(f"expected to begin about {clock(plan.start)} and to end about {clock(plan.end)}")
    return said


def goes_anyway(plan: NodePlan) -> bool:
    """Return whether its actions start although something else keeps the node from its goal."""
    code = plan.blocked.code if plan.blocked is not None else None
    return code is not None and not code.passes and code not in (BlockCode.HALTED, BlockCode.STORM)


def _room(made: Explanation, plan: NodePlan) -> Iterator[str]:
    batch = f", in batch {plan.wave + 1} of those that wait" if plan.wave and not made.alone else ""
    first = "; `reconciler plan` tells which nodes go first" if made.alone else ""
    yield f"as soon as there is room in every limit below{batch}{first}"


def _released(made: Explanation, _: NodePlan) -> Iterator[str]:
    """Say how the hold ends. Its copy in the ledger outlives the spec's line, which holds in spite of a release."""
    declared = [h for h in made.fleet.holds if h.subject in _subjects(made) and is_active(h, made.now)]
    kept = list(dict.fromkeys(hold.subject for hold in holds(made)))
    if declared:
        yield f"when the spec no longer holds it ({', '.join(hold.position for hold in declared)})"
    for subject in kept:
        yield f"{'and ' if declared else ''}when somebody lifts the hold: reconciler release {subject}"


def _activated(made: Explanation, _: NodePlan) -> Iterator[str]:
    where = made.desired.provenance.get("state") or made.desired.provenance.get("node")
    yield f"when the spec says `state: active` for it ({position(where)})"


def _resumed(made: Explanation, _: NodePlan) -> Iterator[str]:
    resume = [said for rollout, _wave in rollouts(made) for said in rollout.resume]
    yield from ("when one of these is done:", *resume) if resume else ("when somebody resumes its rollout",)


def _answers(made: Explanation, _: NodePlan) -> Iterator[str]:
    seen, ends = made.observed, made.desired.endpoints
    readings = () if seen is None else (seen.hot, seen.host, seen.member)
    names = (f"its BMC {ends.bmc or ''}".rstrip(), f"its host {ends.host or ''}".rstrip(), "the cluster")
    who = [name for name, reading in zip(names, readings, strict=False) if isinstance(reading, Silent)]
    if who:
        yield f"when {' and '.join(who)} answer{'s' if len(who) == 1 else ''} again"
    else:
        yield "when the unknown facts can be read"


def _attempts_end(made: Explanation, plan: NodePlan) -> Iterator[str]:
    """Say when attempts are forgotten: those of the ladder after the policy's window, others after a day."""
    record, now = made.record, made.now
    policy = made.desired.profile.remediation
    if record is None:
        return
    ends = []
    for name, target in {(one.action, one.target) for one in record.attempts}:
        recent = [a.at for a in failures(record, name, target) if a.at >= now - timedelta(days=1)]
        if len(recent) >= FAILURES:
            ends.append(recent[FAILURES - 1] + timedelta(days=1))
    if policy is not None and plan.goal is Goal.ISOLATED:
        window = timedelta(seconds=policy.window_s)
        ends += [a.at + window for a in record.attempts if a.cause == REMEDIATION and a.at >= now - window]
    if ends:
        yield f"after {clock(min(ends))}, when its oldest attempt no longer counts"
        hold = f"reconciler hold {made.node} --reason ..."
        yield f"or when somebody has repaired it: `{hold}`, then `reconciler release {made.node}`"
    else:
        yield "not by itself: somebody has to repair it"


def _says(sentence: str) -> Callable[[Explanation, NodePlan], Iterable[str]]:
    return lambda made, _: (sentence.format(node=made.node),) if sentence else ()


TERMS: Mapping[BlockCode, Callable[[Explanation, NodePlan], Iterable[str]]] = {
    BlockCode.STOPPED: _says("when somebody lifts the stop: reconciler resume"),
    BlockCode.DOMAIN: _says(
        "when the nodes of its failure domain are well; if it is ill by itself: `reconciler hold {node} --reason ...`, "
        "then `reconciler release {node}`"
    ),
    BlockCode.STORM: _says(
        "when those nodes are well, or the cause is understood, and somebody resumes: reconciler resume"
    ),
    BlockCode.HELD: _released,
    BlockCode.QUARANTINED: _activated,
    BlockCode.RETIRED: _activated,
    BlockCode.DECOMMISSIONED: _says("when somebody consents to take the machine back, as said"),
    BlockCode.UNKNOWN: _answers,
    BlockCode.UNDER_WAY: _says("when that has ended, and the node is read again"),
    BlockCode.IDENTITY: _says("when BMC and spec agree which machine it is: look at its address, cables and serial"),
    BlockCode.BUDGET: _room,
    BlockCode.WINDOW: _says(""),  # the time says it all
    BlockCode.BACKOFF: _says(""),
    BlockCode.ROLLOUT: _says("when the waves before its own are well and have baked"),
    BlockCode.HALTED: _resumed,
    BlockCode.FOREIGN_CORDON: _says("when whoever cordoned it lifts the cordon: kubectl uncordon {node}"),
    BlockCode.FOREIGN_HOLD: _says("when that operator has ended, or gives the node up: its sign goes then"),
    BlockCode.FOREIGN_MARK: _says(
        "when the other reconciler lifts its mark, or `reconciler ledger adopt` takes the mark over"
    ),
    BlockCode.IMPOSSIBLE: _says("when the spec asks for something that its BMC can do"),
    BlockCode.NO_PATH: _says("not by itself: somebody has to look"),
    BlockCode.ATTEMPTS: _attempts_end,
    BlockCode.GATE: _says("when a repair is on record, as said"),
    BlockCode.CRASHED: _says("when the bug is fixed: report it with the traceback from the log"),
    BlockCode.JOINING: _says("when the change that adds it is merged"),
    BlockCode.NO_DRAIN: _says("when its persona says how to drain it"),
}


# --- limits and rollouts -------------------------------------------------------------------------------------------


def limits(made: Explanation) -> list[tuple[BudgetLine, tuple[str, ...]]]:
    """Return the limits that count the node when it is taken out, and the nodes that go before it under each."""
    plan = made.node_plan
    code = plan.blocked.code if plan is not None and plan.blocked is not None else None
    waits_for_people = code in (BlockCode.HALTED, BlockCode.STORM)
    if made.plan is None or plan is None or waits_for_people or not takes_out(plan):
        return []
    first = [
        n for n, p in made.plan.nodes.items() if n != plan.node and p.actions and p.blocked is None and takes_out(p)
    ]
    return [
        (line, tuple(name for name in first if _counts(line, made, made.fleet.nodes[name])))
        for line in made.plan.budget
        if _counts(line, made, made.desired)
    ]


def _counts(line: BudgetLine, made: Explanation, desired: Desired) -> bool:
    """Return whether a limit counts the node: a limit has only the name of its scope."""
    if line.scope == "control plane":
        seen = made.observation.nodes.get(desired.node) if made.observation is not None else None
        member = seen.member.value if seen is not None and isinstance(seen.member, Answered) else None
        return member is not None and member.control_plane
    own = {f"{label} {name}" for label, name in desired.domains.items()}
    return line.scope in {"fleet", "fleet by default", f"pool {desired.pool}", f"persona {desired.persona}", *own}


def rollouts(made: Explanation) -> list[tuple[RolloutPlan, int]]:
    """Return the rollouts that the node is part of, and its wave, counted from 0."""
    found = made.plan.rollouts if made.plan is not None else ()
    return [(r, at) for r in found for at, wave in enumerate(r.waves) if made.node in wave.nodes]


def rollout_words(made: Explanation) -> list[str]:
    """Describe each rollout that the node is part of: what changes, its progress, and the node's own wave.

    Which wave that is, and how large they are, only a plan of all nodes knows.
    """
    plan, lines = made.node_plan, list[str]()
    for rollout, own in rollouts(made):
        kind = "rollback" if rollout.rollback else "rollout"
        begun = f"begun {clock(rollout.started_at)}" if rollout.started_at is not None else "begins with the next apply"
        states = (f"{at} {wave.state} ({len(wave.nodes)})" for at, wave in enumerate(rollout.waves, 1))
        lines.append(f"{kind} of {', '.join(rollout.changes)} in pool {rollout.pool}, {begun}")
        if made.alone:
            lines.append("  other nodes were not planned: `reconciler plan` tells which wave it is in")
            continue
        lines.append(f"  it is in wave {own + 1}; waves (and their nodes): {', '.join(states)}")
        detail = rollout.waves[own].detail
        if detail and (plan is None or plan.blocked is None or detail != plan.blocked.detail):
            lines.append(f"  {detail}")
    return lines
