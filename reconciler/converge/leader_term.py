"""A term of leadership, from taking the lease to losing it: pass after pass over the fleet, with one dispatcher.

Each pass looks at every node that is not being worked on, plans the fleet anew, and hands both to the dispatcher.
Between passes, nodes are attended to at once when work on them ends, the cluster reports them, or their time has come.
A new spec comes into force with a pass of its own; a node in the middle of an action ends it first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from reconciler.converge.clock_steps import ClockSteps
from reconciler.converge.cluster_listener import ClusterListener
from reconciler.converge.dispatcher import POLL_S, Dispatcher
from reconciler.converge.events import LoopTold, Progress, RunPlanned, ignore
from reconciler.converge.forgotten import forget_gone
from reconciler.converge.held_queues import let_queues_go
from reconciler.converge.job_reservations import ReservationKeeper
from reconciler.converge.lease import HeldLease
from reconciler.converge.left_dark import LeftDark
from reconciler.converge.leftovers import close_needless, take_over
from reconciler.converge.node_approvals import NodeApprovals, waker
from reconciler.converge.notifier import Notifier, PassNews
from reconciler.converge.observe import observe
from reconciler.converge.pass_planner import PassPlanner, PlannedPass, records_of
from reconciler.converge.ports import GateRunner
from reconciler.converge.release_work import ReleaseWork
from reconciler.converge.run import Attempts, PassContext, Run, RunPorts
from reconciler.converge.run_progress import run_progress
from reconciler.converge.status import fleet_status, measured, node_status, persona_statuses
from reconciler.model.crash import Crash, of_its_own_async
from reconciler.model.desired import Fleet
from reconciler.model.errors import first_of_ours
from reconciler.model.notices import Messenger
from reconciler.model.observed import Observation
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.ports import Clock, Fabric, Ledger, Metrics
from reconciler.model.records import NodeRecord
from reconciler.model.status import FleetStatus, NodeStatus
from reconciler.planner.node.shard_plans import ShardPlanner

JITTER = 0.1  # of the interval: fleets that were started together don't ask their BMCs together (pitfall I9)
NODES_PER_S = 10.0  # that a pass reads when nobody waits for it: each costs 25 ms of CPU
UNHURRIED = 0.4  # of the interval: how much longer such a pass may take
PASSES_APART = 3  # intervals, and what a pass takes: when they are further apart, nobody knows what was between
REST = 0.25  # of the interval, after a pass that took longer than that


@dataclass(frozen=True, slots=True)
class LoopDeps:
    """Everything that outlasts a term of leadership. `signatures`: as for `plan_fleet`. `messenger` None: tell nobody.

    `begin` puts the work under a spec on record and returns the id of that run. `saw` is called with each pass.
    `approvals`: of people, while the spec's mode has the loop only look. `workers`: of an engine, which plan, too.
    """

    begin: Callable[[Fleet], str]
    ledger: Ledger
    clock: Clock
    gate: GateRunner
    metrics: Metrics
    progress: Progress
    signatures: Callable[[Fleet], Mapping[tuple[str, str], bool | None]]
    interval_s: float
    time_scale: float = 1.0
    messenger: Messenger | None = None
    approvals: NodeApprovals = field(default_factory=NodeApprovals)
    saw: Callable[[Fleet, Plan, Observation], None] = lambda _fleet, _plan, _observation: None
    workers: Callable[[], ShardPlanner | None] = lambda: None
    steps: ClockSteps = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", ClockSteps(self.clock))


class LeaderTerm:
    """A term of leadership whose first pass is over; `begin` makes one."""

    def __init__(
        self,
        deps: LoopDeps,
        dispatcher: Dispatcher,
        observation: Observation,
        planner: PassPlanner,
        listening: asyncio.Task[None],
        notifier: Notifier,
        due: float,
        passed: Callable[[Plan], None],
    ) -> None:
        self._deps = deps
        self._run, self._dispatcher = dispatcher.run, dispatcher
        self._planner = planner
        self._listening, self._notifier = listening, notifier
        self._passed = passed
        self._next: Fleet | None = None  # a new spec, which the next pass puts in force
        self._reading: asyncio.Task[Observation] | None = None  # a pass under way
        self._unhurried = False  # the pass under way takes its time, since nobody waits for it
        self._due = due  # when the next pass begins, by the monotonic clock
        self._observation = observation  # the latest
        self._planned: PlannedPass | None = None  # the latest
        self._status: FleetStatus | None = None
        self._reservations = ReservationKeeper(dispatcher.run)
        self._dark: LeftDark | None = None  # what dead runs left without power
        self._releases: asyncio.Task[bool] | None = None  # the work on Helm releases that the latest pass asks for

    @classmethod
    async def begin(
        cls, deps: LoopDeps, fleet: Fleet, fabric: Fabric, lease: HeldLease, passed: Callable[[Plan], None]
    ) -> LeaderTerm:
        """Make the first pass, and return the term that continues from it. `passed` is called after every pass."""
        listener = ClusterListener(deps.clock, deps.progress, deps.metrics)
        planner = PassPlanner(deps.ledger, deps.clock, deps.metrics, deps.progress)
        listening = asyncio.create_task(listener.listen(fabric.watches()))
        notifier = Notifier(deps.ledger, deps.messenger, deps.clock, deps.metrics, deps.progress)
        try:
            began, names = deps.clock.monotonic(), list(fleet.nodes)
            dark = LeftDark(deps.ledger, deps.clock, lease)
            await dark.give_power(fabric, fleet, ())  # a dark BMC tells nothing to plan by
            observation = await _observe(deps, fleet, fabric, names, fresh_inventory=True)
            due = _next_pass(deps, began)
            deps.steps.mind(deps.ledger, names)
            await planner.plan_ahead(fleet, observation, deps.signatures(fleet), deps.workers())
            planned = planner.plan(fleet, observation, names, deps.signatures(fleet))
            installer, now = fabric.installer(), planned.plan.created_at
            resumed = await take_over(deps.ledger, installer, fleet, fleet.nodes.keys(), now)
            ports = RunPorts(
                fabric,
                deps.ledger,
                deps.clock,
                deps.gate,
                lease,
                measured(deps.metrics, deps.progress),
                asyncio.Semaphore(fleet.settings.concurrency),
                deps.steps,
            )
            deps.approvals.drop_all()
            run = Run(ports, Attempts(resumed), _context(planned, deps.begin(fleet), deps))
            records = _remember(planned, run)
            await forget_gone(planned, run, None)
            listener.dispatcher = Dispatcher(run, observation, planned.plan.nodes, records)
            term = cls(deps, listener.dispatcher, observation, planner, listening, notifier, due, passed)
            term._planned, term._dark = planned, dark
            deps.approvals.granted = waker(listener.dispatcher.changed)
            term._publish(planned, records)
            term._keep_releases(planned)
            await term._keep_reservations(planned)
            await term._give_back(planned)
        except BaseException:  # a cancellation too: nobody else owns the listener yet
            listening.cancel()
            await asyncio.wait([listening])
            await notifier.close()
            raise
        return term

    def change(self, fleet: Fleet) -> None:
        """Put another spec in force with the next pass, which begins at once."""
        self._next = fleet
        self._dispatcher.changed.set()

    # --- the loop ---

    async def work(self) -> None:
        """Work until cancelled or the lease is lost; what runs is parked then."""
        try:
            await self._loop()
        finally:
            own = [task for task in (self._listening, self._reading, self._releases) if task is not None]
            for task in own:
                task.cancel()
            self._deps.approvals.granted = lambda: None
            await self._notifier.close()
            await self._dispatcher.park()
            await asyncio.wait(own)

    async def _loop(self) -> None:
        dispatcher = self._dispatcher
        while True:
            if self._reading is not None and self._reading.done():
                observation, self._reading = self._reading.result(), None
                await self._take(observation)
            if self._next is not None and self._unhurried and self._reading is not None:
                self._reading.cancel()
                await asyncio.wait([self._reading])
                self._reading = None
            if self._reading is None and (self._next is not None or self._deps.clock.monotonic() >= self._due):
                self._unhurried = self._next is None
                await self._change()
                self._reading = asyncio.create_task(self._read())
                self._reading.add_done_callback(lambda _: dispatcher.changed.set())
            dispatcher.collect_ended()
            self._take_approvals()
            dispatcher.start()
            await self._until_changed()
            if self._listening.done():
                self._listening.result()
            self._notifier.check()

    def _take_approvals(self) -> None:
        """Let nodes go that somebody has approved since, and none whose approval has ended, under the latest pass."""
        planned, approved = self._planned, self._run.context.approved
        if planned is None or self._run.context.fleet is not planned.look.fleet:
            return
        new = self._deps.approvals.take_new()
        self._end_approvals(planned, self._dispatcher.plans)
        left = self._deps.approvals.nodes
        if new or (approved is not None and not approved.nodes.keys() <= set(left)):
            self._run.context = _context(planned, self._run.context.run_id, self._deps)
            self._dispatcher.reconsider(new)

    def _end_approvals(self, planned: PlannedPass, plans: Mapping[str, NodePlan]) -> None:
        """Drop the approvals that these plans end, and tell of those that were not carried out."""
        deps = self._deps
        if not planned.mode:
            deps.approvals.drop_all()
            return
        if not (nodes := deps.approvals.nodes):
            return
        records = deps.ledger.nodes(list(nodes))
        for node, why in deps.approvals.drop_ended(plans, records, self._dispatcher.at_work, deps.clock.now()):
            message = f"{node}: its approval has ended, and it waits for another: {why}"
            deps.progress(LoopTold("approval", message, problem=True, fields={"node": node}))

    async def _until_changed(self) -> None:
        """Wait until something has changed, or for a while: time, too, opens windows, ends bakes and pauses."""
        clock = self._deps.clock
        pause = POLL_S
        if self._reading is None:
            pause = min(pause, max(self._due - clock.monotonic(), 0.0))
        with suppress(TimeoutError):
            async with asyncio.timeout(clock.real_seconds(pause)):
                await self._dispatcher.changed.wait()

    async def _change(self) -> None:
        """Put the new spec in force. What begins from now on goes by it."""
        if self._next is None:
            return
        fleet, self._next = self._next, None
        self._run.context = replace(
            self._run.context,
            fleet=fleet,
            run_id=self._deps.begin(fleet),
            barred="a new spec has come, and the fleet is being read first",
        )
        await self._run.ports.fabric.refit(fleet)

    # --- one pass ---

    async def _read(self) -> Observation:
        """Read the nodes that are not being worked on; work on a node reads it itself.

        An unhurried pass leaves time for what the cluster reports meanwhile, which would otherwise wait for its end.
        """
        deps, fleet, began = self._deps, self._run.fleet, self._deps.clock.monotonic()
        if self._dark is not None:
            left = self._run.attempts.resumed.values()
            await self._dark.give_power(self._run.ports.fabric, fleet, left, self._dispatcher.at_work)
        unhurried_s = min(len(fleet.nodes) / NODES_PER_S, deps.interval_s * UNHURRIED)
        at_work, told = self._dispatcher.at_work, self._dispatcher.bmc_news
        names = [name for name in fleet.nodes if name not in at_work]
        known = {name: seen for name, seen in self._observation.nodes.items() if name not in told}
        told.difference_update(names)
        observation = await _observe(
            deps,
            fleet,
            self._run.ports.fabric,
            names,
            previous=replace(self._observation, nodes=known),
            over_s=unhurried_s if self._unhurried else 0.0,
        )
        await self._planner.plan_ahead(fleet, observation, deps.signatures(fleet), deps.workers())
        self._due = _next_pass(deps, began)
        return observation

    async def _take(self, observation: Observation) -> None:
        """Learn and plan from an observation, and hand it to the dispatcher."""
        run, dispatcher, fleet = self._run, self._dispatcher, self._run.fleet
        idle = [name for name in fleet.nodes if name not in dispatcher.at_work]
        run.mind_clock()
        seen, signatures = dispatcher.merged(observation), self._deps.signatures(fleet)
        planned = self._planner.plan(fleet, seen, idle, signatures)
        self._planned = planned
        self._end_approvals(planned, planned.plan.nodes)
        run.context = _context(planned, run.context.run_id, self._deps)
        run.attempts.executed.clear()
        records = _remember(planned, run)
        await forget_gone(planned, run, dispatcher.at_work)
        dispatcher.renew(planned.look.observation, planned.plan.nodes, records)
        self._publish(planned, records)
        self._keep_releases(planned)
        await self._keep_reservations(planned)
        await self._give_back(planned)

    async def _give_back(self, planned: PlannedPass) -> None:
        """Let queues go that are held in vain. Give back partners of dead gates, where nothing may begin that would."""
        seen, at_work = planned.look.observation.nodes, self._dispatcher.at_work
        await let_queues_go(self._run, planned.plan.nodes, seen, at_work=at_work)
        if planned.mode and not planned.look.outage:
            idle = [name for name in planned.look.names if name not in at_work]
            await self._dispatcher.limits.partners.give_back_left(idle)

    async def _keep_reservations(self, planned: PlannedPass) -> None:
        if planned.barred or planned.refused:
            return
        work = partial(self._reservations.keep, planned.plan.nodes)
        await of_its_own_async("reservations", "keeping them", work, self._crashed)

    def _keep_releases(self, planned: PlannedPass) -> None:
        """Do what the latest pass asks for to releases, unless that is being done."""
        if self._releases is not None:
            if not self._releases.done():
                return
            self._releases.result()
        due = any(release.changes_something for release in planned.plan.releases)
        if due and not planned.barred and not planned.refused:
            work = of_its_own_async("releases", "keeping them", ReleaseWork(self._run).once, self._crashed)
            self._releases = asyncio.create_task(work)

    def _crashed(self, crash: Crash) -> bool:
        self._deps.progress(LoopTold("release", crash.sentence, problem=True))
        return False

    def _publish(self, planned: PlannedPass, records: Mapping[str, NodeRecord]) -> None:
        """Record the nodes' statuses and report the pass to everybody who watches."""
        deps, look, plan = self._deps, planned.look, planned.plan
        newer = {name: own for name, own in self._dispatcher.worker_plans.items() if name in plan.nodes}
        known = replace(plan, nodes={**plan.nodes, **newer})
        acting = [name for name, own in newer.items() if own.changes]  # the others are waited for
        took = look.observation.finished_at - look.observation.started_at
        within = timedelta(seconds=PASSES_APART * deps.interval_s) + took
        look.remember_statuses(known.nodes, acting=acting, within=within)
        if not look.outage:
            deps.saw(look.fleet, plan, look.observation)
        self._observation = look.observation
        status = fleet_status(known, look.observation, self._status, acting=acting)
        self._status = replace(status, personas=persona_statuses(known, look.fleet))
        deps.metrics.passed(self._status)
        self._notifier.passed(PassNews(look.fleet, known, look.observation, records, look.outage))
        self._passed(plan)
        deps.progress(RunPlanned(self._run.context.run_id, partial(run_progress, self._dispatcher), deps.clock.now))
        self._planner.messages.planned(plan, look.observation, len(self._dispatcher.at_work))


