"""Find the notices of a pass: what holds now, what ended unseen, and what nobody can judge.

The journal tells of nodes that were isolated and healed between two passes, or while no process led the fleet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from reconciler.gate.fabric.still_open import key_of
from reconciler.health.ladder import REMEDIATION
from reconciler.model.drift import DriftClass
from reconciler.model.fabric_report import OpenPart
from reconciler.model.notices import NoticeEvent, Severity
from reconciler.model.observed import Observation, Observed
from reconciler.model.plan import BlockCode, Goal, NodePlan, Plan
from reconciler.model.records import Attempt, NodeRecord, isolated_for
from reconciler.planner.fleet.isolation import isolation_signals
from reconciler.planner.node.actions import ACTIONS
from reconciler.planner.node.conditions import IN_SERVICE, RESERVED, TREATED

SEVERITY = {
    NoticeEvent.WINDOW: Severity.INFO,
    NoticeEvent.ISOLATED: Severity.WARNING,
    NoticeEvent.REPAIR: Severity.CRITICAL,
    NoticeEvent.INCIDENT: Severity.CRITICAL,
    NoticeEvent.HALTED: Severity.CRITICAL,
    NoticeEvent.DONE: Severity.INFO,
}
_RETURNS = frozenset(  # the last action of an outage: into service, or among the spares
    name for name, spec in ACTIONS.items() if {IN_SERVICE, RESERVED} & {*spec.achieves}
)
_ASIDE = (BlockCode.QUARANTINED, BlockCode.RETIRED, BlockCode.DECOMMISSIONED)


@dataclass(frozen=True, slots=True)
class Notice:
    """One matter as it is now. `key`: the same from its beginning to its end, and in every process.

    `subject`: the node, pool or scope. `reason`: in a few words, by which notices are counted together. `nodes`: those
    that it is about; () = it is about the pool, or the whole fleet where `pool` is "".
    """

    key: str
    event: NoticeEvent
    subject: str
    reason: str
    detail: str = ""
    nodes: tuple[str, ...] = ()
    pool: str = ""
    begins: datetime | None = None  # of a window
    begun: datetime | None = None  # of what the journal tells; None: as of now

    @property
    def severity(self) -> Severity:
        return SEVERITY[self.event]


@dataclass(frozen=True, slots=True)
class Found:
    """The notices of one pass. `unclear`: keys of what neither holds nor has ended, as far as is known.

    `ended`: what began and ended since the last pass. `unread`: nodes that could not be read in full. `blind`: of what
    is not in `holding` nothing is known.
    """

    holding: Mapping[str, Notice]
    unclear: frozenset[str] = frozenset()
    ended: Mapping[str, Notice] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    blind: bool = False


def find(
    plan: Plan, observation: Observation, records: Mapping[str, NodeRecord], *, since: datetime, outage: str,
    fabric: Sequence[OpenPart] = (),
) -> Found:  # fmt: skip
    """Return the notices of a pass. `since`: the last pass that was told of. `outage`: as of ObservationPass.

    `fabric`: the parts that searches of the fabric hold for faulty.
    """
    holding = {one.key: one for one in (*_of_fleet(plan, outage), *_of_fabric(plan, fabric))}
    if outage:
        return Found(holding, blind=True)
    unclear, ended = set(), {}
    for name, node in plan.nodes.items():
        key, seen = f"node/{name}", observation.nodes.get(name)
        state = _judge(node, seen) if seen is not None else None
        if isinstance(state, Notice):
            holding[key] = state
            continue
        record = records.get(name)
        attempts = record.attempts if record is not None else ()
        missed = _missed(node, attempts if state is False else _until_back(attempts, since), since)
        if missed is not None:
            ended[key] = missed
        elif state is None:
            unclear.add(key)
    return Found(holding, frozenset(unclear), ended, frozenset(plan.incomplete))


def _of_fleet(plan: Plan, outage: str) -> Iterator[Notice]:
    halted = NoticeEvent.HALTED
    if outage:
        yield Notice("outage", halted, "the reconciler", "reaches no node", outage)
    if plan.stopped:
        yield Notice("stop", halted, "the fleet", "is stopped", plan.stopped)
    if plan.braked:
        yield Notice("brake", halted, "the fleet", "is held back by the storm brake", plan.braked)
    if plan.refused:
        yield Notice("refused", halted, "the plan", "is refused", "; ".join(plan.refused))
    for rollout in plan.rollouts:
        if rollout.halted:
            key, reason = f"rollout/{rollout.pool}", "halted its rollout"
            yield Notice(key, halted, f"pool {rollout.pool}", reason, rollout.halted, rollout.failed, rollout.pool)
    for one in plan.incidents:
        key = f"incident/{'/'.join(one.key)}"
        reason = f"has an incident ({one.cause})" if one.cause else f"shows {one.signal}"
        yield Notice(key, NoticeEvent.INCIDENT, one.scope, reason, one.detail, one.nodes)
    yield from _windows(plan)


def _of_fabric(plan: Plan, parts: Sequence[OpenPart]) -> Iterator[Notice]:
    """Yield a notice for each part that a search named, of nodes that the fleet still has."""
    for one in parts:
        part, nodes = one.part, tuple(name for name in one.nodes if name in plan.nodes)
        if not nodes:
            continue
        subject = "the fabric" if one.incident else part.name
        pool = "" if one.incident else plan.nodes[part.name].pool
        shared = ", which is no node's fault" if one.incident else ""
        detail = f"{part.lows} of {part.runs} runs of {one.test} are low{shared}; see reconciler gate show {one.run}"
        reason = f"has a fault ({part})" if one.incident else f"is at fault in the fabric ({part})"
        key = f"fabric/{key_of(part)}"
        yield Notice(key, NoticeEvent.INCIDENT, subject, reason, detail, nodes, pool, begun=one.since)


def _windows(plan: Plan) -> Iterator[Notice]:
    """Yield the windows that work waits for, by pool and beginning."""
    waiting: dict[tuple[str, datetime], list[NodePlan]] = {}
    for node in plan.nodes.values():
        blocked = node.blocked
        if blocked is not None and blocked.code is BlockCode.WINDOW and blocked.until is not None and node.changes:
            waiting.setdefault((node.pool, blocked.until), []).append(node)
    for (pool, begins), nodes in waiting.items():
        key = f"window/{pool}/{begins.isoformat()}"
        names = tuple(node.node for node in nodes)
        reason = f"has a window from {begins:%Y-%m-%d %H:%M} UTC"
        actions = sorted({action.name for node in nodes for action in node.actions})
        detail = f"Work waits for it: {', '.join(actions)}"
        yield Notice(key, NoticeEvent.WINDOW, f"pool {pool}", reason, detail, names, pool, begins)


def _judge(node: NodePlan, seen: Observed) -> Notice | bool | None:
    """Return the node's notice, False when there is none, and None when nobody can say yet."""
    signals = isolation_signals(seen) or node.isolation or tuple(item.path for item in node.illness)
    evidence = "; ".join(str(item.observed) for item in node.illness)
    out = node.in_service is False
    if node.blocked is not None and node.blocked.code in _ASIDE:
        return False
    if node.blocked is not None and node.blocked.code is BlockCode.DOMAIN:
        return None  # its domain's incident is told, once for all of its nodes
    if node.goal is Goal.REPAIR:
        return None  # what was told goes on until the gate has judged what the person did
    if node.blocked is not None and node.blocked.code is BlockCode.IDENTITY:  # in service, too: nothing mends it
        return _of_node(node, NoticeEvent.REPAIR, "may be another machine", node.blocked.detail)
    if node.waits_for_person or (node.goal is Goal.ISOLATED and out and node.blocked is None and not node.changes):
        why = node.blocked.detail if node.blocked is not None else node.situation
        return _of_node(node, NoticeEvent.REPAIR, "needs a repair", why)
    treated = any(TREATED in action.achieves for action in node.actions)
    if isolation_signals(seen) or node.isolation or (out and (signals or treated)):
        return _of_node(node, NoticeEvent.ISOLATED, _reason(signals), evidence or node.situation)
    shown = any(item.kind is DriftClass.DRIFTED for item in node.illness)  # and is not withheld, as a port that trains
    if node.in_service and shown and node.blocked is not None:  # nobody drains it now, whatever it shows
        held = node.blocked.code is BlockCode.HELD
        why = "held" if held else f"waits for {node.blocked.code.value.replace('_', ' ')}"
        reason = f"is ill and still in service ({why}): {', '.join(signals)}"
        event = NoticeEvent.REPAIR if held else NoticeEvent.ISOLATED
        return _of_node(node, event, reason, f"{evidence}. {node.blocked.detail}")
    returned = node.in_service or (node.goal is Goal.SPARE and not node.actions)  # a spare is well where it is
    return False if returned and not (node.illness or treated or node.incomplete) else None


