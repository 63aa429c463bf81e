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
from reconciler.converge.observe import answer
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import BlockCode, Goal, NodePlan
from reconciler.planner.budget import Budget
from reconciler.planner.fleet import fleet_budget, in_turn, schedule

NODES_AT_ONCE = 512  # tasks that mostly wait; what they read at once is bounded apart
CLUSTER_AGE_S = 10.0  # reservations of one moment share a read of the cluster
POLL_S = 30.0
PARK_S = 7.0  # wall clock: CI kills what does not end soon after its first signal (conventions C14)


class Crew:
    """`plans`: the latest of each selected node; the observation is kept current too."""

    def __init__(self, run: Run, observation: Observation, plans: Mapping[str, NodePlan]) -> None:
        self.run = run
        self.observation = observation
        self.plans = dict(plans)
        self._nodes = dict(observation.nodes)
        self._running: dict[str, asyncio.Task[NodeResult]] = {}
        self._at_work: dict[str, NodeRun] = {}
        self._settled: dict[str, NodeResult] = {}
        self._postponed: set[str] = set()
        self._reserved: set[str] = set()
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
                elif self._candidates() and waited < wait_s:
                    self.run.progress(Waiting(tuple(self._candidates()), wait_s - waited))
                    await self.run.clock.sleep(POLL_S)
                    waited += POLL_S
                    await self._look_at_cluster()
                else:
                    return
                if wait_s > 0:
                    self._start()
        finally:
            await self._park()

    def _start(self) -> None:
        self._settle_stale()
        plans = schedule({name: self.plans[name] for name in self._candidates()}, self._budget())
        for plan in in_turn(plans):
            if len(self._running) >= NODES_AT_ONCE:
                return
            waits = plan.blocked is not None and plan.blocked.code is BlockCode.BUDGET
            if waits or plan.node in self._postponed:
                continue
            worker = NodeRun(self.run, plan.node, self.reserve)
            self._at_work[plan.node] = worker
            self._running[plan.node] = asyncio.create_task(worker.to_the_end(), name=plan.node)

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
            self._postponed.clear()
            if result.state is Ended.POSTPONED:
                self._postponed.add(name)
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

    # --- the budget ---

    async def reserve(self, node: str) -> str:
        async with self._lock:
            if node in self._reserved:
                return ""
            await self._look_at_cluster()
            blocked = self._budget().allows(node)
            if blocked is not None:
                return blocked.detail
            self._reserved.add(node)
            return ""

    def _budget(self) -> Budget:
        budget = fleet_budget(self.run.fleet, self.observation)
        for name in sorted(self._reserved):
            budget.charge(name)
        return budget

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
        self.observation = replace(self.observation, nodes=self._nodes)

    def _see(self, observed: Observed) -> None:
        self._nodes[observed.node] = observed
        self.observation = replace(self.observation, nodes=self._nodes)

    # --- the end ---

    def results(self) -> Mapping[str, NodeResult]:
        return {name: self._settled.get(name) or self._left(name) for name in self.plans}

    def _left(self, name: str) -> NodeResult:
        plan = self.plans[name]
        if plan.blocked is not None and not (plan.blocked.code is BlockCode.FOREIGN_CORDON and not plan.changes):
            return NodeResult(name, Ended.NOT_STARTED, plan.blocked.detail)
        if plan.changes:
            blocked = self._budget().allows(name)
            return NodeResult(name, Ended.NOT_STARTED, blocked.detail if blocked else "its turn did not come")
        return NodeResult(name, Ended.CONVERGED, plan.situation)
