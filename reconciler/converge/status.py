"""Turn a pass into the status that is published to watchers of the fleet (model/status.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from reconciler.converge.events import ActionFinished, ActionStarted, ActionStep, Event, Progress
from reconciler.model.desired import Fleet
from reconciler.model.drift import ACTIONABLE
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.outcome import outcome_word
from reconciler.model.period_report import ILL, ServiceStatus
from reconciler.model.plan import BlockCode, Goal, NodePlan, Plan
from reconciler.model.ports import Metrics
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.model.status import FleetStatus, NodeReport, NodeStatus, PersonaStatus
from reconciler.model.vocab import NodeState, Source, UnknownReason
from reconciler.planner.fleet.isolation import isolation_signals

_ASIDE = (BlockCode.QUARANTINED, BlockCode.RETIRED, BlockCode.DECOMMISSIONED)
_WITH_REASON = (NodeStatus.BLOCKED, NodeStatus.HELD, NodeStatus.SET_ASIDE)
_HELD = (BlockCode.HELD, BlockCode.STOPPED, BlockCode.STORM, BlockCode.FOREIGN_CORDON, BlockCode.FOREIGN_HOLD)


def measured(metrics: Metrics, progress: Progress) -> Progress:
    """Return a Progress that also tells the metrics what is being done, and counts what was."""

    def tell(event: Event) -> None:
        if isinstance(event, ActionStarted):
            metrics.acting(event.node, event.action.id, "")
        elif isinstance(event, ActionStep):
            metrics.acting(event.node, event.action, event.step)
        elif isinstance(event, ActionFinished):
            metrics.acting(event.node, "", "")
            metrics.acted(event.action.name, outcome_word(event.outcome), event.seconds)
        progress(event)

    return tell


def fleet_status(
    plan: Plan, observation: Observation, before: FleetStatus | None = None, *, acting: Collection[str] = ()
) -> FleetStatus:
    """Return the status of the fleet after a pass.

    `before`: the status after the previous pass, whose times in a state are continued. Without it, as after a restart,
    a node has had its status since the ledger first saw it differ, and has been out of service since our mark was put
    on it; where neither is known, since this pass. `acting`: nodes that something is being done to.
    """
    known = {} if before is None else before.nodes
    nodes = {
        name: _report(node, observation.nodes[name], known.get(name), name in acting, observation.finished_at)
        for name, node in plan.nodes.items()
    }
    readings = [reading for name in plan.nodes for reading in _readings(observation.nodes[name])]
    oldest: dict[Source, datetime] = {}
    for source, found in readings:
        if isinstance(found, Answered) and found.at <= oldest.get(source, found.at):
            oldest[source] = found.at
    return FleetStatus(
        started_at=observation.started_at,
        ended_at=observation.finished_at,
        nodes=nodes,
        drift=Counter((item.concern, item.kind) for node in plan.nodes.values() for item in node.drift),
        budget=plan.budget,
        observed=oldest,
        silent=Counter(
            (source, found.reason)
            for source, found in readings
            if isinstance(found, Silent) and found.reason is not UnknownReason.NOT_ASKED
        ),
        halted=tuple(rollout.pool for rollout in plan.rollouts if rollout.halted),
        braked=plan.braked,
        held_by_brake=len(held_by_brake(plan)),
        insecure=len(plan.insecure),
        isolated=Counter(node.pool for node in plan.nodes.values() if isolation_signals(observation.nodes[node.node])),
        spares={
            (line.persona, state): len(names)
            for line in plan.spares
            for state, names in (("ready", line.ready), ("preparing", line.preparing), ("marginal", line.marginal))
        },
        incidents={one.key: len(one.nodes) for one in plan.incidents},
    )


def persona_statuses(plan: Plan, fleet: Fleet) -> Mapping[str, PersonaStatus]:
    """Return how many active nodes of each persona serve now, beside its objective."""
    found: dict[str, list[bool]] = {}
    for name, node in plan.nodes.items():
        desired = fleet.nodes.get(name)
        if desired is not None and desired.state is NodeState.ACTIVE:
            serves = found.setdefault(desired.persona, [])
            serves += [] if node.in_service is None else [node.in_service]
    return {
        persona: PersonaStatus(sum(serves), len(serves) - sum(serves), fleet.objectives.get(persona))
        for persona, serves in sorted(found.items())
    }


def held_by_brake(plan: Plan) -> tuple[str, ...]:
    """Return the nodes that the storm brake holds back."""
    found = ((node.node, node.blocked) for node in plan.nodes.values())
    return tuple(name for name, blocked in found if blocked is not None and blocked.code is BlockCode.STORM)


def node_status(plan: NodePlan, *, acting: bool) -> NodeStatus:
    """Return the node's status: the first that fits, in the order of the tests below."""
    blocked = plan.blocked.code if plan.blocked is not None else None
    if acting:
        return NodeStatus.ACTING
    gone = plan.goal is Goal.DECOMMISSIONED and not plan.changes and blocked is None
    if blocked in _ASIDE or gone:
        return NodeStatus.SET_ASIDE
    if blocked in _HELD:
        return NodeStatus.HELD
    if blocked in (BlockCode.UNKNOWN, BlockCode.CRASHED):
        return NodeStatus.UNKNOWN
    if blocked is not None:
        return NodeStatus.WAITING if blocked.passes or blocked is BlockCode.UNDER_WAY else NodeStatus.BLOCKED
    if plan.changes:
        return NodeStatus.WAITING if plan.wave else NodeStatus.PLANNED
    if plan.postponed:
        return NodeStatus.WAITING
    if plan.goal is Goal.ISOLATED:
        return NodeStatus.BLOCKED
    return NodeStatus.UNKNOWN if plan.incomplete else NodeStatus.CONVERGED


