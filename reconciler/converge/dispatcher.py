"""Choose the nodes that a run works on now: as many as the budget allows, urgent ones first, and no pool starves.

A pass gives the dispatcher the plans of all nodes. It starts one task per node that may go, and decides again whenever
a node ends or is to be looked at. The limits of the fleet are those of `FleetLimits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from typing import Any

from reconciler.converge.events import NodeSettled, Waiting
from reconciler.converge.execute import NodeRun
from reconciler.converge.fleet_limits import FleetLimits
from reconciler.converge.plan_questions import is_stopped, known_by
from reconciler.converge.remember import remember_plans
from reconciler.converge.run import Ended, NodeResult, Run
from reconciler.converge.siblings import refusal_of_siblings
from reconciler.model.observed import Observation, Observed, is_unasked
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, is_crashed
from reconciler.model.records import NodeRecord
from reconciler.planner.fleet.isolation import is_retracted
from reconciler.planner.fleet.permit import Permit, takes_out, waits
from reconciler.planner.fleet.work_queue import WorkQueue
from reconciler.planner.node.counted import WATCHED_S
from reconciler.planner.node.holds import retracted

_LASTING = (BlockCode.HALTED, BlockCode.STOPPED, BlockCode.STORM)  # until a person does something about it
NODES_AT_ONCE = 512  # tasks that mostly wait; a semaphore bounds how many read at once
POLL_S = 30.0
SOON_S = 2 * WATCHED_S  # what is told by then is waited for: another run costs more
PARK_S = 7.0  # wall clock: CI kills what does not end soon after its first signal (conventions C14)


class Dispatcher:
    """Starts and ends the work on nodes.

    `plans`: the latest plan of each selected node. `changed` is set when something has happened that may let a node
    start: a node has ended, or is to be looked at.
    """

    def __init__(
        self, run: Run, observation: Observation, plans: Mapping[str, NodePlan], records: Mapping[str, NodeRecord]
    ) -> None:
        self.run = run
        self.changed = asyncio.Event()
        self.plans = dict(plans)
        self._tasks: dict[str, asyncio.Task[NodeResult]] = {}
        self._ended: list[str] = []
        self._workers: dict[str, NodeRun] = {}
        self.bmc_news: set[str] = set()  # nodes whose inventory the next pass reads anew, for what it reports
        self._woken: dict[str, bool] = {}  # to be looked at, whatever is planned; whether the BMC has news
        self._taking_out: dict[str, None] = {}  # nodes at work that are to be reserved, or are
        self._stopped: Blocked | None = None  # why nothing of the whole fleet begins
        self._postponed: dict[str, str] = {}  # node -> why, until something has changed
        self._limits = FleetLimits(run, observation, self.plans, records, self._postponed.clear)
        self._limits.on_promotion = self.changed.set
        self._limits.on_let_go = self.wake
        self._take_plans(plans)

    def renew(self, observation: Observation, plans: Mapping[str, NodePlan], records: Mapping[str, NodeRecord]) -> None:
        """Go on from another look at all nodes, or another spec. Work on nodes continues, and knows them better."""
        merged = self.merged(observation)
        self.plans = dict(plans) | {name: self.plans[name] for name in self._tasks if name in plans}
        self._limits.renew(merged, self.plans, plans, records)
        self._take_plans(plans)

    def _take_plans(self, plans: Mapping[str, NodePlan]) -> None:
        self._settled: dict[str, NodeResult] = {}
        self._promoted: set[str] = set()  # spares that were started since the latest pass to go into service
        self._postponed.clear()
        self._asked: dict[str, Mapping[str, Any]] = {}
        self._at_once = {name for name in self.plans if self._goes_at_once(name)}
        self._unapproved = set(plans)  # not compared with the approved plan yet
        self._queue = WorkQueue(self.plans.values())
        for name in self.plans:
            self._enqueue(name)

    def merged(self, observation: Observation) -> Observation:
        """Return the observation with what is known here of nodes at work, which the pass did not read.

        The pass reads the cluster's view of every node; the later of both views counts, even if it is silence. Of a
        node that the pass was to read and did not (`not_read`) nothing is known: what was read before is out of date.
        What is dated later than now was read before the clock was set back, and is no later view.
        """
        now = self.run.clock.now()
        newer = {}
        for name, seen in observation.nodes.items():
            mine = self._latest(name)
            if mine is None:
                continue
            if name in self._tasks or is_unasked(seen) or seen.hot.at < mine.hot.at <= now:
                later = seen.member.at <= mine.member.at <= now
                newer[name] = replace(mine, member=mine.member if later else seen.member)
        return replace(observation, nodes={**observation.nodes, **newer})

    def _latest(self, name: str) -> Observed | None:
        """Return the latest look at a node. That of its worker may be of another boot than the one before the work."""
        known, worker = self._limits.nodes.get(name), self._workers.get(name)
        own = worker.observed if worker is not None and name in self._tasks else None
        return known if own is None or (known is not None and own.hot.at < known.hot.at) else own

    @property
    def observation(self) -> Observation:
        """The latest that is known of every node, as one observation."""
        return self._limits.observation

    @property
    def limits(self) -> FleetLimits:
        return self._limits

    @property
    def settled(self) -> Mapping[str, NodeResult]:
        """The nodes that nothing more will be done to before the next pass, and how that ended."""
        return self._settled

    @property
    def at_work(self) -> AbstractSet[str]:
        return self._tasks.keys()

    @property
    def worker_plans(self) -> Mapping[str, NodePlan]:
        """The plans of nodes at work, which are newer than those of any pass."""
        return {name: worker.plan for name, worker in self._workers.items() if worker.plan is not None}

    # --- the loop ---

    async def work(self, wait_s: float, *, alone: bool = False) -> None:
        """Work until nothing more may start. `wait_s`: how long to wait in all while nothing runs; 0 = start once only.

        `alone`: nobody else acts on the fleet, so what only others could end is not waited for.
        """
        waited = 0.0
        try:
            self.start()
            while True:
                if self._tasks:
                    await self.changed.wait()
                    self.collect_ended()
                elif self._queue and waited < wait_s and self._in_time(wait_s - waited, alone=alone):
                    self.run.ports.progress(Waiting(tuple(self._queue), wait_s - waited))
                    pause = self._until_next() if alone else POLL_S
                    await self.run.clock.sleep(pause)
                    waited += pause
                    self._postponed.clear()
                    await self._limits.look_at_cluster()
                else:
                    return
                if wait_s > 0:
                    self.start()
                else:
                    self._start_woken()  # such as those that were cut off with another, and have to be tested
        finally:
            await self.park()

    def wake(self, name: str, *, read_bmc: bool = False) -> None:
        """Have a node looked at before anything else; a node at work, as soon as it waits.

        `read_bmc`: the BMC has news, so that its inventory is read, however young the one at hand is.
        """
        if read_bmc:
            self.bmc_news.add(name)
        if name in self._workers:
            self._workers[name].wake(read_bmc=read_bmc)
        elif name in self.plans and name not in self._tasks:
            self._woken[name] = read_bmc or self._woken.get(name, False)
            self.changed.set()

    def start(self) -> None:
        """Start the nodes that may go now, of all that have something to do."""
        self._start_woken()
        self._isolate()
        self._stopped = self.run.stop()
        if self._stopped is not None:
            return
        self._settle_stale()
        self._limits.look_at_rollouts()
        permit = self._limits.permit()
        with permit.budget.supposing():
            for name in self._taking_out:
                permit.budget.charge(name)
            self._queue.ask(permit, lambda: len(self._tasks) < NODES_AT_ONCE, lambda name: self._offer(name, permit))

    def _start_woken(self) -> None:
        for name in self._limits.spares.promoted.keys() - self._promoted - self._tasks.keys():
            if name in self.plans:
                self._promoted.add(name)
                self._woken.setdefault(name, False)
        for name in list(self._woken):
            if len(self._tasks) < NODES_AT_ONCE:
                self._begin(name, None if self._woken.pop(name) else self._limits.nodes.get(name))

    def _isolate(self) -> None:
        """Start nodes with evidence of illness at once, whatever budget, wave, window, brake or approval say.

        NODES_AT_ONCE does not hold them back either: the caps of isolation bound how many they are.
        """
        if not self._at_once or self.run.stop_of_isolation() is not None:
            return
        for name in sorted(self._at_once - self._tasks.keys()):
            self._begin(name, suspected=self.plans[name].isolation)
            if self.plans[name].isolation:
                self._limits.count_isolated(name)
        self._at_once.clear()

    def _goes_at_once(self, name: str) -> bool:
        plan = self.plans[name]
        if name in self._tasks or not (plan.isolation or plan.isolated):
            return False
        holds = self.run.context.planner.holds
        return bool(plan.isolation) or is_retracted(plan, retracted(holds, self.run.clock.now()))

    def _offer(self, name: str, permit: Permit) -> Blocked | None:
        """Start the node if it may; return why it waits."""
        plan = self.plans[name]
        if name in self._postponed:
            return None
        if plan.actions and plan.goal is not Goal.NOTHING:
            blocked = refusal_of_siblings(self.run, self._limits, plan) or permit.admit(plan)
            if blocked is not None:
                return blocked
            if takes_out(plan):
                self._taking_out[name] = None
        self._begin(name)
        return None

    def _begin(self, name: str, seen: Observed | None = None, suspected: tuple[str, ...] = ()) -> None:
        def ended(_task: asyncio.Task[NodeResult]) -> None:
            self._ended.append(name)
            self.changed.set()

        worker = self._workers[name] = NodeRun(self.run, name, self._limits, seen, suspected)
        self._tasks[name] = task = asyncio.create_task(worker.to_the_end(), name=name)
        task.add_done_callback(ended)
        self._queue.remove(name)

    def _why(self, name: str) -> Blocked | None:
        """Return why a queued node waits."""
        return self._stopped or self._queue.why(name)

    def _in_time(self, left_s: float, *, alone: bool) -> bool:
        """Return whether a queued node may start while the run still waits."""
        end = self.run.clock.now() + timedelta(seconds=left_s)
        blocks = map(self._why, self._queue)
        return any(
            one is None or (one.code not in _LASTING and (not alone if one.until is None else one.until <= end))
            for one in blocks
        )

    def _until_next(self) -> float:
        """Return the seconds until the first queued node may start."""
        ends = [one.until for one in map(self._why, self._queue) if one is not None and one.until is not None]
        return max((min(ends) - self.run.clock.now()).total_seconds(), 1.0) if ends else POLL_S

    def _enqueue(self, name: str) -> None:
        """Queue a node that has something to do, or of which a boot or a watch will soon tell what there is to do."""
        plan = self.plans[name]
        if name in self._settled or name in self._tasks:
            return
        if plan.changes or (plan.goal is not Goal.NOTHING and self._told_soon(name, plan)):
            self._queue.join(plan)
        else:
            self._queue.remove(name)

    def _told_soon(self, name: str, plan: NodePlan) -> bool:
        now = self.run.clock.now()
        until = known_by(plan, now)
        soon = until is not None and until <= now + timedelta(seconds=SOON_S)
        return soon or self.run.worth_waiting(self._limits.nodes[name], plan)

    def _settle_stale(self) -> None:
        """Settle queued nodes that need more than was approved, before anything is started on them."""
        if self.run.context.approved is None:
            return
        for name in [name for name in self._queue if name in self._unapproved]:
            if self.run.bar_of(name):
                self._queue.remove(name)
                continue
            begun = name in self.run.context.begun or name in self._postponed
            if why := self.run.stale_because(self.plans[name], begun=begun):
                self._settle(NodeResult(name, Ended.STALE, why))
            self._unapproved.discard(name)

    def reconsider(self, names: Collection[str]) -> None:
        """Compare nodes with what is approved by now, and queue those that have something to do again."""
        for name in set(names) & self.plans.keys() - self._tasks.keys():
            self._settled.pop(name, None)
            self._postponed.pop(name, None)
            self._unapproved.add(name)
            self._enqueue(name)

    def collect_ended(self) -> None:
        """Take in the results of the nodes that have ended since the last call."""
        self.changed.clear()
        names, self._ended = self._ended, []
        for name in names:
            result = self._tasks.pop(name).result()
            worker = self._workers.pop(name)
            self._limits.end(name)
            self._taking_out.pop(name, None)
            self._postponed.clear()
            self.run.attempts.interrupted.discard(name)
            if name not in self.run.fleet.nodes:  # a new spec no longer names it
                self.run.ports.progress(NodeSettled(name, result.state.value, result.detail))
                self.plans.pop(name, None)
                continue
            if result.state is Ended.POSTPONED and not (worker.plan is not None and is_stopped(worker.plan)):
                self._postponed[name] = result.detail
            else:
                self._settle(result)
            if worker.observed is not None and worker.plan is not None:
                self.plans[name] = worker.plan
                self._limits.see(worker.observed)
                self._remember(worker.observed, worker.plan, worker.record)
            self._limits.release(name, worker.plan)
            self._enqueue(name)
            self._unapproved.add(name)

    def _remember(self, observed: Observed, plan: NodePlan, record: NodeRecord) -> None:
        """Record what a node has converged to. That is when its wave begins to bake."""
        run, name = self.run, plan.node
        remember_plans(
            run.ledger,
            run.fleet,
            {name: plan},
            {name: observed},
            {name: record},
            run.context.run_id,
            run.clock.now(),
            self._asked,
        )
        self._limits.see_member(observed, plan)

    def _settle(self, result: NodeResult) -> None:
        self._settled[result.node] = result
        self._queue.remove(result.node)
        self.run.ports.progress(NodeSettled(result.node, result.state.value, result.detail))

    async def park(self) -> None:
        """Stop what runs. What it had begun is journaled, and the next run continues from there."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=PARK_S)
        for name, task in self._tasks.items():
            if task.done() and not task.cancelled() and task.exception() is None:
                self._settle(task.result())
            else:
                self._settle(NodeResult(name, Ended.PARKED, "the next run continues it"))
        self._tasks.clear()

    # --- results ---

    def results(self) -> Mapping[str, NodeResult]:
        """Return how the run ends for each node, were it to end now."""
        return {name: self._settled.get(name) or self._unsettled(plan) for name, plan in self.plans.items()}

    def _unsettled(self, plan: NodePlan) -> NodeResult:
        if is_crashed(plan):
            return NodeResult(plan.node, Ended.CRASHED, plan.situation)
        blocked = self._why(plan.node)
        if blocked is None and plan.blocked is not None and not waits(plan.blocked):
            blocked = plan.blocked
        if plan.changes or (blocked is not None and blocked.code is not BlockCode.FOREIGN_CORDON):
            postponed = self._postponed.get(plan.node, "the run ended before it could start")
            return NodeResult(plan.node, Ended.NOT_STARTED, blocked.detail if blocked else postponed)
        return NodeResult(plan.node, Ended.CONVERGED, plan.situation)
