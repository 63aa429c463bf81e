"""The permit of a fleet, made from an observation and kept current while a run goes on.

A plan asks it once. A run tells it what changes, one node at a time, and nothing is counted anew; what it answers then
is what it would answer if it were made again from all that is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reconciler.gate.asked import kept_values
from reconciler.model.desired import Fleet
from reconciler.model.k3s import DeprecatedApi, DesiredK3s, K3sFacts
from reconciler.model.k3s_datastore import database_of, other_datastore
from reconciler.model.observed import Answered, Observation, Observed, Silent, was_asked
from reconciler.model.plan import Blocked, NodePlan
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, NodeRecord, Rollout, is_spare, read_mark
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.budget import Budget
from reconciler.planner.fleet.carried import carried
from reconciler.planner.fleet.k3s_order import K3sOrder
from reconciler.planner.fleet.kubelet_order import KubeletOrder
from reconciler.planner.fleet.permit import Permit
from reconciler.planner.fleet.rollout_member import RolloutMember, rollout_member
from reconciler.planner.fleet.rollouts import Progress, Rollouts, pending, rollouts
from reconciler.planner.fleet.serving_groups import may_lack
from reconciler.planner.fleet.taken_out import taken_out
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.node.holds import Holds, end_of
from reconciler.planner.node.serving import serving_status


def in_service(fleet: Fleet, observed: Observed | None) -> bool | None:
    """Return whether a node is in service; None when that can't be read."""
    if observed is None:
        return None
    if fleet.settings.cluster is None:
        return isinstance(observed.host, Answered) if was_asked(observed) else None
    if isinstance(observed.member, Silent):
        return None
    member = observed.member.value
    if member is None:
        return False
    return bool(member.ready) and not member.unschedulable and all(t.key != MARK_TAINT for t in member.taints)


def serves(fleet: Fleet, observed: Observed | None) -> bool | None:
    """Return whether a node is in service, or serves as a spare, which uses up no limit."""
    return True if kept_as_spare(fleet, observed) else in_service(fleet, observed)


def kept_as_spare(fleet: Fleet, observed: Observed | None) -> bool:
    """Return whether the node's mark says that it is a spare, whoever set it."""
    if observed is None or isinstance(observed.member, Silent) or observed.member.value is None:
        return False
    annotation = observed.member.value.annotations.get(OWNER_ANNOTATION)
    return annotation is not None and is_spare(read_mark(annotation), fleet.nodes[observed.node].persona)


def _kubelets_of_images(fleet: Fleet) -> dict[str, str]:
    """Return node -> the kubelet of its image, of nodes in a Kubernetes that the reconciler does not install."""
    cluster = fleet.settings.cluster
    if cluster is None or not cluster.kubernetes:
        return {}
    images = {name: node.profile.image for name, node in fleet.nodes.items() if node.profile.k3s is None}
    return {name: found for name, image in images.items() if image and (found := image.contents.get("kubelet"))}


