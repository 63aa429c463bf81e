"""The plan of a fleet: every node's plan, and who may go now under the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from reconciler import __version__
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.certificate import digest_of
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftClass
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import PLAN_FORMAT, BlockCode, Goal, NodePlan, Plan, Scope, Totals
from reconciler.model.records import MARK_TAINT, Hold, NodeRecord
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Disruption, NodeState
from reconciler.planner.budget import Budget
from reconciler.planner.conditions import Context
from reconciler.planner.node import NodePlanner

VALID_FOR = timedelta(hours=2)  # conventions P12


def plan_fleet(
    fleet: Fleet,
    observation: Observation,
    records: Mapping[str, NodeRecord],
    *,
    now: datetime,
    ledger: str,
    plan_id: str,
    signatures: Mapping[tuple[str, str], bool | None],
    holds: tuple[Hold, ...] = (),
    scope: Scope | None = None,
    selected: Sequence[str] | None = None,
    estimates: Mapping[str, float] | None = None,
) -> Plan:
    """Plan the `selected` nodes (None: all of the fleet). Those not selected still count against the budget.

    `observation` holds an entry for each selected node, and at least the membership of the others.
    """
    wanted = fleet.nodes.keys() if selected is None else set(selected)
    names = [name for name in fleet.nodes if name in wanted]
    planner = node_planner(
        fleet, observation, now=now, ledger=ledger, signatures=signatures, holds=holds, estimates=estimates
    )
    plans = {
        name: planner.plan(fleet.nodes[name], observation.nodes[name], records.get(name) or NodeRecord(name))
        for name in names
    }
    budget = fleet_budget(fleet, observation)
    plans = schedule(plans, budget)
    incomplete = tuple(name for name, plan in plans.items() if plan.incomplete)
    rules = planner.comparer.rules
    return Plan(
        format_version=PLAN_FORMAT,
        tool_version=__version__,
        id=plan_id,
        created_at=now,
        expires_at=now + VALID_FOR * observation.time_scale,  # who approves it does not live as fast as a lab
        fleet=fleet.settings.fleet,
        source=fleet.source,
        scope=scope or Scope((), (), len(names), len(fleet.nodes)),
        incomplete=incomplete,
        tolerated=len(incomplete) <= parse_nodes(fleet.settings.tolerate, len(names)),
        nodes=plans,
        budget=fleet_budget(fleet, observation).lines(),
        totals=_totals(fleet, plans),
        fingerprint=digest_of({name: plan.fingerprint for name, plan in plans.items() if plan.actions}),
        insecure=fleet.settings.insecure,
        time_scale=observation.time_scale,
        notes=tuple(f"ignore rule for {rule.path} expired on {rule.expires}: {rule.reason}" for rule in rules.expired),
    )


def node_planner(
    fleet: Fleet,
    observation: Observation,
    *,
    now: datetime,
    ledger: str,
    signatures: Mapping[tuple[str, str], bool | None],
    holds: tuple[Hold, ...] = (),
    estimates: Mapping[str, float] | None = None,
) -> NodePlanner:
    """What `plan_fleet` plans nodes with; apply uses it to plan one node again from fresh facts."""
    context = Context(fleet.settings, ledger, now, signatures, answering_domains(fleet, observation))
    return NodePlanner(context, Comparer(IgnoreRules(fleet.settings.ignore, now)), holds, estimates or {})


def answering_domains(fleet: Fleet, observation: Observation) -> frozenset[str]:
    """Failure domains in which some host answers: a silent host there is silent on its own account (pitfall J6)."""
    return frozenset(
        f"{label}={value}"
        for name, observed in observation.nodes.items()
        if isinstance(observed.host, Answered) and name in fleet.nodes
        for label, value in fleet.nodes[name].domains.items()
    )


def serving(fleet: Fleet, observed: Observed | None) -> bool | None:
    """Whether a node is in service; None when that can't be read."""
    if observed is None:
        return None
    if fleet.settings.cluster is None:
        return isinstance(observed.host, Answered)
    if isinstance(observed.member, Silent):
        return None
    member = observed.member.value
    if member is None:
        return False
    return bool(member.ready) and not member.unschedulable and all(t.key != MARK_TAINT for t in member.taints)