def _until_back(attempts: Sequence[Attempt], since: datetime) -> Sequence[Attempt]:
    """Return the attempts up to the one that last brought the node back to its work since; none = none did.

    Whatever a pass made of the node, that outage has ended, even where work on the node goes on again.
    """
    back = (
        at
        for at in range(len(attempts), 0, -1)
        if (last := attempts[at - 1]).action in _RETURNS
        and last.outcome == "done"
        and last.ended_at is not None
        and last.ended > since
    )
    return attempts[: next(back, 0)]


def _missed(node: NodePlan, attempts: Sequence[Attempt], since: datetime) -> Notice | None:
    """Return the notice of a node that was isolated or treated, and is in service or a spare again since `since`.

    An outage that ended after `since` is news from its beginning on: a pass amid its gate may have seen nothing of it.
    """
    signals: tuple[str, ...] = ()
    treatments: list[str] = []
    begun: datetime | None = None
    goes_back = False
    for attempt in reversed(attempts):
        if attempt.action in _RETURNS and attempt.ended_at is not None and attempt.ended > since:
            goes_back = True
        if attempt.begun <= since and not goes_back:
            break
        if attempt.action == "mark":
            goes_back = False
        shown = isolated_for(attempt.cause) if attempt.action == "mark" else ()
        treats = attempt.cause == REMEDIATION
        if attempt.outcome != "refused" and (shown or treats):
            signals, begun = shown or signals, attempt.begun
            treatments += [attempt.action] if treats else []
    if begun is None:
        return None
    detail = f"Treated by {', '.join(reversed(treatments))}" if treatments else ""
    return replace(_of_node(node, NoticeEvent.ISOLATED, _reason(signals), detail), begun=begun)


def _reason(signals: Sequence[str]) -> str:
    return f"is out of service for {', '.join(signals)}" if signals else "is out of service for treatment"


def _of_node(node: NodePlan, event: NoticeEvent, reason: str, detail: str) -> Notice:
    return Notice(f"node/{node.node}", event, node.node, reason, detail, (node.node,), node.pool)