def is_ready_spare(plan: NodePlan) -> bool:
    """Return whether the node is kept as a spare and lacks nothing to serve."""
    return plan.goal is Goal.SPARE and not plan.changes


def service_statuses(plans: Mapping[str, NodePlan], *, acting: Collection[str] = ()) -> Mapping[str, ServiceStatus]:
    """Return the statuses to record in the ledger. The reason of a wait is left out, since it changes by the minute."""
    found = {}
    for name, plan in plans.items():
        status, blocked = node_status(plan, acting=name in acting), plan.blocked
        out = None if plan.in_service is None else not plan.in_service
        code, why = "", ""
        if is_ready_spare(plan):
            out = False  # it is where the spec wants it
        if blocked is not None and status in _WITH_REASON:
            code, why = blocked.code.value, blocked.detail
        elif out and plan.illness:
            code, why = ILL, "ill: " + "; ".join(str(item.observed) for item in plan.illness)
        found[name] = ServiceStatus(plan.pool, status, out, code, why)
    return found


def _report(plan: NodePlan, observed: Observed, before: NodeReport | None, acting: bool, now: datetime) -> NodeReport:
    status = node_status(plan, acting=acting)
    if before is not None:
        since = before.since if before.status is status else now
    else:
        seen = [item.first_seen for item in plan.drift if item.kind in ACTIONABLE and item.first_seen is not None]
        since = now if status is NodeStatus.CONVERGED else min(seen, default=now)
    out_since = None
    if plan.in_service is False and not is_ready_spare(plan):
        out_since = (before.out_since if before is not None else None) or _marked_at(observed) or now
    return NodeReport(plan.pool, status, since, out_since)


def _marked_at(observed: Observed) -> datetime | None:
    """Return when a reconciler's mark was put on the node."""
    member = observed.member.value if isinstance(observed.member, Answered) else None
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION)) if member is not None else None
    try:
        at = datetime.fromisoformat(mark.at) if mark is not None else None
    except (ValueError, TypeError):  # whoever may write annotations may write anything
        return None
    return at if at is not None and at.tzinfo is not None else None


def _readings(observed: Observed) -> Iterator[tuple[Source, Answered[Any] | Silent]]:
    yield Source.REDFISH, observed.hot
    yield Source.SSH, observed.host
    yield Source.KUBERNETES, observed.member
