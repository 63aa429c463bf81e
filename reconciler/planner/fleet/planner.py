"""The plan of a fleet: every node's plan, and which of them may begin now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

from reconciler import __version__
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.cohort import peerless_sentence, without_peers
from reconciler.health.peer_ports import PoolPorts, ports_of_pools
from reconciler.model.desired import Desired, Fleet
from reconciler.model.inputs import RECIPE, fingerprint_of
from reconciler.model.observed import Observation, Silent
from reconciler.model.plan import PLAN_FORMAT, Blocked, NodePlan, Plan, Scope, Totals
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Disruption, NodeState
from reconciler.planner.fleet.carried import workload_costs
from reconciler.planner.fleet.domain_incidents import Look, active_incidents, as_incident, by_node
from reconciler.planner.fleet.gate_forecast import gate_forecast
from reconciler.planner.fleet.guards import refusals
from reconciler.planner.fleet.health_rows import weakened_rows
from reconciler.planner.fleet.isolation import Isolation, isolate, isolation_signals
from reconciler.planner.fleet.live_permit import LivePermit, LiveRollouts
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.permit import takes_out
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.release_plans import plan_releases
from reconciler.planner.fleet.rollouts import Rollouts, pending
from reconciler.planner.fleet.spares import Spares, as_spare, promotion, unheeded
from reconciler.planner.fleet.timeline import Timetable, out_s, timetable
from reconciler.planner.fleet.windows import glass_broken
from reconciler.planner.fleet.work_queue import schedule
from reconciler.planner.node.bmc_password import passwords_to_rotate
from reconciler.planner.node.bmc_reset import bmc_to_reset
from reconciler.planner.node.conditions import Context
from reconciler.planner.node.corroboration import host_is_own
from reconciler.planner.node.holds import braked, by_subject, is_active, retracted, stopped
from reconciler.planner.node.kept_plans import KeptPlans
from reconciler.planner.node.node_inputs import Basis
from reconciler.planner.node.planner import NodePlanner
from reconciler.planner.node.shard_plans import Place, ShardPlanner, shards_to_plan
from reconciler.planner.node.signal_cache import SignalCache

VALID_FOR = timedelta(hours=2)  # of real time, in which people approve; a lab's may run faster (conventions P12)


def plan_fleet(
    fleet: Fleet,
    observation: Observation,
    ledger: LedgerSnapshot,
    now: datetime,
    request: PlanRequest,
    kept: KeptPlans | None = None,
) -> Plan:
    """Plan the selected nodes. Those not selected still count against the budget.

    `observation` holds an entry for each selected node, and at least the membership of the others. `kept`: plans of
    nodes from earlier passes, which make this one faster and no other.
    """
    return plan_with_planner(fleet, observation, ledger, now, request, kept)[0]


def plan_with_planner(
    fleet: Fleet,
    observation: Observation,
    ledger: LedgerSnapshot,
    now: datetime,
    request: PlanRequest,
    kept: KeptPlans | None = None,
) -> tuple[Plan, NodePlanner]:
    """Plan as `plan_fleet` does, and return also the planner of single nodes. It keeps no plans."""
    names = request.names(fleet)
    certified = [(node, ledger.record(name).certificate) for name, node in fleet.nodes.items()]
    planner = node_planner(fleet, observation, ledger, now, request, kept)
    plans, whole, changing = _node_plans(fleet, observation, ledger, names, planner, kept)
    isolation = Isolation(fleet, observation, ledger.records, now)
    isolated, incidents = isolate(isolation, plans, observation.nodes, ledger.records)
    plans |= isolated
    spares = _keep_spares(fleet, observation, ledger, plans, planner)
    permit = LivePermit(fleet, observation, ledger.records, plans, now).now(now, changing, braked(planner.holds, now))
    lines, out_before = permit.budget.lines(), permit.budget.seen_out  # before the plans are charged to it
    times = timetable(schedule(plans, permit), permit, changing.plans, changing.missing)
    forecast = gate_forecast(fleet, plans, ledger.records, planner.context)
    incomplete = tuple(name for name, plan in plans.items() if plan.incomplete)
    plan = Plan(
        format_version=PLAN_FORMAT,
        tool_version=__version__,
        id=request.id,
        created_at=now,
        expires_at=now + VALID_FOR * observation.time_scale,
        fleet=fleet.settings.fleet,
        source=fleet.source,
        scope=request.scope or Scope((), (), len(names), len(fleet.nodes)),
        incomplete=incomplete,
        tolerated=len(incomplete) <= parse_nodes(fleet.settings.tolerate, len(names)),
        nodes=times.nodes,
        budget=lines,
        totals=_totals(fleet, times, observation, out_before),
        fingerprint=fingerprint_of(plans),
        insecure=tuple(dict.fromkeys((*fleet.settings.insecure, *observation.insecure))),
        time_scale=observation.time_scale,
        notes=(
            *_notes(fleet, observation, planner.comparer.rules, now),
            *map(peerless_sentence, without_peers(certified)),
            *forecast.notes,
        ),
        refused=refusals(fleet, plans, whole, ledger.records, ledger.known, forecast),
        rollouts=times.rollouts,
        stopped=_detail(stopped(planner.holds, now)),
        braked=_detail(permit.brake),
        incidents=(*planner.context.incidents, *incidents),
        workloads=workload_costs(fleet, observation, plans),
        recipe=RECIPE,
        spares=spares.lines(),
        releases=plan_releases(fleet.settings.releases, observation.releases, now, {}),
        shared={key: planner.shared[key] for key in sorted({plan.shared for plan in plans.values() if plan.shared})},
    )
    return plan, planner


def _node_plans(
    fleet: Fleet,
    observation: Observation,
    ledger: LedgerSnapshot,
    names: Sequence[str],
    planner: NodePlanner,
    kept: KeptPlans | None,
) -> tuple[dict[str, NodePlan], Mapping[str, NodePlan], Rollouts]:
    """Return the nodes' plans, the full plans of those below, and the rollouts.

    Where the spec's changes of a node wait for their wave, and it has other work, its plan is of that work only.
    """
    plans, rests = {}, {}
    plan_parts = planner.plan_parts if kept is None else kept.begin(planner, _basis(fleet, planner)).plan_parts
    for name in names:
        plans[name], rest = plan_parts(fleet.nodes[name], observation.nodes[name], ledger.record(name))
        if rest is not None:
            rests[name] = rest
    now, pools = planner.context.now, {plan.pool for plan in plans.values() if pending(plan)}
    rollouts = LiveRollouts(fleet, observation, plans, ledger.records, now, pools)
    changing = rollouts.now(ledger.rollouts, planner.holds, now)
    whole = {name: plans[name] for name in rests if changing.refusal(plans[name]) is not None}
    plans |= {name: rests[name] for name in whole}
    return plans, whole, changing


async def plan_ahead(
    fleet: Fleet, observation: Observation, ledger: LedgerSnapshot, now: datetime, request: PlanRequest,
    kept: KeptPlans, places: Mapping[str, Place], workers: ShardPlanner,
) -> None:  # fmt: skip
    """Have nodes that nobody has planned yet planned by workers, and keep those plans that do nothing in `kept`.

    They are what `plan_fleet` would make of the same inputs; where it finds other ones, it plans anew.
    """
    planner = node_planner(fleet, observation, ledger, now, request, kept)
    keeper = kept.begin(planner, _basis(fleet, planner))
    nodes = {
        name: (fleet.nodes[name], observation.nodes[name], ledger.record(name))
        for name in request.names(fleet)
        if name in observation.nodes and keeper.lacks(name)
    }
    shards = shards_to_plan(nodes.values(), places, planner)
    for name, (plan, valid_until) in (await workers.plan(shards) if shards else {}).items():
        keeper.put(*nodes[name], plan, valid_until)


def _basis(fleet: Fleet, planner: NodePlanner) -> Basis:
    context = planner.context
    rules = planner.comparer.rules.valid
    return Basis(fleet, context.ledger, context.signatures, context.endpoints, planner.holds, rules)


def _keep_spares(
    fleet: Fleet, observation: Observation, ledger: LedgerSnapshot, plans: dict[str, NodePlan], planner: NodePlanner
) -> Spares:
    """Decide which nodes are kept as spares and which are promoted, and put that into `plans`."""
    spares = Spares(fleet)
    spares.take(plans, observation.nodes, suspected=True, unheeded=unheeded(plans, planner.holds, planner.context.now))
    for name in spares.kept & plans.keys():
        plans[name] = as_spare(planner, name).plan(fleet.nodes[name], observation.nodes[name], ledger.record(name))
    for name, failed in spares.promoted.items():
        plans[name] = promotion(plans[name], failed)
    return spares


def _detail(blocked: Blocked | None) -> str:
    return "" if blocked is None else blocked.detail


def _notes(fleet: Fleet, observation: Observation, rules: IgnoreRules, now: datetime) -> tuple[str, ...]:
    notes = [outage] if (outage := observer_outage(fleet, observation)) else []
    notes += [f"ignore rule for {rule.path} expired on {rule.expires}: {rule.reason}" for rule in rules.expired]
    glass = fleet.settings.break_glass
    if glass is not None and glass_broken(glass, now):
        notes.append(f"BREAK GLASS: windows are lifted until {glass.until} by {glass.by}: {glass.reason}")
    elif glass is not None:
        notes.append(f"breakGlass of {glass.by} ended at {glass.until}: take it out of the spec")
    notes += weakened_rows(fleet, rules.expired)
    over = [hold for hold in fleet.holds if not is_active(hold, now)]
    notes += [f"hold of {h.subject} by {h.owner} ended at {h.until}: take it out of {h.position}" for h in over]
    return tuple(notes)


def node_planner(
    fleet: Fleet,
    observation: Observation,
    ledger: LedgerSnapshot,
    now: datetime,
    request: PlanRequest,
    kept: KeptPlans | None = None,
) -> NodePlanner:
    """Return the planner of single nodes; apply uses it to plan one node again from fresh facts."""
    domains = answering_domains(fleet, observation)
    rules, holds = IgnoreRules(fleet.settings.ignore, now), by_subject(fleet.holds, ledger.holds)
    wrong, cache = retracted(holds, now), SignalCache() if kept is None else kept.signals

    def counts(node: Desired, path: str) -> bool:
        return path not in wrong and rules.match(node, path) is None

    found = active_incidents(Look(fleet, observation, ledger.records, now, cache, counts))
    bmc = bmc_to_reset(fleet.nodes, observation.nodes, ledger.records, now)
    context = Context(
        fleet.settings, ledger.id, now, request.signatures, domains, request.endpoints, signals=cache,
        incidents=tuple(map(as_incident, found)), of_domain=by_node(found),
        pool_ports=_pool_ports(fleet, observation), bmc_to_reset=bmc,
        passwords_to_rotate=passwords_to_rotate(fleet, observation.nodes, ledger.records, now),
    )  # fmt: skip
    return NodePlanner(context, Comparer(rules), holds, request.estimates)


def _pool_ports(fleet: Fleet, observation: Observation) -> Mapping[str, PoolPorts]:
    """Return the ports of each pool, of the nodes that were read and that the spec wants to serve."""
    seen = ((fleet.nodes.get(name), one.host) for name, one in observation.nodes.items())
    return ports_of_pools(
        (node.pool, host.value.links)
        for node, host in seen
        if node is not None and node.state is NodeState.ACTIVE and not isinstance(host, Silent)
    )


def answering_domains(fleet: Fleet, observation: Observation) -> frozenset[str]:
    """Return the failure domains in which some host answers: another host there that is silent is down (pitfall J6).

    A host counts only if it is the machine that the spec means: its serial number is that of the spec or of its BMC.
    For a node that is alone in all of its domains, any host of the fleet counts as a neighbour: otherwise nobody could
    ever tell that it is down.
    """
    found: set[tuple[str, str]] = set()
    for name, seen in observation.nodes.items():
        node = fleet.nodes.get(name)
        if node is not None and not found.issuperset(node.domains.items()) and host_is_own(node, seen):
            found.update(node.domains.items())
    if found:
        members = Counter(chain.from_iterable(node.domains.items() for node in fleet.nodes.values()))
        of_one = {domain for domain, count in members.items() if count == 1}
        alone = (node for node in fleet.nodes.values() if of_one and of_one.issuperset(node.domains.items()))
        found.update(domain for node in alone for domain in node.domains.items())
    return frozenset(f"{label}={value}" for label, value in found)


def _totals(fleet: Fleet, times: Timetable, observation: Observation, out_before: int) -> Totals:
    plans = times.nodes.values()
    acting = [plan for plan in plans if plan.actions]
    disrupted = [plan for plan in acting if takes_out(plan) or plan.disruption >= Disruption.DRAIN] + list(times.later)
    gpu_s = sum(out_s(plan) * (fleet.nodes[plan.node].profile.inventory.gpus or 0) for plan in disrupted)
    return Totals(
        nodes_with_changes=len(acting),
        nodes_disrupted=len({plan.node for plan in disrupted}),
        nodes_blocked=sum(plan.blocked is not None for plan in plans if _counts(fleet.nodes[plan.node], plan)),
        nodes_unknown=sum(bool(plan.incomplete) for plan in plans),
        gpu_hours_out=round(gpu_s / 3600, 2),
        finish_s=times.finish_s,
        nodes_out_peak=times.peak,
        nodes_out_before=out_before,
        nodes_isolated=sum(
            bool(plan.isolation or isolation_signals(observation.nodes[plan.node]))
            for plan in plans
            if fleet.nodes[plan.node].state is NodeState.ACTIVE
        ),
    )


def _counts(desired: Desired, plan: NodePlan) -> bool:
    """Return whether a node counts as blocked: it is active, and more than time is needed."""
    return desired.state is NodeState.ACTIVE and plan.blocked is not None and not plan.blocked.code.passes