class LivePermit:
    """Budget and windows over all active nodes of the fleet, selected or not.

    `plans`: of the nodes that were looked at; they tell who is isolated only, and who waits for a person. Reserved
    nodes count as out of service, whatever is observed of them.
    """

    def __init__(
        self,
        fleet: Fleet,
        observation: Observation,
        records: Mapping[str, NodeRecord],
        plans: Mapping[str, NodePlan],
        now: datetime,
    ) -> None:
        self._fleet = fleet
        self._budget = Budget(
            fleet.settings.budgets,
            fleet.nodes,
            now,
            fleet.settings.floors,
            taken_out(records, fleet.settings),
            fleet.settings.reserves,
        )
        self._reserved: set[str] = set()
        self._ran: dict[str, frozenset[str]] = {}  # the workloads of reserved nodes, when they were reserved
        self._others: Mapping[str, bool] = dict(observation.control_plane)
        self._k3s = {
            name: node.profile.k3s
            for name, node in fleet.nodes.items()
            if node.profile.k3s is not None and node.state is NodeState.ACTIVE
        }
        self._versions: dict[str, str] = {}
        self._server = observation.cluster_version
        self._kubelets: dict[str, str] = {}  # of active nodes in the control plane
        self._registered: dict[str, str] = {}  # of all nodes of the fleet in the cluster -> kubelet
        self._images = _kubelets_of_images(fleet)
        self._deprecated: dict[str, tuple[DeprecatedApi, ...] | None] = {}
        self._elsewhere: dict[str, str] = {}  # servers -> why they can't keep their state where the spec says
        self._in_database: dict[str, str] = {}  # servers that keep it in a database -> HOST:PORT of it; "" = not told
        self._elected: dict[str, bool] = {}  # nodes of the fleet that are in the control plane -> ready
        for name in sorted(fleet.nodes):
            seen = observation.nodes.get(name)
            self._budget.see(name, self._serves(seen, plans.get(name)))
            self._see_workloads(name, seen)
            if fleet.nodes[name].serving is not None and (record := records.get(name)) is not None:
                self._budget.see_restored(name, serving_status(record).whole)
            if seen is not None:
                self._see_election(seen)
            if (plan := plans.get(name)) is not None:
                self._see_plan(plan)
        self._count_members()

    def see(self, observed: Observed, plan: NodePlan | None = None) -> None:
        """Take in another look at a node, with the plan made of it."""
        name = observed.node
        serves = self._serves(observed, plan)
        self._budget.see(name, serves and name not in self._reserved)
        self._see_workloads(name, observed)
        if plan is not None:
            self._see_plan(plan)
        was_external = self._external
        if self._see_election(observed) or self._external != was_external:
            self._count_members()

    def see_control_plane(self, members: Mapping[str, bool]) -> None:
        """Take in the readiness of control-plane members that the fleet does not act upon."""
        self._others = dict(members)
        self._count_members()

    def _serves(self, observed: Observed | None, plan: NodePlan | None) -> bool | None:
        """Return whether a node is in service. Without a cluster, its plan knows that it was drained."""
        found = serves(self._fleet, observed)
        alone = self._fleet.settings.cluster is None and plan is not None and plan.in_service is False
        return False if found and alone else found

    def _see_plan(self, plan: NodePlan) -> None:
        if plan.isolated and plan.node not in self._reserved:
            self._budget.isolate(plan.node)
        self._budget.see_stuck(plan.node, plan.waits_for_person)
        if plan.in_service:
            self._budget.see_restored(plan.node, not may_lack(plan))

    def _see_workloads(self, node: str, observed: Observed | None) -> None:
        """Take in what a node carries, and of a reserved one what it carried: its mark may not say so yet."""
        self._budget.see_workloads(node, carried(observed) | self._ran.get(node, frozenset()))

    def _see_election(self, seen: Observed) -> bool:
        member = seen.member.value if isinstance(seen.member, Answered) else None
        if seen.node in self._k3s and isinstance(seen.host, Answered) and seen.host.value.k3s is not None:
            self._deprecated[seen.node] = seen.host.value.k3s.deprecated
            self._see_datastore(seen.node, self._k3s[seen.node], seen.host.value.k3s)
        if seen.node in self._k3s and isinstance(seen.member, Answered):
            self._versions[seen.node] = "" if member is None else member.kubelet_version
            if member is None and self._elected.pop(seen.node, None) is not None:
                return True
        node = self._fleet.nodes.get(seen.node)
        if node is None or member is None:
            return False
        self._registered[seen.node] = member.kubelet_version
        if not member.control_plane:
            return False
        self._elected[seen.node] = bool(member.ready)
        if node.state is NodeState.ACTIVE:
            self._kubelets[seen.node] = member.kubelet_version
        return True

    def _see_datastore(self, node: str, wanted: DesiredK3s, found: K3sFacts) -> None:
        if why := other_datastore(wanted, found):
            self._elsewhere[node] = why
        else:
            self._elsewhere.pop(node, None)
        if (database := database_of(found)) is None:
            self._in_database.pop(node, None)
        else:
            self._in_database[node] = database

    @property
    def _external(self) -> bool:
        """Return whether the cluster has its state in a database, as its servers show, and not in etcd."""
        return bool(self._in_database) and not self._elsewhere

    def _count_members(self) -> None:
        members = {**self._others, **self._elected}
        only = self._k3s.get(next(iter(members))) if len(members) == 1 else None
        downtime = only is not None and only.allow_downtime
        self._budget.see_control_plane(members, downtime=downtime, quorum=not self._external)

    def reserve(self, node: str) -> None:
        """Count a node as out of service that is about to be taken out."""
        self._reserved.add(node)
        self._ran[node] = self._budget.carried(node)
        self._budget.charge(node)

    def isolate(self, node: str) -> None:
        """Count a node as out of service that is about to be isolated."""
        self._budget.see(node, False)
        self._budget.isolate(node)

    def release(self, observed: Observed, plan: NodePlan | None = None) -> None:
        """End the reservation of a node: from now on it counts as it is observed."""
        self._reserved.discard(observed.node)
        self._ran.pop(observed.node, None)
        self.see(observed, plan)

    def now(self, now: datetime, waves: Rollouts, brake: Blocked | None = None) -> Permit:
        """Return the permit as of `now`. It shares this object's budget."""
        settings = self._fleet.settings
        self._budget.move_to(now)
        windows = Windows(settings.windows, settings.break_glass, now)
        kubelets = KubeletOrder(self._images, self._server, self._kubelets, self._registered)
        return Permit(self._budget, windows, now, waves, brake, self._order(), kubelets)

    def _order(self) -> K3sOrder:
        if not self._k3s:
            return K3sOrder()
        versions = {name: version for name, version in self._versions.items() if version}
        ready = {**self._others, **self._elected}
        return K3sOrder(
            self._k3s, versions, ready, frozenset(self._reserved), self._deprecated, self._elsewhere, self._in_database
        )


