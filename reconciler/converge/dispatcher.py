"""Which nodes of a run are worked on now: as many as the budget allows, the most urgent first, no pool starving.

The budget is charged in one place. A node is reserved before the first action that ends its service, against a fresh
read of the cluster, together with every other node that the run has in hand; so no prefix of the run exceeds a limit
(invariant budget_never_exceeded), whoever else takes nodes out meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta

from reconciler.converge.brake import look_for_storm
from reconciler.converge.events import NodeSettled, Waiting
from reconciler.converge.execute import Asks, NodeRun, is_stopped
from reconciler.converge.observe import answer, control_plane
from reconciler.converge.remember import remember_plans
from reconciler.converge.run import Ended, NodeResult, Run
from reconciler.diff.facts import Managed
from reconciler.model.observed import Answered, Observation, Observed, Silent, was_asked
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, is_crashed
from reconciler.model.records import NodeRecord
from reconciler.planner.fleet.isolation import Isolation, is_retracted
from reconciler.planner.fleet.live_permit import LivePermit, LiveRollouts
from reconciler.planner.fleet.permit import Permit, takes_out, waits
from reconciler.planner.fleet.work_queue import WorkQueue
from reconciler.planner.node.holds import by_subject, retracted
from reconciler.planner.node.workload import flashes

_LASTING = (BlockCode.HALTED, BlockCode.STOPPED, BlockCode.STORM)  # until a person does something about it
NODES_AT_ONCE = 512  # tasks that mostly wait; what they read at once is bounded apart
CLUSTER_AGE_S = 10.0  # reservations of one moment share a read of the cluster
POLL_S = 30.0
PARK_S = 7.0  # wall clock: CI kills what does not end soon after its first signal (conventions C14)


class Dispatcher:
    """`plans`: the latest of each selected node; observation and records are kept current too.

    `stirred`: something has happened that may let somebody go: a node has ended, or is to be looked at.
    """

    def __init__(
        self, run: Run, observation: Observation, plans: Mapping[str, NodePlan], records: Mapping[str, NodeRecord]
    ) -> None:
        self.run = run
        self.stirred = asyncio.Event()
        self.plans: dict[str, NodePlan] = {}
        self._nodes: dict[str, Observed] = {}
        self._running: dict[str, asyncio.Task[NodeResult]] = {}
        self._ended: list[str] = []
        self._at_work: dict[str, NodeRun] = {}
        self._woken: dict[str, None] = {}  # to be looked at, whatever is planned
        self._reserved: set[str] = set()
        self._leaving: dict[str, None] = {}  # those at work that are to be reserved, or are
        self._stopped: Blocked | None = None  # as a whole
        self._lock = asyncio.Lock()
        self._cluster_read: float | None = None  # by the monotonic clock
        self.renew(observation, plans, records)

    def renew(self, observation: Observation, plans: Mapping[str, NodePlan], records: Mapping[str, NodeRecord]) -> None:
        """Take in another look at all of them, or another spec. Nodes at work go on, and are known better here."""
        run, now = self.run, self.run.clock.now()
        self.observation = self.merged(observation)
        self._nodes = dict(self.observation.nodes)
        self.observation = replace(self.observation, nodes=self._nodes)
        self.plans = dict(plans) | {name: self.plans[name] for name in self._running if name in plans}
        self._settled: dict[str, NodeResult] = {}
        self._postponed: dict[str, str] = {}  # node -> why, until something has changed
        self._tables: dict[str, tuple[Managed, ...]] = {}
        self._kept = dict(run.ledger.rollouts())
        self._permit = LivePermit(run.fleet, self.observation, records, plans, now)
        self._isolation = Isolation(run.fleet, self.observation, records, now)
        for name, plan in self.plans.items():
            self._isolation.suspect(plan, self._nodes[name], records.get(name) or NodeRecord(name))
        self._at_once = {name for name in self.plans if self._goes_at_once(name)}
        for name in self._reserved & run.fleet.nodes.keys():
            self._permit.reserve(name)
        self._rollouts = LiveRollouts(run.fleet, self.observation, self.plans, records, now)
        self._unapproved = set(plans)  # not held against the approved plan yet
        self._queue = WorkQueue(self.plans.values())
        for name in self.plans:
            self._enqueue(name)

    def merged(self, observation: Observation) -> Observation:
        """With what is known here of nodes that were at work meanwhile, and that the pass left out.

        Of the cluster, which the pass asks about all of them, the later answer counts, were it that it gave none.
        """
        newer = {}
        for name, seen in observation.nodes.items():
            mine = self._nodes.get(name)
            if mine is not None and (name in self._running or not was_asked(seen) or mine.hot.at > seen.hot.at):
                newer[name] = replace(mine, member=max(mine.member, seen.member, key=lambda reading: reading.at))
        return replace(observation, nodes={**observation.nodes, **newer})

    @property
    def at_work(self) -> AbstractSet[str]:
        return self._running.keys()

    @property
    def ahead(self) -> Mapping[str, NodePlan]:
        """Of nodes at work, what those who work on them know, which is newer than any pass."""
        return {name: worker.plan for name, worker in self._at_work.items() if worker.plan is not None}

    # --- the loop ---

    async def work(self, wait_s: float, *, alone: bool = False) -> None:
        """Until nothing more may start. `wait_s`: how long to wait in all while nothing runs; 0 = start once only.

        `alone`: nobody else acts on the fleet, so that what only others could end is not waited for.
        """
        waited = 0.0
        try:
            self.start()
            while True:
                if self._running:
                    await self.stirred.wait()
                    self.take_in()
                elif self._queue and waited < wait_s and self._in_time(wait_s - waited, alone=alone):
                    self.run.progress(Waiting(tuple(self._queue), wait_s - waited))
                    pause = self._until_next() if alone else POLL_S
                    await self.run.clock.sleep(pause)
                    waited += pause
                    self._postponed.clear()
                    await self._look_at_cluster()
                else:
                    return
                if wait_s > 0:
                    self.start()
        finally:
            await self.park()

    def wake(self, name: str) -> None:
        """It is looked at first thing; one that is at work, as soon as it waits."""
        if name in self._at_work:
            self._at_work[name].tell()
        elif name in self.plans and name not in self._running:
            self._woken[name] = None
            self.stirred.set()

    def start(self) -> None:
        """Those whose turn it is, of all that have something to do."""
        for name in list(self._woken):
            if len(self._running) < NODES_AT_ONCE:
                del self._woken[name]
                self._begin(name, self._nodes.get(name))
        self._isolate()
        self._stopped = self.run.stop()
        if self._stopped is not None:
            return
        self._settle_stale()
        self._look_at_rollouts()
        permit = self._permit.now(self.run.clock.now(), self.run.rollouts, self.run.brake())
        with permit.budget.supposing():
            for name in self._leaving:
                permit.budget.charge(name)
            self._queue.ask(permit, lambda: len(self._running) < NODES_AT_ONCE, lambda name: self._ask(name, permit))

    def _isolate(self) -> None:
        """Evidence of illness waits for no turn: not for budget, wave, window, brake or approval.

        Nor for those at work to be fewer: the caps of isolation bound how many these are.
        """
        if not self._at_once or self.run.stop_of_all() is not None:
            return
        for name in sorted(self._at_once - self._running.keys()):
            self._begin(name, suspected=self.plans[name].isolation)
            if self.plans[name].isolation:
                self._permit.isolate(name)
        self._at_once.clear()

    def _goes_at_once(self, name: str) -> bool:
        plan = self.plans[name]
        if name in self._running or not (plan.isolation or plan.isolated):
            return False
        return bool(plan.isolation) or is_retracted(plan, retracted(self.run.planner.holds, self.run.clock.now()))

    def isolate(
        self, plan: NodePlan, observed: Observed, record: NodeRecord, confirmed: AbstractSet[str]
    ) -> tuple[str, ...]:
        """Return the confirmed signals for which the caps let this node be isolated now, and count it as isolated."""
        self._isolation.suspect(plan, observed, record)
        allowed = tuple(signal for signal in self._isolation.verdict(plan)[0] if signal in confirmed)
        if allowed:
            self._isolation.charge(plan.node, allowed)
            self._permit.isolate(plan.node)
        return allowed

    def _ask(self, name: str, permit: Permit) -> Blocked | None:
        """Start it, if it may."""
        plan = self.plans[name]
        if name in self._postponed:
            return None
        if plan.actions and plan.goal is not Goal.NOTHING:
            blocked = permit.admit(plan)
            if blocked is not None:
                return blocked
            if takes_out(plan):
                self._leaving[name] = None
        self._begin(name)
        return None

    def _begin(self, name: str, seen: Observed | None = None, suspected: tuple[str, ...] = ()) -> None:
        def ended(_task: asyncio.Task[NodeResult]) -> None:
            self._ended.append(name)
            self.stirred.set()

        asks = Asks(self.reserve, self._begin_rollout, self.isolate)
        worker = self._at_work[name] = NodeRun(self.run, name, asks, seen, suspected)
        self._running[name] = task = asyncio.create_task(worker.to_the_end(), name=name)
        task.add_done_callback(ended)
        self._queue.leave(name)

    def _why(self, name: str) -> Blocked | None:
        """Why a candidate waits."""
        return self._stopped or self._queue.why(name)

    def _in_time(self, left_s: float, *, alone: bool) -> bool:
        """Whether a candidate may come to its turn while the run still waits."""
        end = self.run.clock.now() + timedelta(seconds=left_s)
        blocks = map(self._why, self._queue)
        return any(
            one is None or (one.code not in _LASTING and (not alone if one.until is None else one.until <= end))
            for one in blocks
        )

    def _until_next(self) -> float:
        """Seconds until the first of those that wait may come to its turn."""
        ends = [one.until for one in map(self._why, self._queue) if one is not None and one.until is not None]
        return max((min(ends) - self.run.clock.now()).total_seconds(), 1.0) if ends else POLL_S

    def _enqueue(self, name: str) -> None:
        """A node with something to do, or with a boot under way whose end will tell, waits for its turn."""
        plan = self.plans[name]
        if name in self._settled or name in self._running:
            return
        if plan.changes or (plan.goal is not Goal.NOTHING and self.run.worth_waiting(self._nodes[name], plan)):
            self._queue.join(plan)
        else:
            self._queue.leave(name)

    def _settle_stale(self) -> None:
        """Nodes that need more than was approved, before anything is started on them."""
        for name in [name for name in self._queue if name in self._unapproved] if self.run.approved is not None else ():
            begun = name in self.run.begun or name in self._postponed
            if why := self.run.stale_because(self.plans[name], begun=begun):
                self._settle(NodeResult(name, Ended.STALE, why))
            self._unapproved.discard(name)

    def take_in(self) -> None:
        """The nodes that have ended since."""
        self.stirred.clear()
        names, self._ended = self._ended, []
        for name in names:
            result = self._running.pop(name).result()
            worker = self._at_work.pop(name)
            self._reserved.discard(name)
            self._leaving.pop(name, None)
            self._postponed.clear()
            self.run.interrupted.discard(name)
            if name not in self.run.fleet.nodes:  # the spec has forgotten it meanwhile
                self.run.progress(NodeSettled(name, result.state.value, result.detail))
                self.plans.pop(name, None)
                continue
            if result.state is Ended.POSTPONED and not (worker.plan is not None and is_stopped(worker.plan)):
                self._postponed[name] = result.detail
            else:
                self._settle(result)
            if worker.observed is not None and worker.plan is not None:
                self.plans[name] = worker.plan
                self._see(worker.observed)
                self._remember(worker.observed, worker.plan, worker.record)
            self._permit.release(self._nodes[name], worker.plan)
            self._enqueue(name)
            self._unapproved.add(name)

    def _settle(self, result: NodeResult) -> None:
        self._settled[result.node] = result
        self._queue.leave(result.node)
        self.run.progress(NodeSettled(result.node, result.state.value, result.detail))

    async def park(self) -> None:
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

    def _remember(self, observed: Observed, plan: NodePlan, record: NodeRecord) -> None:
        """What it has converged to is known from now on, which is when a wave begins to bake."""
        run, now = self.run, self.run.clock.now()
        name, plans, seen = plan.node, {plan.node: plan}, {plan.node: observed}
        remember_plans(run.ledger, run.fleet, plans, seen, {name: record}, run.id, now, self._tables)
        self._rollouts.see(observed, plan, run.ledger.node(plan.node), now)

    # --- rollouts ---

    def _look_at_rollouts(self) -> None:
        run = self.run
        run.planner.context = replace(run.planner.context, now=run.clock.now())
        run.planner.holds = by_subject(run.fleet.holds, run.ledger.holds())
        run.rollouts = self._rollouts.now(self._kept, run.planner.holds, run.clock.now())

    def _begin_rollout(self, plan: NodePlan) -> None:
        """It is on record from its first node on, with the order in which all of them go."""
        progress = self.run.rollouts.by_pool.get(plan.pool)
        if progress is not None and progress.new:
            self.run.lease.token()  # whoever lost the lease begins nothing
            self.run.ledger.start_rollout(progress.rollout, self.run.id)
            self._kept[plan.pool] = progress.rollout
            progress.new = False
            self._rollouts.begun(plan.pool)

    # --- the permit ---

    async def reserve(self, plan: NodePlan) -> str:
        async with self._lock:
            if plan.node not in self.run.fleet.nodes:
                return "the spec does not name it any more"
            if plan.node in self._reserved and not flashes(plan.actions[0]):
                return ""
            await self._look_at_cluster()
            if plan.isolated:
                self._permit.see(self._nodes[plan.node], plan)
            permit = self._permit.now(self.run.clock.now(), self.run.rollouts, self.run.brake())
            blocked = permit.refusal_of_next(plan)
            if blocked is not None:
                return blocked.detail
            self._permit.reserve(plan.node)
            self._reserved.add(plan.node)
            return ""

    async def _look_at_cluster(self) -> None:
        """Who is in service now, for all nodes of the fleet."""
        cluster, clock, settings = self.run.fabric.cluster(), self.run.clock, self.run.fleet.settings
        if cluster is None:
            return
        if self._cluster_read is not None and clock.monotonic() - self._cluster_read < CLUSTER_AGE_S:
            return
        state = await answer(cluster.state, settings.kubernetes_deadline_s, clock)
        self._cluster_read = clock.monotonic()
        members = None if isinstance(state, Silent) else state.value.members
        fell = False
        for name, seen in self._nodes.items():
            found = None if members is None else members.get(name)
            if members is not None and isinstance(seen.member, Answered) and found is seen.member.value:
                continue  # the very same: nothing has changed
            self._see(replace(seen, member=state if isinstance(state, Silent) else Answered(state.at, found)))
            # What goes down under our hands is no news, and in a rollout something always does.
            fell = fell or (name not in self._reserved and found is not None and not found.ready)
            if name not in self.plans:
                self._rollouts.see(self._nodes[name], None, self.run.ledger.node(name), clock.now())
        self._postponed.clear()
        self.observation = replace(self.observation, control_plane=control_plane(state))
        self._permit.see_control_plane(self.observation.control_plane)
        if fell:
            look_for_storm(self.run.ledger, self.run.fleet, self.observation, {}, clock.now())

    def _see(self, observed: Observed) -> None:
        self._nodes[observed.node] = observed
        self._permit.see(observed)

    # --- the end ---

    def results(self) -> Mapping[str, NodeResult]:
        return {name: self._settled.get(name) or self._left(plan) for name, plan in self.plans.items()}

    def _left(self, plan: NodePlan) -> NodeResult:
        if is_crashed(plan):
            return NodeResult(plan.node, Ended.CRASHED, plan.situation)
        blocked = self._why(plan.node)
        if blocked is None and plan.blocked is not None and not waits(plan.blocked):
            blocked = plan.blocked
        if plan.changes or (blocked is not None and blocked.code is not BlockCode.FOREIGN_CORDON):
            postponed = self._postponed.get(plan.node, "its turn did not come")
            return NodeResult(plan.node, Ended.NOT_STARTED, blocked.detail if blocked else postponed)
        return NodeResult(plan.node, Ended.CONVERGED, plan.situation)
