"""Limits of the whole fleet on work on one node: budget, windows, rollouts and caps of isolation, kept current.

The budget is charged in one place. A node is reserved before the first action that ends its service, against a fresh
read of the cluster, together with every other node that is reserved. So no prefix of the run exceeds a limit
(invariant budget_never_exceeded), whoever else takes nodes out meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from reconciler.converge.brake import look_for_storm
from reconciler.converge.observe import answer, control_plane
from reconciler.converge.partner_pool import PartnerPool
from reconciler.converge.run import Run
from reconciler.converge.siblings import refusal_of_siblings
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import BudgetLine, Goal, NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Reason, UnknownReason
from reconciler.planner.fleet.isolation import Isolation
from reconciler.planner.fleet.k3s_order import goes_in_order
from reconciler.planner.fleet.live_permit import LivePermit, LiveRollouts
from reconciler.planner.fleet.permit import Permit
from reconciler.planner.fleet.rollouts import Rollouts
from reconciler.planner.fleet.spares import Spares, promotion, unheeded
from reconciler.planner.node.workload import Need, cut_of, flashes, siblings_of

CUT_S = 5400.0  # that a node which shares outlets is out for, from its drain to its boot, before its gate
PARTNER_S = 1800.0  # that a partner is held for at most, by which a window has to be open
AGAIN_S = 1.0  # after a read of the cluster that failed
CLUSTER_AGE_S = 10.0  # reservations within this time share one read of the cluster


class FleetLimits:
    """Questions that the work on one node asks about the whole fleet.

    `nodes`: the latest that is known of every node; `rollouts`: as of the latest `look_at_rollouts`. `plans`: the
    latest plan of each selected node, which its owner keeps current. `cluster_changed` is called after each read of the
    cluster.
    """

    def __init__(
        self,
        run: Run,
        observation: Observation,
        plans: Mapping[str, NodePlan],
        records: Mapping[str, NodeRecord],
        cluster_changed: Callable[[], None],
    ) -> None:
        self.rollouts = Rollouts()
        self.spares = Spares(run.fleet)
        self.on_promotion: Callable[[], None] = lambda: None  # called when a spare is to go into service
        self.on_let_go: Callable[[str], None] = lambda _: None  # called with a node that shared outlets with another
        self._run = run
        self.partners = PartnerPool(run, self)
        self._charged_partners: set[str] = set()
        self._reserved: set[str] = set()
        self._lock = asyncio.Lock()
        self._cluster_read: float | None = None  # by the monotonic clock
        self._cluster_changed = cluster_changed
        self.renew(observation, plans, plans, records)

    def renew(
        self,
        observation: Observation,
        plans: Mapping[str, NodePlan],
        planned: Mapping[str, NodePlan],
        records: Mapping[str, NodeRecord],
    ) -> None:
        """Start again from another observation, or another spec. Reservations are kept.

        `planned`: the plans that the pass made, which those of nodes at work may be ahead of.
        """
        run, now = self._run, self._run.clock.now()
        self.nodes = dict(observation.nodes)
        self.observation = replace(observation, nodes=self.nodes)
        self._plans = plans
        self._begun_rollouts = dict(run.ledger.rollouts())
        self._permit = LivePermit(run.fleet, self.observation, records, planned, now)
        self.spares = Spares(run.fleet, self.spares)
        self.spares.take(plans, self.nodes, suspected=False, unheeded=unheeded(plans, run.holds(), now))
        self._isolation = Isolation(run.fleet, self.observation, records, now)
        for name, plan in plans.items():
            self._isolation.suspect(plan, self.nodes[name], records.get(name) or NodeRecord(name))
        for name in self._reserved & run.fleet.nodes.keys():
            self._permit.reserve(name)
        self._live_rollouts = LiveRollouts(run.fleet, observation, plans, records, now)

    # --- what is asked ---

    def permit(self) -> Permit:
        """Return what budget, windows, rollouts and storm brake allow at this moment."""
        return self._permit.now(self._run.clock.now(), self.rollouts, self._run.brake())

    def budget_lines(self) -> tuple[BudgetLine, ...]:
        """Return the limits, and what uses them up at this moment."""
        return self.permit().budget.lines()

    async def reserve(self, plan: NodePlan) -> str:
        """Charge the node to the budget if its first action may begin now; return why it may not, "" when it may."""
        async with self._lock:
            if plan.node not in self._run.fleet.nodes:
                return "the spec no longer names it"
            first, k3s = plan.actions[0], self._run.fleet.nodes[plan.node].profile.k3s
            reserved = plan.node in self._reserved and not flashes(first) and not goes_in_order(first, k3s)
            if reserved and not siblings_of(cut_of(plan)):
                return ""
            await self.look_at_cluster()
            if (wait := refusal_of_siblings(self._run, self, plan)) is not None or reserved:
                return "" if wait is None else wait.detail
            if plan.isolated:
                self._permit.see(self.nodes[plan.node], plan)
            blocked = self.permit().refusal_of_next(plan)
            if blocked is not None:
                return blocked.detail
            if plan.goal is not Goal.SPARE:
                self._permit.reserve(plan.node)
                self._reserved.add(plan.node)
            return ""

    def refusal_to_restore(self, plan: NodePlan) -> str:
        """Return why the serving group of a node is not told to serve with it again now; "" when it may be."""
        blocked = self.permit().restore_refusal(plan)
        return "" if blocked is None else blocked.detail

    def out_of_group(self, desired: Desired) -> tuple[str, ...]:
        """Return the other nodes of its serving group that are known to be out of service."""
        budget = self.permit().budget
        return tuple(name for name in budget.away_from_group(desired.node) if not budget.unreadable(name))

    # --- partners of gates, which serve until they are taken ---

    def plan_of(self, node: str) -> NodePlan | None:
        return self._plans.get(node)

    def refusal_of_partner(self, node: str) -> str:
        """Return why a node that serves may not be taken out as a partner now; "" when it may."""
        if self._run.fleet.nodes[node].serving is not None:
            return "it serves in a group, which would have to serve without it"
        permit = self.permit()
        stop = self._run.stop() or permit.brake
        refused = stop or permit.budget.allows(node, {Reason.RENEWAL})
        if refused is None and permit.windows:
            refused = permit.windows.refusal(self._run.fleet.nodes[node].pool, Need(PARTNER_S))
        return "" if refused is None else refused.detail

    def charge_partner(self, node: str) -> str:
        """Charge a partner to the budget; return why that may not be, "" when it is charged."""
        if why := self.refusal_of_partner(node):
            return why
        self._charge(node)
        return ""

    def _charge(self, node: str) -> None:
        self._charged_partners.add(node)
        self._permit.reserve(node)
        self._reserved.add(node)

    def refusal_together(self, names: Collection[str]) -> str:
        """Return why these nodes may not be out of service together now, for the repair of one; "" when they may."""
        permit = self.permit()
        if stop := self._run.stop() or permit.brake:
            return stop.detail
        with permit.budget.supposing():
            for name in names:
                pool, serves = self._run.fleet.nodes[name].pool, not permit.budget.is_out(name)
                refused = permit.budget.allows(name, {Reason.REMEDIATION})
                if refused is None and permit.windows and (serves or permit.budget.is_isolated(name)):
                    refused = permit.windows.refusal(pool, Need(CUT_S))
                if refused is not None:
                    return f"{name}: {refused.detail}"
                permit.budget.charge(name)
        return ""

    def charge_together(self, names: Collection[str]) -> str:
        """Charge all of these nodes to the budget, or none; return why that may not be, "" when they are charged."""
        if why := self.refusal_together(names):
            return why
        for name in names:
            self._charge(name)
        return ""

    def is_charged_partner(self, node: str) -> bool:
        return node in self._charged_partners

    def free_partner(self, node: str) -> None:
        """End the charge of a partner: it counts as it is observed."""
        if node in self._charged_partners:
            self._charged_partners.discard(node)
            self.end(node)
            if node in self.nodes:  # else a new spec no longer names it
                self.release(node, self._plans.get(node))

    def isolate(
        self, plan: NodePlan, observed: Observed, record: NodeRecord, confirmed: AbstractSet[str]
    ) -> tuple[str, ...]:
        """Return the confirmed signals for which the caps let this node be isolated now, and count it as isolated."""
        self._isolation.suspect(plan, observed, record)
        allowed = tuple(signal for signal in self._isolation.verdict(plan)[0] if signal in confirmed)
        if allowed:
            self._isolation.charge(plan.node, allowed)
            self._permit.isolate(plan.node)
            self.spares.fail(plan.node)
            self.on_promotion()
        return allowed

    def plan_node(self, desired: Desired, observed: Observed, record: NodeRecord) -> tuple[NodePlan, NodePlan | None]:
        """Plan one node as `Run.plan_node` does, or as a spare if it is to be kept as one, or goes into service as one.

        What the plan says of the node may promote another.
        """
        plan, rest = self._run.plan_node(desired, observed, record)
        before = self.spares.promoted.keys()
        self.spares.see(plan)
        if self.spares.promoted.keys() - before:
            self.on_promotion()
        if desired.node in self.spares.kept:
            return self._run.plan_node(desired, observed, record, spare=True)
        failed = self.spares.promoted.get(desired.node)
        return (plan, rest) if failed is None else (promotion(plan, failed), rest)

    def begin_rollout(self, plan: NodePlan) -> None:
        """Put the rollout of the node's pool, and the order of its nodes, on record before its first node changes."""
        progress = self.rollouts.by_pool.get(plan.pool)
        if progress is not None and progress.new:
            self._run.ports.lease.token()  # a runner that lost the lease begins nothing
            self._run.ledger.start_rollout(progress.rollout, self._run.context.run_id)
            self._begun_rollouts[plan.pool] = progress.rollout
            progress.new = False
            self._live_rollouts.begun(plan.pool)

    # --- what is reported ---

    def see(self, observed: Observed) -> None:
        """Take in a fresh look at a node."""
        self.nodes[observed.node] = observed
        self._permit.see(observed)

    def see_member(self, observed: Observed, plan: NodePlan | None) -> None:
        """Take in what a look at a node says of its rollout, once it is in the ledger."""
        record = self._run.ledger.node(observed.node)
        self._live_rollouts.see(observed, plan, record, self._run.clock.now())

    def count_isolated(self, node: str) -> None:
        """Count a node as out of service that is about to be isolated."""
        self._permit.isolate(node)

    def end(self, node: str) -> None:
        """Forget the reservation of a node that nobody works on any more, unless it is a partner."""
        if node not in self._charged_partners:
            self._reserved.discard(node)

    def release(self, node: str, plan: NodePlan | None) -> None:
        """Charge a node that nobody works on any more by what is seen of it, unless it is a partner."""
        if node not in self._charged_partners:
            self._permit.release(self.nodes[node], plan)

    def look_at_rollouts(self) -> None:
        """Bring `rollouts` up to date with holds, time and what was reported."""
        self.rollouts = self._live_rollouts.now(self._begun_rollouts, self._run.holds(), self._run.clock.now())

    async def look_at_cluster(self) -> None:
        """Read which nodes of the fleet are in service, unless that was read just now."""
        run, clock = self._run, self._run.clock
        cluster, settings = run.ports.fabric.cluster(), run.fleet.settings
        if cluster is None:
            return
        if self._cluster_read is not None and clock.monotonic() - self._cluster_read < CLUSTER_AGE_S:
            return
        state = await answer(cluster.state, settings.kubernetes_deadline_s, clock)
        if isinstance(state, Silent) and state.reason is not UnknownReason.TIMEOUT:  # which has taken its deadline
            # What is refused for it now would wait for the next pass.
            await clock.sleep(AGAIN_S)
            state = await answer(cluster.state, settings.kubernetes_deadline_s, clock)
        self._cluster_read = clock.monotonic()
        members = None if isinstance(state, Silent) else state.value.members
        fell = False
        for name, seen in self.nodes.items():
            found = None if members is None else members.get(name)
            if members is not None and isinstance(seen.member, Answered) and found is seen.member.value:
                continue  # the very same object: nothing has changed
            self.see(replace(seen, member=state if isinstance(state, Silent) else Answered(state.at, found)))
            # A reserved node goes down because of us, which is no news; in a rollout some node always does.
            fell = fell or (name not in self._reserved and found is not None and not found.ready)
            if name not in self._plans:
                self.see_member(self.nodes[name], None)
        self._cluster_changed()
        self.observation = replace(self.observation, control_plane=control_plane(state))
        self._permit.see_control_plane(self.observation.control_plane)
        if fell:
            look_for_storm(run.ledger, run.fleet, self.observation, {}, clock.now())