async def _observe(
    deps: LoopDeps,
    fleet: Fleet,
    fabric: Fabric,
    names: Sequence[str],
    *,
    previous: Observation | None = None,
    fresh_inventory: bool = False,
    over_s: float = 0.0,
) -> Observation:
    try:
        return await observe(
            fleet,
            names,
            fabric,
            deps.clock,
            previous=previous,
            fresh_inventory=fresh_inventory,
            progress=ignore,
            time_scale=deps.time_scale,
            over_s=over_s,
        )
    except ExceptionGroup as group:  # a secret that can't be had is missed by all of them
        raise first_of_ours(group) or group from None


def _next_pass(deps: LoopDeps, began: float) -> float:
    """Return when the next pass is due, by the monotonic clock. `began`: when this one began."""
    interval = deps.interval_s * (1 + JITTER * random.uniform(-1, 1))  # noqa: S311 - it spreads load
    return max(began + interval, deps.clock.monotonic() + interval * REST)


def _context(planned: PlannedPass, run_id: str, deps: LoopDeps) -> PassContext:
    """Return the context of a pass. What people have approved may begin where the spec's mode lets nothing else."""
    context = PassContext(
        run_id, planned.plan.id, planned.look.fleet, planned.planner, barred=planned.barred, refused=planned.refused
    )
    approved = deps.approvals.approved(planned.plan)
    if planned.look.outage or not planned.mode or approved is None:
        return context
    begun = deps.approvals.begun(deps.ledger.nodes(list(approved.nodes)))
    return replace(context, barred="", others_barred=planned.mode, approved=approved, begun=begun)


def _remember(planned: PlannedPass, run: Run) -> Mapping[str, NodeRecord]:
    """Record the drift of nodes that nobody works on, and return the records of all nodes."""
    look, plans = planned.look, {name: planned.plan.nodes[name] for name in planned.look.names}
    if not look.outage:
        well = {name for name, plan in plans.items() if node_status(plan, acting=False) is NodeStatus.CONVERGED}
        close_needless(run.ledger, run.attempts.resumed, well, planned.plan.created_at)
    look.remember_drift(plans, run.context.run_id)
    return records_of(look.fleet, run.ledger)
