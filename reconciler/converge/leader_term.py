"""What the leader does from taking the lease to losing it: pass after pass over the fleet, and one crew all the while.

Each pass looks at every node that nobody works on, plans the fleet anew, and hands both to the crew. In between, nodes
that end, that the cluster tells of, or whose time has come are seen to at once. A new spec comes into force with a pass
of its own; whoever is in the middle of an action ends it first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reconciler.converge.brake import OWNER
from reconciler.converge.dispatcher import POLL_S, Dispatcher
from reconciler.converge.events import LoopTold, Progress, ignore
from reconciler.converge.lease import HeldLease
from reconciler.converge.leftovers import close_needless, lift_forgotten_marks, take_over
from reconciler.converge.observation_pass import ObservationPass, PlanRequest, make_plan, planner_for
from reconciler.converge.observe import observe
from reconciler.converge.ports import GateRunner
from reconciler.converge.run import Run, Step, Unended
from reconciler.converge.status import fleet_status, held_by_brake, measured, node_status
from reconciler.model.desired import Fleet
from reconciler.model.errors import first_of_ours
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.ports import Clock, Fabric, Ledger, Metrics, Watch
from reconciler.model.records import NodeRecord
from reconciler.model.status import FleetStatus, NodeStatus
from reconciler.model.vocab import DriftMode
from reconciler.planner.fleet.planner import node_planner, records_needed
from reconciler.planner.node.estimates import estimates

JITTER = 0.1  # of the interval: fleets that were started together don't ask their BMCs together (pitfall I9)
NODES_PER_S = 10.0  # that a pass looks at when nobody waits for it: each costs 25 ms of CPU
LEISURE = 0.4  # of the interval: what it may take longer for that
PASSES_APART = 3  # intervals, and what a pass takes: when they are further apart, nobody knows what was between
REST = 0.25  # of the interval, after a pass that took longer than that
NAMED = 8  # nodes that a message names
WAKES_S = 5.0  # a node that the cluster tells of again and again is looked at so often, at most


@dataclass(frozen=True, slots=True)
class LoopDeps:
    """What a reconciler stands on, whoever leads. `signatures`: as for `plan_fleet`.

    `begin`: puts the work under a spec on record; the id of that run. `saw`: is told what a pass found.
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
    saw: Callable[[Fleet, Plan, Observation], None] = lambda _fleet, _plan, _observation: None