@dataclass(slots=True)
class _Pool:
    """The rollout of one pool, and all active members of the pool.

    `names`: theirs. `members`: while nothing is pending in the pool, only those that were taken in since, as nobody
    asks for the others. `missing`: by wave, the members that it still waits for. `until`: when time alone may change
    something.
    """

    names: list[str] = field(default_factory=list)
    members: dict[str, RolloutMember] = field(default_factory=dict)
    pending: bool = False
    progress: Progress | None = None
    missing: dict[int, set[str]] = field(default_factory=dict)
    until: datetime | None = None
    stale: bool = True


class LiveRollouts:
    """The rollouts of some pools. A pool is judged again only when something may matter to a node that waits.

    `pools`: those in question; None = all. `observation` must not change meanwhile: members of a pool in which nothing
    is pending are judged by it when something is.
    """

    def __init__(
        self,
        fleet: Fleet,
        observation: Observation,
        plans: Mapping[str, NodePlan],
        records: Mapping[str, NodeRecord],
        now: datetime,
        pools: Collection[str] | None = None,
    ) -> None:
        self._fleet = fleet
        self._values: dict[str, Mapping[str, Any]] = {}
        self._pools: dict[str, _Pool] = {}
        self._holds: Holds = {}
        self._begun = observation.nodes, dict(plans), records, now
        for name, node in fleet.nodes.items() if pools is None or pools else ():
            if node.state is NodeState.ACTIVE and (pools is None or node.pool in pools):
                pool, plan = self._pools.setdefault(node.pool, _Pool()), plans.get(name)
                pool.names.append(name)
                pool.pending = pool.pending or plan is None or (bool(plan.drift) and bool(pending(plan)))
        for pool in self._pools.values():
            if pool.pending:
                self._judge_all(pool)

    def _judge_all(self, pool: _Pool) -> None:
        """Judge the members that were not taken in since, by what was known at the beginning."""
        seen, plans, records, now = self._begun
        known = pool.members
        pool.pending, pool.members = True, {
            name: known.get(name)
            or self._member(name, seen.get(name), plans.get(name), records.get(name) or NodeRecord(name), now)
            for name in pool.names
        }  # fmt: skip

    def _member(
        self, name: str, observed: Observed | None, plan: NodePlan | None, record: NodeRecord, now: datetime
    ) -> RolloutMember:
        node = self._fleet.nodes[name]
        values = self._values.get(node.profile.digest)
        if values is None:
            values = self._values[node.profile.digest] = kept_values(node.profile)
        return rollout_member(node, values, plan, record, serves(self._fleet, observed), now)

    def see(self, observed: Observed, plan: NodePlan | None, record: NodeRecord, now: datetime) -> None:
        """Take in a node that was worked on, or looked at again."""
        name = observed.node
        node = self._fleet.nodes[name]
        pool = self._pools.get(node.pool)
        if pool is None or node.state is not NodeState.ACTIVE:
            return
        found = pool.members[name] = self._member(name, observed, plan, record, now)
        if found.pending and not pool.pending:
            self._judge_all(pool)
        pool.stale = pool.stale or self._matters(pool, found)

    def begun(self, pool: str) -> None:
        """Take in that the pool's rollout is on record now."""
        self._pools[pool].stale = True

    @staticmethod
    def _matters(pool: _Pool, found: RolloutMember) -> bool:
        """Return whether the pool has to be judged again: not while its wave waits for others, and so does not end."""
        progress = pool.progress
        if progress is None:
            return bool(found.pending)
        wave = progress.wave_of.get(found.node)
        if wave is None or not found.settled or found.failed_since(progress.rollout.started_at):
            return True
        missing = pool.missing.get(wave, set())
        missing.discard(found.node)
        return not missing

    def now(self, recorded: Mapping[str, Rollout], holds: Holds, now: datetime) -> Rollouts:
        """Return how far each rollout has come. `recorded`: the newest rollout of each pool, as in the ledger."""
        held_anew = holds != self._holds
        self._holds = holds
        for name, pool in self._pools.items():
            if held_anew or pool.stale or (pool.until is not None and pool.until <= now):
                pool.progress = rollouts(self._fleet, pool.members, recorded, holds, now).by_pool.get(name)
                pool.missing = _missing(pool.progress)
                pool.until = _until(pool.progress, holds, now)
                pool.stale = False
        return Rollouts({name: pool.progress for name, pool in self._pools.items() if pool.progress is not None})


def _missing(progress: Progress | None) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for name in progress.missing if progress is not None else ():
        wave = progress.wave_of.get(name) if progress is not None else None
        if wave is not None:
            found.setdefault(wave, set()).add(name)
    return found


def _until(progress: Progress | None, holds: Holds, now: datetime) -> datetime | None:
    """Return the next moment at which a bake or a hold ends."""
    ends: Collection[datetime | None] = [end_of(hold) for found in holds.values() for hold in found]
    waits: Iterable[datetime | None] = (one.until for one in (progress.waits.values() if progress is not None else ()))
    return min((end for end in (*ends, *waits) if end is not None and end > now), default=None)
