"""The `status` use case: how the fleet stands now, and what runs. Nodes and ledger are read, and nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler import __version__
from reconciler.app.k3s_overview import k3s_overview
from reconciler.app.runtime import new_id
from reconciler.app.under_way import under_way
from reconciler.app.workspace import Workspace
from reconciler.converge.status import fleet_status
from reconciler.model.fleet_overview import (
    STATUS_FORMAT,
    ClusterOverview,
    FleetOverview,
    Holder,
    NodeCounts,
    RolloutOverview,
    Trouble,
    Work,
)
from reconciler.model.observed import Answered, Member, Observation, Silent
from reconciler.model.plan import NodePlan, Plan, RolloutPlan, WaveState
from reconciler.model.records import BMC_SCOPE, Lease, NodeRecord
from reconciler.model.status import FleetStatus, NodeStatus
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.observer_outage import observer_outage

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


def fleet_overview(workspace: Workspace, file: Path | None, seen: Observation | None = None) -> FleetOverview:
    """Return the status of the selected nodes, as they are now or as in the observation `file`.

    `seen`: an observation made just now, in place of a new one.
    """
    workspace.check_selection()
    found = seen if seen is not None else workspace.observation(file)
    with workspace.present_ledger() as ledger:
        if file is None:
            workspace.foresee(found, ledger)
        plan = workspace.make_plan(found, ledger, new_id("status", workspace.clock.now()))
        return overview_of(workspace, ledger, plan, found)


def with_work(workspace: Workspace, overview: FleetOverview) -> FleetOverview:
    """Return the overview with what runs by now: the ledger is read, and no node."""
    ends = {one.node: one.end for one in overview.work}
    with workspace.present_ledger() as ledger:
        work, who = _work(workspace, ledger, lambda one: ends.get(one.node)), holders(workspace, ledger)
    return replace(overview, work=work, holders=who, generated_at=workspace.clock.now())


def overview_of(workspace: Workspace, ledger: SqlLedger, plan: Plan, seen: Observation) -> FleetOverview:
    """Return the status as a plan and the observation that it was made from tell it."""
    now = workspace.clock.now()
    work = _work(workspace, ledger, lambda one: expected_end(plan.nodes[one.node], one, now))
    status = fleet_status(plan, seen, acting={one.node for one in work})
    pools = dict.fromkeys(node.pool for node in plan.nodes.values())
    outage = observer_outage(workspace.watched, seen)
    return FleetOverview(
        format_version=STATUS_FORMAT,
        tool_version=__version__,
        fleet=plan.fleet,
        source=plan.source,
        generated_at=now,
        started_at=seen.started_at,
        finished_at=seen.finished_at,
        scope=plan.scope,
        counts=_counts(plan.nodes.values(), status),
        pools={pool: _counts((node for node in plan.nodes.values() if node.pool == pool), status) for pool in pools},
        isolated=sum(status.isolated.values()),
        incomplete=plan.incomplete,
        tolerated=plan.tolerated,
        budget=tuple(line for line in plan.budget if line.scope == "fleet"),
        work=work,
        holders=holders(workspace, ledger),
        rollouts=tuple(map(_rollout, plan.rollouts)),
        incidents=plan.incidents,
        trouble=tuple(_trouble(plan, status)),
        clusters=tuple(_clusters(workspace, plan, seen)),
        silent={f"{source} {reason}": many for (source, reason), many in sorted(status.silent.items())},
        finish_s=plan.totals.finish_s,
        refused=plan.refused,
        stopped=plan.stopped,
        braked=plan.braked,
        insecure=plan.insecure,
        time_scale=plan.time_scale,
        notes=(outage,) if outage else (),
        spares=plan.spares,
        releases=plan.releases,
    )


def _counts(plans: Iterable[NodePlan], status: FleetStatus) -> NodeCounts:
    nodes = list(plans)
    return NodeCounts(
        len(nodes),
        sum(node.in_service is True for node in nodes),
        sum(node.in_service is False for node in nodes),
        Counter(status.nodes[node.node].status for node in nodes),
    )


def _work(workspace: Workspace, ledger: SqlLedger, end_of: Callable[[Work], datetime | None]) -> tuple[Work, ...]:
    """Return the unfinished actions on the selected nodes. The newest of a node is the one that runs."""
    names = set(workspace.selection[0])
    far = under_way(ledger, workspace.clock.now())
    running = {
        node: f"{action}:{target}" if target else action
        for _, node, action, target, _ in ledger.unfinished()
        if node in names
    }
    records = ledger.nodes(sorted(running))
    found = (Work(node, action, far.get(node, ""), _begun(records[node])) for node, action in sorted(running.items()))
    return tuple(replace(one, end=end_of(one)) for one in found)


def _begun(record: NodeRecord) -> datetime | None:
    newest = record.attempts[-1] if record.attempts else None
    return newest.begun if newest is not None and newest.ended_at is None else None


def expected_end(plan: NodePlan, work: Work, now: datetime) -> datetime | None:
    """Return when the node of the work is expected to be done with it and what follows; None: nobody can say.

    A plan counts the action that runs as if it began now, except for what it waits for others. A soak knows its own
    end, which `Work.far` tells.
    """
    if plan.end is None or (work.action == "run_gate" and work.far):
        return None
    first = plan.actions[0] if plan.actions else None
    if first is None or first.id != work.action or work.since is None:
        return plan.end
    over = min((now - work.since).total_seconds(), first.estimate_s - first.waits_s)
    return plan.end - timedelta(seconds=max(over, 0.0))


def holders(workspace: Workspace, ledger: SqlLedger) -> tuple[Holder, ...]:
    """Return who holds the lease of a fleet; leases of BMCs follow from what runs."""
    now = ledger.lease_time(workspace.clock.now())
    held = [one for one in ledger.leases() if one.expires_at > now and not one.scope.startswith(BMC_SCOPE)]
    return tuple(Holder(one.scope, one.holder, one.since, one.expires_at) for one in sorted(held, key=_scope))


def _scope(lease: Lease) -> str:
    return lease.scope


def _rollout(rollout: RolloutPlan) -> RolloutOverview:
    done = [wave for wave in rollout.waves if wave.state is WaveState.DONE]
    ends = [wave.end for wave in rollout.waves if wave.end is not None]
    unsure = any(wave.end is None for wave in rollout.waves if wave.state is not WaveState.DONE)
    return RolloutOverview(
        rollout.pool,
        min(len(done) + 1, len(rollout.waves)),
        len(rollout.waves),
        sum(len(wave.nodes) for wave in done),
        sum(len(wave.nodes) for wave in rollout.waves),
        rollout.rollback,
        rollout.halted,
        None if unsure else max(ends, default=None),
    )


def _trouble(plan: Plan, status: FleetStatus) -> Iterable[Trouble]:
    for name, node in plan.nodes.items():
        found = status.nodes[name].status
        if found is not NodeStatus.BLOCKED and not node.waits_for_person:
            continue
        blocked = node.blocked
        why = blocked.detail if blocked is not None else node.situation
        yield Trouble(name, node.pool, found, None if blocked is None else blocked.code, why)


def _clusters(workspace: Workspace, plan: Plan, seen: Observation) -> Iterable[ClusterOverview]:
    access = workspace.fleet.settings.cluster
    if access is None:
        return
    readings = [seen.nodes[name].member for name in plan.nodes]
    members = [one.value for one in readings if isinstance(one, Answered) and one.value is not None]
    control_plane: Mapping[str, bool] = seen.control_plane
    yield ClusterOverview(
        access.name,
        seen.cluster_version,
        _unread(readings),
        sum(member.ready is True for member in members),
        sum(member.ready is not True for member in members),
        sum(member.unschedulable for member in members),
        sum(isinstance(one, Answered) and one.value is None for one in readings),
        Counter(member.kubelet_version for member in members if member.kubelet_version),
        sum(control_plane.values()),
        len(control_plane),
        k3s_overview(workspace.fleet, plan.nodes, seen),
    )


def _unread(readings: Iterable[Answered[Member | None] | Silent]) -> str:
    """Return why the bulk read of the cluster failed; "" when it answered, as it does for all nodes or for none."""
    silent: list[Any] = []
    for one in readings:
        if isinstance(one, Answered):
            return ""
        if one.reason is not UnknownReason.NOT_ASKED:
            silent.append(one)
    return f"{silent[0].reason}: {silent[0].detail}" if silent else ""