class LeaderTerm:
    """`fleet`: what is in force, and `change` puts another in its place. `passed` is called after every pass."""

    def __init__(
        self, deps: LoopDeps, fleet: Fleet, fabric: Fabric, lease: HeldLease, passed: Callable[[Plan], None]
    ) -> None:
        self.deps = deps
        self.fleet = fleet
        self.plan: Plan | None = None
        self._fabric = fabric
        self._lease = lease
        self._passed = passed
        self._run: Run | None = None
        self._dispatcher: Dispatcher | None = None
        self._observation: Observation | None = None
        self._status: FleetStatus | None = None
        self._next: Fleet | None = None
        self._looking: asyncio.Task[Observation] | None = None  # a pass under way
        self._leisurely = False  # as it is when nobody waits for it
        self._due: float | None = None  # of the next one, by the monotonic clock; None: now
        self._outage = ""
        self._braked = ""
        self._incidents: frozenset[tuple[str, str]] = frozenset()
        self._woken: dict[str, float] = {}  # when last, by the monotonic clock

    # --- from outside ---

    def change(self, fleet: Fleet) -> None:
        """Another spec, with the next pass, which begins at once."""
        self._next = fleet
        if self._dispatcher is not None:
            self._dispatcher.stirred.set()

    # --- the loop ---

    async def work(self) -> None:
        """Until it is cancelled or the lease is lost; what runs is parked then."""
        listening = asyncio.create_task(self._listen(self._fabric.watch()))
        try:
            await self._take(await self._look(fresh=True, hurry=True))
            await self._go_on(listening)
        finally:
            listening.cancel()
            if self._looking is not None:
                self._looking.cancel()
            if self._dispatcher is not None:
                await self._dispatcher.park()
            await asyncio.wait([task for task in (listening, self._looking) if task is not None])

    async def _go_on(self, listening: asyncio.Task[None]) -> None:
        dispatcher = self._dispatcher
        assert dispatcher is not None
        while True:
            if self._looking is not None and self._looking.done():
                seen, self._looking = self._looking.result(), None
                await self._take(seen)
            if self._next is not None and self._leisurely and self._looking is not None:
                self._looking.cancel()
                await asyncio.wait([self._looking])
                self._looking = None
            if self._looking is None and (self._next is not None or self._is_due()):
                self._leisurely = self._next is None
                await self._change()
                self._looking = asyncio.create_task(self._look(fresh=False, hurry=not self._leisurely))
                self._looking.add_done_callback(lambda _: dispatcher.stirred.set())
            dispatcher.take_in()
            dispatcher.start()
            await self._until_stirred(dispatcher)
            if listening.done():
                listening.result()

    def _is_due(self) -> bool:
        return self._due is None or self.deps.clock.monotonic() >= self._due

    async def _until_stirred(self, dispatcher: Dispatcher) -> None:
        """Time, too, opens windows, ends bakes and lets pauses run out."""
        clock = self.deps.clock
        pause = POLL_S
        if self._looking is None and self._due is not None:
            pause = min(pause, max(self._due - clock.monotonic(), 0.0))
        with suppress(TimeoutError):
            async with asyncio.timeout(clock.real_seconds(pause)):
                await dispatcher.stirred.wait()

    async def _change(self) -> None:
        """Put the new spec in place. What is begun from now on goes by it."""
        if self._next is None:
            return
        self.fleet, self._next = self._next, None
        assert self._run is not None
        self._run.fleet = self.fleet
        self._run.id = self.deps.begin(self.fleet)
        self._run.barred = "a new spec has come, and the fleet is being looked at"
        await self._fabric.refit(self.fleet)

    # --- one pass ---

    async def _look(self, *, fresh: bool, hurry: bool) -> Observation:
        """Whoever is worked on is looked at by those who work on it.

        Unless in a hurry it leaves time for what the cluster tells meanwhile, which would else wait for the whole pass.
        """
        clock, busy = self.deps.clock, () if self._dispatcher is None else self._dispatcher.at_work
        began = clock.monotonic()
        try:
            seen = await observe(
                self.fleet, [name for name in self.fleet.nodes if name not in busy], self._fabric, clock,
                previous=self._observation, fresh_inventory=fresh, progress=ignore, time_scale=self.deps.time_scale,
                over_s=0.0 if hurry else min(len(self.fleet.nodes) / NODES_PER_S, self.deps.interval_s * LEISURE),
            )  # fmt: skip
        except ExceptionGroup as group:  # a secret that can't be had is missed by all of them
            raise first_of_ours(group) or group from None
        interval = self.deps.interval_s * (1 + JITTER * random.uniform(-1, 1))  # noqa: S311 - it spreads load
        self._due = max(began + interval, clock.monotonic() + interval * REST)
        return seen

    async def _take(self, seen: Observation) -> None:
        """What the pass teaches; who may go now."""
        ledger, fleet, now = self.deps.ledger, self.fleet, self.deps.clock.now()
        observation = seen if self._dispatcher is None else self._dispatcher.merged(seen)
        idle = [name for name in fleet.nodes if self._dispatcher is None or name not in self._dispatcher.at_work]
        look = ObservationPass(fleet, observation, idle, ledger, self.deps.clock, self._records())
        self._tell_outage(look.outage)
        look.learn(evidence=True)
        look.copy_holds()
        request = self._plan_request(now)
        plan = make_plan(fleet, observation, ledger, request, now)
        if self._run is None:
            resumed = await take_over(ledger, self._fabric.installer(), fleet, fleet.nodes.keys(), now)
            self._run = self._first_run(observation, plan, resumed, now)
        run = self._run
        run.planner = planner_for(fleet, observation, ledger, request, now)
        run.plan_id = plan.id
        run.barred, run.refused = look.outage or _mode(fleet), _refused(plan)
        run.executed.clear()
        if not look.outage:
            well = {name for name in idle if node_status(plan.nodes[name], acting=False) is NodeStatus.CONVERGED}
            close_needless(ledger, run.resumed, well, now)
        look.remember_drift({name: plan.nodes[name] for name in idle}, run.id)
        records = self._records()
        await self._forget(plan)
        if self._dispatcher is None:
            self._dispatcher = Dispatcher(run, observation, plan.nodes, records)
        else:
            self._dispatcher.renew(observation, plan.nodes, records)
        ahead = {name: newer for name, newer in self._dispatcher.ahead.items() if name in plan.nodes}
        known = replace(plan, nodes={**plan.nodes, **ahead})
        acting = [name for name, newer in ahead.items() if newer.changes]  # the others are waited for
        within = timedelta(seconds=PASSES_APART * self.deps.interval_s) + (seen.finished_at - seen.started_at)
        look.remember_statuses(known.nodes, acting=acting, within=within)
        if not look.outage:
            self.deps.saw(fleet, plan, observation)
        self.plan, self._observation = plan, observation
        self._status = fleet_status(known, observation, self._status, acting=acting)
        self.deps.metrics.passed(self._status)
        self._tell_brake(plan)
        self._tell_incidents(plan)
        self._tell(plan, observation)

    def _tell_brake(self, plan: Plan) -> None:
        """When it is set, by what and what it holds back; and when it is lifted."""
        if plan.braked == self._braked:
            return
        self._braked = plan.braked
        held = held_by_brake(plan)
        message = "the storm brake is lifted"
        if plan.braked:
            shown = ", ".join(held[:NAMED]) + (f" and {len(held) - NAMED} more" if len(held) > NAMED else "")
            why = plan.braked.removeprefix(f"{OWNER}: ")
            message = f"the storm brake is set: {why}. It holds back {shown or 'nothing yet'}"
        self.deps.progress(LoopTold("brake", message, problem=bool(plan.braked), fields={"held_back": len(held)}))

    def _tell_incidents(self, plan: Plan) -> None:
        """Each once, when it begins and when it is over."""
        current = {(one.signal, one.scope): one for one in plan.incidents}
        for key, one in current.items():
            if key not in self._incidents:
                many = "1 node" if len(one.nodes) == 1 else f"{len(one.nodes)} nodes"
                told = f"{one.signal} on {many} of {one.scope}: {one.detail}"
                fields: dict[str, str | int | float] = {"signal": one.signal, "nodes": len(one.nodes)}
                self.deps.progress(LoopTold("incident", told, problem=True, fields=fields))
        for signal, scope in sorted(self._incidents - current.keys()):
            self.deps.progress(LoopTold("incident_over", f"{signal} of {scope}: the incident is over"))
        self._incidents = frozenset(current)

    def _records(self) -> Mapping[str, NodeRecord]:
        return self.deps.ledger.nodes(records_needed(self.fleet, list(self.fleet.nodes)))

    def _tell_outage(self, outage: str) -> None:
        """Tell when the observer outage begins and when it is over."""
        if outage != self._outage:
            message = outage or "nodes answer again"
            self.deps.progress(LoopTold("blind" if outage else "seeing", message, problem=bool(outage)))
        self._outage = outage

    def _plan_request(self, now: datetime) -> PlanRequest:
        ledger, fleet = self.deps.ledger, self.fleet
        return PlanRequest(
            plan_id=f"pass-{now:%Y%m%d-%H%M%S}", names=list(fleet.nodes), signatures=self.deps.signatures(fleet),
            estimates=estimates(fleet, ledger.durations()), known=ledger.known(),
        )  # fmt: skip

    def _first_run(self, observation: Observation, plan: Plan, resumed: dict[Step, Unended], now: datetime) -> Run:
        deps, fleet = self.deps, self.fleet
        return Run(
            id=deps.begin(fleet), plan_id=plan.id, fleet=fleet, fabric=self._fabric, ledger=deps.ledger,
            clock=deps.clock, gate=deps.gate, lease=self._lease, approved=None,
            progress=measured(deps.metrics, deps.progress),
            planner=node_planner(fleet, observation, now=now, ledger=deps.ledger.id, signatures={}),
            begun=frozenset(), resumed=resumed, interrupted={node for node, _, _ in resumed},
            reading=asyncio.Semaphore(fleet.settings.concurrency),
        )  # fmt: skip

    async def _forget(self, plan: Plan) -> None:
        """Nodes that left the spec: our marks are lifted, and what was applied to them means nothing any more."""
        ledger, clock = self.deps.ledger, self.deps.clock
        gone = [name for name in ledger.known() if name not in self.fleet.nodes]
        busy = (
            self._dispatcher is not None and not self._dispatcher.at_work <= self.fleet.nodes.keys()
        )  # they end first
        if (self._dispatcher is not None and not gone) or busy or self._outage or _refused(plan) or _mode(self.fleet):
            return
        kept = await lift_forgotten_marks(ledger, self._fabric.cluster(), self.fleet, clock, self._lease)
        ledger.forget(gone, clock.now())
        if not gone and not kept:
            return
        more = f"; {', '.join(kept)} keep our mark, since no gate has judged what was done to them" if kept else ""
        message = f"{len(gone)} nodes left the spec and are forgotten: {', '.join(gone[:5])}{more}"
        self.deps.progress(LoopTold("forgotten", message, problem=bool(kept)))

    def _tell(self, plan: Plan, observation: Observation) -> None:
        assert self._dispatcher is not None
        self._passed(plan)
        seconds = (observation.finished_at - observation.started_at).total_seconds()
        totals = plan.totals
        self.deps.progress(LoopTold(
            "pass",
            f"{len(plan.nodes)} nodes seen in {seconds:.1f} s: {totals.nodes_with_changes} differ, "
            f"{len(self._dispatcher.at_work)} at work, {len(plan.incomplete)} unknown",
            fields={
                "seconds": round(seconds, 3), "nodes": len(plan.nodes), "changes": totals.nodes_with_changes,
                "at_work": len(self._dispatcher.at_work), "unknown": len(plan.incomplete), "plan": plan.id,
            },
        ))  # fmt: skip

    # --- what the cluster tells ---

    async def _listen(self, watch: Watch | None) -> None:
        if watch is None:
            await asyncio.Event().wait()
            return

        def tell(problem: str) -> None:
            message = f"the cluster tells nothing of its nodes: {problem}" if problem else "the cluster tells again"
            self.deps.progress(LoopTold("watch", message, problem=bool(problem)))

        async with aclosing(watch.changes(tell)) as names:
            async for name in names:
                self._wake(name)

    def _wake(self, name: str) -> None:
        now, last = self.deps.clock.monotonic(), self._woken.get(name)
        if self._dispatcher is None or name not in self.fleet.nodes:
            return
        if last is not None and now - last < WAKES_S:
            later = last + WAKES_S
            if last < now:  # else one is due already
                self._woken[name] = later
                pause = self.deps.clock.real_seconds(later - now)
                asyncio.get_running_loop().call_later(pause, self._dispatcher.wake, name)
            return
        self._woken[name] = now
        self._dispatcher.wake(name)


def _refused(plan: Plan) -> str:
    """Why nothing of the plan may begin."""
    return f"the plan is refused: {'; '.join(plan.refused)}" if plan.refused else ""


def _mode(fleet: Fleet) -> str:
    """Why nothing may begin, whatever is planned or seen."""
    if fleet.settings.drift_mode is not DriftMode.CORRECT:
        return f"the spec's mode is {fleet.settings.drift_mode.value}: drift is reported and left as it is"
    return ""