def fleet_budget(fleet: Fleet, observation: Observation) -> Budget:
    """The budget as of this observation, over all active nodes, selected or not."""
    out, unknown = [], []
    for name in fleet.nodes:
        in_service = serving(fleet, observation.nodes.get(name))
        if in_service is None:
            unknown.append(name)
        elif not in_service:
            out.append(name)
    return Budget(fleet.settings.budgets, fleet.nodes, out=out, unknown=unknown)


def takes_out(plan: NodePlan) -> bool:
    """Whether the plan takes a node out of service that may be in it."""
    return plan.in_service is not False and any(
        action.name == "mark" or action.disruption >= Disruption.DRAIN for action in plan.actions
    )


def urgency(plan: NodePlan) -> int:
    """Who goes first when the budget is short: what is out already, then the sick, then drift, then renewals."""
    if plan.in_service is False:
        return 0
    if any(item.path.startswith("health.") for item in plan.drift):
        return 1
    renewal = all(
        item.kind in (DriftClass.RENEWAL, DriftClass.UNKNOWN, DriftClass.IGNORED, DriftClass.UNMANAGED)
        for item in plan.drift
    )
    return 3 if renewal else 2


def in_turn(plans: Mapping[str, NodePlan]) -> list[NodePlan]:
    """By urgency; among equals, pools take turns, so that no pool starves another (pitfall J7)."""
    place: dict[str, int] = {}
    keyed = []
    for plan in plans.values():
        at = place[plan.pool] = place.get(plan.pool, -1) + 1
        keyed.append(((urgency(plan), at, plan.pool), plan))
    return [plan for _, plan in sorted(keyed, key=lambda pair: pair[0])]


def schedule(plans: Mapping[str, NodePlan], budget: Budget) -> dict[str, NodePlan]:
    """Say of each plan that takes a node out whether it may go now (wave 0), or in which batch and why not now."""
    verdicts: dict[str, NodePlan] = {}
    queued: dict[str, int] = {}
    for plan in in_turn(plans):
        if not takes_out(plan) or plan.goal is Goal.NOTHING:
            continue
        blocked = budget.allows(plan.node)
        if blocked is None:
            budget.charge(plan.node)
            if plan.blocked is not None and plan.blocked.code is BlockCode.BUDGET:
                verdicts[plan.node] = replace(plan, wave=0, blocked=None)  # an earlier verdict, which holds no more
            continue
        wave = 1
        for name, limit in budget.groups_of(plan.node):
            wave = max(wave, 1 + queued.get(name, 0) // max(1, limit))
            queued[name] = queued.get(name, 0) + 1
        standing = plan.blocked if plan.blocked is not None and plan.blocked.code is not BlockCode.BUDGET else None
        verdicts[plan.node] = replace(plan, wave=wave, blocked=standing or blocked)
    return {name: verdicts.get(name, plan) for name, plan in plans.items()}


def _totals(fleet: Fleet, plans: Mapping[str, NodePlan]) -> Totals:
    longest: dict[int, float] = {}
    disrupted, gpu_hours = 0, 0.0
    for plan in plans.values():
        seconds = sum(action.estimate_s for action in plan.actions)
        wave = plan.wave or 0
        longest[wave] = max(longest.get(wave, 0.0), seconds)
        if takes_out(plan) or plan.disruption >= Disruption.DRAIN:
            disrupted += 1
            gpu_hours += seconds / 3600 * (fleet.nodes[plan.node].profile.inventory.gpus or 0)
    return Totals(
        nodes_with_changes=sum(plan.changes for plan in plans.values()),
        nodes_disrupted=disrupted,
        nodes_blocked=sum(plan.blocked is not None for plan in plans.values() if _counts(fleet.nodes[plan.node], plan)),
        nodes_unknown=sum(bool(plan.incomplete) for plan in plans.values()),
        gpu_hours_out=round(gpu_hours, 2),
        finish_s=sum(longest.values()),
    )


def _counts(desired: Desired, plan: NodePlan) -> bool:
    """quarantined and retired nodes leave every count; waiting for the budget is not being blocked."""
    return desired.state is NodeState.ACTIVE and plan.blocked is not None and plan.blocked.code is not BlockCode.BUDGET
