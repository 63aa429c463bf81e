"""Which nodes of a run are worked on now: as many as the budget allows, the most urgent first, no pool starving.

The budget is charged in one place. A node is reserved before the first action that ends its service, against a fresh
read of the cluster, together with every other node that the run has in hand; so no prefix of the run exceeds a limit
(invariant budget_never_exceeded), whoever else takes nodes out meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from reconciler.converge.approval import stale_because
from reconciler.converge.events import NodeSettled, Waiting
from reconciler.converge.execute import Ended, NodeResult, NodeRun, Run
from reconciler.converge.memory import remember_plans
from reconciler.converge.observe import answer, control_plane
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan
from reconciler.model.records import NodeRecord
from reconciler.planner.budget import taken_out
from reconciler.planner.fleet import fleet_leave, fleet_rollouts
from reconciler.planner.holds import by_subject
from reconciler.planner.rollout import pending
from reconciler.planner.schedule import Leave, flashes, in_turn, schedule, waits

NODES_AT_ONCE = 512  # tasks that mostly wait; what they read at once is bounded apart
CLUSTER_AGE_S = 10.0  # reservations of one moment share a read of the cluster
POLL_S = 30.0
PARK_S = 7.0  # wall clock: CI kills what does not end soon after its first signal (conventions C14)


class Crew:
    """`plans`: the latest of each selected node; observation and records are kept current too."""

    def __init__(
        self, run: Run, observation: Observation, plans: Mapping[str, NodePlan], records: Mapping[str, NodeRecord]
    ) -> None:
        self.run = run
        self.observation = observation
        self.plans = dict(plans)
        self._nodes = dict(observation.nodes)
        self._running: dict[str, asyncio.Task[NodeResult]] = {}
        self._at_work: dict[str, NodeRun] = {}
        self._settled: dict[str, NodeResult] = {}
        self._postponed: dict[str, str] = {}  # node -> why, until something has changed
        self._reserved: set[str] = set()
        self._records = dict(records)
        self._taken = dict(taken_out(records, run.fleet.settings))
        self._kept = dict(run.ledger.rollouts())
        self._waiting: Mapping[str, Blocked] = {}  # candidates that may not start yet, and why
        self._lock = asyncio.Lock()
        self._cluster_read: datetime | None = None

    # --- the loop ---

    async def work(self, wait_s: float) -> None:
        """Until nothing more may start. `wait_s`: how long to wait in all while nothing runs; 0 = start once only."""
        waited = 0.0
        try:
            self._start()
            while True:
                if self._running:
                    await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
                    self._collect()
                elif self._candidates() and waited < wait_s and self._in_time(wait_s - waited):
                    self.run.progress(Waiting(tuple(self._candidates()), wait_s - waited))
                    await self.run.clock.sleep(POLL_S)
                    waited += POLL_S
                    self._postponed.clear()
                    await self._look_at_cluster()
                else:
                    return
                if wait_s > 0:
                    self._start()
        finally:
            await self._park()

    def _start(self) -> None:
        self._settle_stale()
        self._look_at_rollouts()
        plans = schedule({name: self.plans[name] for name in self._candidates()}, self._leave())
        verdicts = {name: plan.blocked for name, plan in plans.items()}
        self._waiting = {name: one for name, one in verdicts.items() if one is not None and waits(one)}
        for plan in in_turn(plans.values()):
            if len(self._running) >= NODES_AT_ONCE:
                return
            if plan.node in self._waiting or plan.node in self._postponed:
                continue
            self._begin_rollout(plan)
            worker = NodeRun(self.run, plan.node, self.reserve)
            self._at_work[plan.node] = worker
            self._running[plan.node] = asyncio.create_task(worker.to_the_end(), name=plan.node)

    def _in_time(self, left_s: float) -> bool:
        """Whether a candidate may come to its turn while the run still waits."""
        end = self.run.clock.now() + timedelta(seconds=left_s)
        blocks = [self._waiting.get(name) for name in self._candidates()]
        return any(
            one is None or (one.code is not BlockCode.HALTED and (one.until is None or one.until <= end))
            for one in blocks
        )

    def _candidates(self) -> list[str]:
        """Nodes with something to do, or with a boot under way whose end will tell."""
        free = (name for name in self.plans if name not in self._settled and name not in self._running)
        return [name for name in free if self._has_work(name)]

    def _has_work(self, name: str) -> bool:
        plan = self.plans[name]
        return plan.changes or (plan.goal is not Goal.NOTHING and self.run.worth_waiting(self._nodes[name]))

    def _settle_stale(self) -> None:
        """Nodes that need more than was approved, before anything is started on them."""
        approved = self.run.approved
        for name in self._candidates() if approved is not None else ():
            assert approved is not None
            begun = name in self.run.begun or name in self._postponed
            if why := stale_because(approved.nodes.get(name), self.plans[name], begun=begun):
                self._settle(NodeResult(name, Ended.STALE, why))

    def _collect(self) -> None:
        for name in [name for name, task in self._running.items() if task.done()]:
            result = self._running.pop(name).result()
            worker = self._at_work.pop(name)
            self._reserved.discard(name)
            if worker.observed is not None and worker.plan is not None:
                self._see(worker.observed)
                self.plans[name] = worker.plan
                self._remember(worker.plan, worker.record)
            self._postponed.clear()
            if result.state is Ended.POSTPONED:
                self._postponed[name] = result.detail
            else:
                self._settle(result)

    def _settle(self, result: NodeResult) -> None:
        self._settled[result.node] = result
        self.run.progress(NodeSettled(result.node, result.state.value, result.detail))

    async def _park(self) -> None:
        """Stop what runs. What it had begun is journaled, and the next run continues from there."""
        for task in self._running.values():
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=PARK_S)
        for name, task in self._running.items():
            if task.done() and not task.cancelled() and task.exception() is None:
                self._settle(task.result())
            else:
                self._settle(NodeResult(name, Ended.FAILED, "parked: the next run continues it"))
        self._running.clear()

    def _remember(self, plan: NodePlan, record: NodeRecord) -> None:
        """What it has converged to is known from now on, which is when a wave begins to bake."""
        run = self.run
        remember_plans(run.ledger, run.fleet, {plan.node: plan}, {plan.node: record}, run.id, run.clock.now())
        self._records[plan.node] = run.ledger.node(plan.node)

    # --- rollouts ---

    def _look_at_rollouts(self) -> None:
        run = self.run
        run.planner.context = replace(run.planner.context, now=run.clock.now())
        run.planner.holds = by_subject(run.fleet.holds, run.ledger.holds())
        run.rollouts = fleet_rollouts(
            run.fleet, self.observation, self.plans, self._records, self._kept, run.planner
        )  # fmt: skip

    def _begin_rollout(self, plan: NodePlan) -> None:
        """It is on record from its first node on, with the order in which all of them go."""
        progress = self.run.rollouts.by_pool.get(plan.pool)
        if progress is not None and progress.new and pending(plan) and not plan.postponed:
            self.run.lease.token()  # whoever lost the lease begins nothing
            self.run.ledger.start_rollout(progress.rollout, self.run.id)
            self._kept[plan.pool] = progress.rollout
            progress.new = False

    # --- leave ---

    async def reserve(self, plan: NodePlan) -> str:
        async with self._lock:
            if plan.node in self._reserved and not flashes(plan.actions[0]):
                return ""
            await self._look_at_cluster()
            leave = self._leave()
            blocked = leave.refusal_of_next(plan)
            if blocked is not None:
                return blocked.detail
            if not leave.budget.is_out(plan.node):
                self._taken[plan.node] = leave.now
            self._reserved.add(plan.node)
            return ""

    def _leave(self) -> Leave:
        leave = fleet_leave(
            self.run.fleet, self.observation, now=self.run.clock.now(), taken=self._taken, rollouts=self.run.rollouts
        )
        for name in sorted(self._reserved):
            leave.budget.charge(name)
        return leave

    async def _look_at_cluster(self) -> None:
        """Who is in service now, for all nodes of the fleet."""
        cluster, clock, settings = self.run.fabric.cluster(), self.run.clock, self.run.fleet.settings
        if cluster is None:
            return
        if self._cluster_read is not None and clock.now() - self._cluster_read < timedelta(seconds=CLUSTER_AGE_S):
            return
        state = await answer(cluster.state, settings.kubernetes_deadline_s, clock)
        self._cluster_read = clock.now()
        for name, seen in self._nodes.items():
            member = state if isinstance(state, Silent) else Answered(state.at, state.value.members.get(name))
            self._nodes[name] = replace(seen, member=member)
        self._postponed.clear()
        self.observation = replace(self.observation, nodes=self._nodes, control_plane=control_plane(state))

    def _see(self, observed: Observed) -> None:
        self._nodes[observed.node] = observed
        self.observation = replace(self.observation, nodes=self._nodes)

    # --- the end ---

    def results(self) -> Mapping[str, NodeResult]:
        return {name: self._settled.get(name) or self._left(plan) for name, plan in self.plans.items()}

    def _left(self, plan: NodePlan) -> NodeResult:
        blocked = self._waiting.get(plan.node)
        if blocked is None and plan.blocked is not None and not waits(plan.blocked):
            blocked = plan.blocked
        if plan.changes or (blocked is not None and blocked.code is not BlockCode.FOREIGN_CORDON):
            postponed = self._postponed.get(plan.node, "its turn did not come")
            return NodeResult(plan.node, Ended.NOT_STARTED, blocked.detail if blocked else postponed)
        return NodeResult(plan.node, Ended.CONVERGED, plan.situation)
