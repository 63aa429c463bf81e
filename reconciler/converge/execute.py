"""One node's way to its goal: look, plan, do the first action, look again (DESIGN 8).

Level-triggered: no action is decided from anything but facts read for it; plans and earlier outcomes only say where to
look. A node ends converged, failed or blocked, and its end never depends on how another node fares.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from reconciler.converge.actions import ACTIONS
from reconciler.converge.actions.context import Stop, carried_out
from reconciler.converge.actions.membership import lift_mark
from reconciler.converge.attempt import Subject, begin, context_of
from reconciler.converge.events import ActionFinished, ActionStarted
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.lease import bmc_scope
from reconciler.converge.observe import observe_node
from reconciler.converge.remember import remember_facts, remember_service_status
from reconciler.converge.retraction import take_back
from reconciler.converge.run import Ended, Executed, NodeResult, Run
from reconciler.health.table import row_of
from reconciler.model.crash import Crash, of_its_own_async
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE
from reconciler.model.errors import DriverError
from reconciler.model.observed import Observed, Silent
from reconciler.model.outcome import Ambiguous, Declined, Done, Outcome, Permanent, Transient, outcome_word
from reconciler.model.plan import BlockCode, Goal, NodePlan, PlannedAction, is_crashed
from reconciler.model.records import ISOLATED, OWNER_ANNOTATION, NodeRecord, isolated_for, read_mark
from reconciler.model.vocab import Disruption
from reconciler.planner.fleet.isolation import evidence, is_retracted
from reconciler.planner.fleet.permit import OF_ROLLOUTS
from reconciler.planner.fleet.rollouts import pending
from reconciler.planner.node.backoff import failures
from reconciler.planner.node.corroboration import BOOT_S
from reconciler.planner.node.holds import retracted
from reconciler.planner.node.record import untouched
from reconciler.planner.node.workload import disrupts, shakes

TRIES = 3  # of one action in a row
HOLDS_AFTER = 2  # what was done so often for the same drift and is needed again does not hold
PATIENCE_S = 300.0  # a longer pause after a failure is left to a later run
LOOK_S = 20.0
CONFIRM_S = 5.0  # between the two reads of evidence that is not latched
TAKE_OUT = ("mark", "drain")
PROVED_BY_BOOT = ("soft_restart", "power_cycle")
BOOTS = (*PROVED_BY_BOOT, "power_on", "reimage")
RESUME_WITHIN = timedelta(hours=2)  # an older intent says nothing about what is needed now


@dataclass(frozen=True, slots=True)
class Asks:
    """Questions that the work on one node asks of whoever sees the whole fleet.

    `reserve`: may the first action of this plan begin now? "" when windows and budget say yes; the node is then charged
    to it. `isolate`: of the confirmed signals, those for which the node may be isolated now; it is then counted.
    """

    reserve: Callable[[NodePlan], Awaitable[str]]
    begin_rollout: Callable[[NodePlan], None]
    isolate: Callable[[NodePlan, Observed, NodeRecord, AbstractSet[str]], tuple[str, ...]]


class NodeRun:
    """`observed`, `record` and `plan` are the latest; they are part of the run's final report.

    `seen`: at the latest pass. Its inventory will do to see that a node is ill and to take it out. `suspected`: the
    signals that the pass would isolate it for, which the next look confirms or not.
    """

    def __init__(
        self, run: Run, node: str, asks: Asks, seen: Observed | None = None, suspected: tuple[str, ...] = ()
    ) -> None:
        self.run = run
        self.node = node
        self.desired: Desired = run.fleet.nodes[node]  # as of the latest look: the spec may be another by then
        self.observed = seen
        self.plan: NodePlan | None = None
        self.record = NodeRecord(node)
        self._asks = asks
        self._suspected = frozenset(suspected)
        self._inventory_due = seen is None
        self._glanced = seen is not None
        self._told = asyncio.Event()
        self._failures: Counter[str] = Counter()  # in a row, by action
        self._done: Counter[tuple[str, frozenset[str]]] = Counter()  # by action and the drift that it was done for
        self._last = ""  # why the last attempt failed
        self._worked = False
        self._begun = False  # with what is planned; to isolate a node is no part of that
        self._parked = False  # begun under an approved plan, whose inputs are no longer those of the spec
        self._let_go = False
        self._seen_since = False  # whether the node was looked at after the latest attempt
        self._boot_deadline: float | None = None  # by the monotonic clock
        self._crash: Crash | None = None

    async def to_the_end(self) -> NodeResult:
        """A bug that shows on the way ends it, and is its result: nothing more is done to the node (invariant 22)."""
        return await of_its_own_async(
            self.node, "working on it", self._work, lambda crash: self._result(Ended.CRASHED, crash.sentence)
        )

    async def _work(self) -> NodeResult:
        while True:
            if self.node not in self.run.fleet.nodes:
                return self._result(Ended.POSTPONED, "the spec does not name it any more: it is left as it is")
            plan = await self._look()
            if is_retracted(plan, retracted(self.run.planner.holds, self.run.clock.now())):
                return await self._leave(await self._take_back(plan))
            if (found := evidence(plan)) and self.run.stop_of_all() is None:
                confirmed, self._suspected = self._confirmed(found), frozenset(found)
                if not confirmed:
                    self._inventory_due = True  # what the BMC said may be a day old: the second read is of now
                    await self.run.clock.sleep(CONFIRM_S)  # whatever the cluster tells meanwhile
                    continue
                if signals := self._asks.isolate(plan, self._latest, self.record, confirmed):
                    if (result := await self._isolate(plan, signals)) is not None:
                        return await self._leave(result)
                    continue
            if self._glanced and plan.actions and not (plan.illness and plan.actions[0].name in TAKE_OUT):
                self._inventory_due = True  # it is to be of now before a decision that uses it (DESIGN 5)
                continue
            if wait_s := self._wait_s(plan):
                await self._pause(wait_s)
                continue
            if plan.actions:
                result = await self._may_act(plan) or await self._act(plan, plan.actions[0])
            else:
                result = self._nothing_left(plan)
            if result is not None:
                return await self._leave(result)

    @property
    def _latest(self) -> Observed:
        assert self.observed is not None
        return self.observed

    def _confirmed(self, found: tuple[str, ...]) -> frozenset[str]:
        """One read is evidence of what is latched; anything else takes two, whatever else is shown beside it."""
        latched = {path for path in found if row_of(path.removeprefix("health.")).latched}
        return frozenset(latched | (self._suspected & set(found)))

    async def _isolate(self, plan: NodePlan, signals: tuple[str, ...]) -> NodeResult | None:
        """Cordon and mark, whatever budget, wave, window, brake or approval say. None: look again."""
        action = next(action for action in plan.actions if action.name == "mark")
        failed = self._failures[action.id]
        before = len(failures(self.record.attempts, action.name, action.target)) - failed
        if failed >= (TRIES if before < TRIES else 1):  # once a pass from then on, as long as the evidence stands
            return self._result(Ended.FAILED, f"{action.id} failed {before + failed} times: {self._last}")
        return await self._act(plan, replace(action, because=(ISOLATED + ", ".join(signals),)), begin=False)

    async def _take_back(self, plan: NodePlan) -> NodeResult:
        """Nothing but signals that a person has retracted keeps it out, and it was not drained: it serves as before."""
        if stop := self.run.stop_of_all():
            return self._result(Ended.POSTPONED, stop.detail)
        told = ", ".join(plan.isolated)
        cluster = self.run.fabric.cluster()
        assert cluster is not None, "only nodes of a cluster are isolated"
        port = TimedCluster(cluster, self.run.clock, self.run.fleet.settings, self.run.lease)
        if trouble := await take_back(port, self.run.ledger, self.node, plan.isolated, self.run.clock):
            return self._result(Ended.FAILED, f"its isolation for {told} was retracted, and the mark stays: {trouble}")
        self._seen_since = False
        return self._result(Ended.DONE, f"no longer isolated for {told}, which was retracted; it was not drained")

    def tell(self) -> None:
        """The cluster has news of the node: it is looked at without waiting further."""
        self._told.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.run.clock.real_seconds(seconds)):
                await self._told.wait()

    def _wait_s(self, plan: NodePlan) -> float:
        """Seconds until it is worth looking again; 0: now is the time."""
        if not plan.actions:
            return LOOK_S if not is_stopped(plan) and (self._worth_waiting(plan) or self._hears_soon(plan)) else 0.0
        until = backs_off_until(plan)
        if until is None or self._failures[plan.actions[0].id] >= TRIES:
            return 0.0
        pause = (until - self.run.clock.now()).total_seconds()
        return pause if pause <= PATIENCE_S else 0.0

    def _worth_waiting(self, plan: NodePlan) -> bool:
        """For a boot that nobody has waited for in vain yet."""
        if self.observed is None or not self.run.worth_waiting(self.observed, plan) or self._last:
            return False
        now = self.run.clock.monotonic()
        if self._boot_deadline is None:
            self._boot_deadline = now + BOOT_S
        return now < self._boot_deadline

    def _hears_soon(self, plan: NodePlan) -> bool:
        """Whether what is not known will be, one way or the other: a detector is given so long to speak."""
        blocked = plan.blocked
        known_by = blocked.until if blocked is not None and blocked.code is BlockCode.UNKNOWN else None
        return known_by is not None and known_by > self.run.clock.now()

    async def _look(self) -> NodePlan:
        run = self.run
        self._told.clear()
        self.desired = run.fleet.nodes.get(self.node, self.desired)
        kept = None if self._inventory_due else self.observed
        self._glanced = self._glanced and not self._inventory_due
        async with run.reading:
            self.observed = await observe_node(self.desired, run.fabric, run.clock, run.fleet.settings, previous=kept)
        self._inventory_due = False
        record = run.ledger.node(self.node)
        news = remember_facts(run.ledger, [self.observed], {self.node: record}, run.clock.now())
        self.record = run.ledger.node(self.node) if news else record
        self.plan = run.plan_node(self.desired, self.observed, self.record, let_go=self._let_go)
        self._seen_since = True
        if self._worked:
            remember_service_status(
                run.ledger, run.fleet, {self.node: self.plan}, run.clock.now(),
                acting=[self.node] if self.plan.changes else (),
            )  # fmt: skip
        return self.plan

    async def _may_act(self, plan: NodePlan) -> NodeResult | None:
        """Approval and budget, on the plan of this moment. Holds, marks and identity are in the plan itself."""
        action = plan.actions[0]
        if stop := self.run.stop():
            return self._result(Ended.POSTPONED, stop.detail)
        if why := self._waits_for(plan):
            return self._result(Ended.POSTPONED, why)
        begun = self._begun or self.node in self.run.begun
        if why := self.run.stale_because(plan, begun=begun):
            self._parked = begun and bool(self.run.other_inputs(plan))
            return self._result(Ended.STALE, why)
        if self._failures[action.id] >= TRIES:
            return self._result(Ended.FAILED, f"{action.id} failed {TRIES} times: {self._last}")
        if self._done[action.id, drift_of(plan)] >= HOLDS_AFTER:
            return self._result(Ended.FAILED, f"{action.id} was done {HOLDS_AFTER} times and does not hold")
        if plan.blocked is not None and backs_off_until(plan) is not None:
            return self._result(Ended.FAILED if self._last else Ended.POSTPONED, plan.blocked.detail)
        if disrupts(action):
            if why := await self._asks.reserve(plan):
                return self._result(Ended.POSTPONED, why)
            if stop := self.run.stop():  # it took a while to ask
                return self._result(Ended.POSTPONED, stop.detail)
        if shakes(action) and (brake := self.run.brake()):
            return self._result(Ended.POSTPONED, brake.detail)
        self._begun = True
        return None

    def _waits_for(self, plan: NodePlan) -> str:
        """Its wave, or whoever writes to its BMC: an attempt would only be refused, and count."""
        if plan.blocked is not None and plan.blocked.code in OF_ROLLOUTS:
            return plan.blocked.detail
        return self.run.lease.writer(bmc_scope(self.desired.endpoints.bmc or ""))

    async def _act(self, plan: NodePlan, action: PlannedAction, *, begin: bool = True) -> NodeResult | None:
        """One attempt, counted before it is tried. None: look again. `begin`: it is a step of the node's rollout."""
        if begin and not self._let_go and pending(plan) and not plan.postponed:
            self._asks.begin_rollout(plan)
            self._let_go = True
        outcome = await self._attempt(action)
        self._boot_deadline = None
        if self._crash is not None:
            return self._result(Ended.CRASHED, self._crash.sentence)
        if isinstance(outcome, Transient) and (why := self._waits_for(plan)):
            return self._result(Ended.POSTPONED, why)
        match outcome:
            case Done():
                self._last, self._failures[action.id] = "", 0
                self._done[action.id, drift_of(plan)] += 1
                return None
            case Transient() | Ambiguous() if action.name != "drain":
                self._last = outcome.detail
                self._failures[action.id] += 1
                if isinstance(outcome, Transient) and outcome.retry_after_s and self._failures[action.id] < TRIES:
                    await self.run.clock.sleep(outcome.retry_after_s)
                return None
            case Transient() | Ambiguous() | Permanent():
                return self._result(Ended.FAILED, f"{action.id}: {outcome.detail}")
            case Declined():
                state = Ended.FAILED if self._worked else Ended.NOT_STARTED
                return self._result(state, f"{action.id} refused ({outcome.code}): {outcome.detail}")
            case _:
                assert_never(outcome)

    async def _attempt(self, action: PlannedAction) -> Outcome:
        run, began, zero = self.run, self.run.clock.now(), self.run.clock.monotonic()
        assert self.plan is not None
        subject = Subject(self.desired, self._latest, self.record, self.plan)
        attempt, intent, resumed = begin(run, subject, action, began)
        run.progress(ActionStarted(self.node, action))
        ctx = context_of(run, subject, action, attempt, intent, resumed)
        self._seen_since = False
        outcome = await of_its_own_async(
            self.node, action.id, lambda: carried_out(ACTIONS[action.name], ctx), self._crashed
        )
        ended = run.clock.now()
        run.ledger.finish(attempt, outcome_word(outcome), outcome.detail, ended)
        if not isinstance(outcome, Declined):
            self._worked = True
            if action.name in BOOTS:
                self._outdate(ended)
        if action.disruption >= Disruption.RESTART or (ctx.bmc_port is not None and ctx.bmc_port.wrote):
            self._inventory_due = True
        seconds = run.clock.monotonic() - zero
        run.executed.append(Executed(self.node, action.name, action.target, action.because, outcome, began, seconds))
        run.progress(ActionFinished(self.node, action, outcome, seconds))
        return outcome

    def _crashed(self, crash: Crash) -> Outcome:
        """Whatever the action had begun may go on: as after a write without an answer."""
        self._crash = crash
        return Ambiguous(crash.sentence)

    def _outdate(self, now: datetime) -> None:
        """A restart that an earlier run had begun can't be told any more from the one that came just now."""
        for step in [step for step in self.run.resumed if step[0] == self.node and step[1] in PROVED_BY_BOOT]:
            left = self.run.resumed.pop(step)
            self.run.ledger.finish(left.attempt, "ambiguous", "the node was restarted for something else since", now)

    def _nothing_left(self, plan: NodePlan) -> NodeResult:
        assert self.observed is not None
        if is_crashed(plan):
            return self._result(Ended.CRASHED, plan.situation)
        if plan.blocked is not None and is_stopped(plan):
            begun = self._worked or self._last
            left = f"; it is left as it is, {'in' if plan.in_service else 'out of'} service" if begun else ""
            return self._result(Ended.POSTPONED if begun else Ended.NOT_STARTED, plan.blocked.detail + left)
        if self.run.boots(self.observed, plan):
            return self._result(Ended.FAILED, self._last or "the boot under way did not end in time")
        if plan.blocked is not None and not _only_waits(plan):
            state = Ended.FAILED if self._worked or self._last else Ended.NOT_STARTED
            return self._result(state, plan.blocked.detail + (f" (last: {self._last})" if self._last else ""))
        return self._result(Ended.DONE if self._worked else Ended.CONVERGED, plan.situation)

    def _result(self, state: Ended, detail: str) -> NodeResult:
        return NodeResult(self.node, state, detail)

    async def _leave(self, result: NodeResult) -> NodeResult:
        """Our mark stays on a node that something was done to until it is admitted; else it is lifted (H1, H3)."""
        if not self._seen_since:
            await self._look()
        if result.state is Ended.CRASHED:
            return result  # nobody knows whether it may serve
        if self._parked or not await self._lift_idle_mark():
            return result
        await self._look()
        return replace(result, detail=result.detail + "; it serves as before")

    async def _lift_idle_mark(self) -> bool:
        member = self.observed.member if self.observed is not None else None
        cluster = self.run.fabric.cluster()
        if cluster is None or member is None or isinstance(member, Silent) or member.value is None:
            return False
        if self.run.stop() is not None:
            return False
        mark = read_mark(member.value.annotations.get(OWNER_ANNOTATION))
        healthy = bool(member.value.ready) and self.plan is not None and not _isolated(self.plan)
        if mark is None or mark.ledger != self.run.ledger.id or not healthy or not untouched(self.record):
            return False
        if isolated_for(mark.reason):
            return False  # evidence that is gone is no proof: the gate judges
        port = TimedCluster(cluster, self.run.clock, self.run.fleet.settings, self.run.lease)
        try:
            return await lift_mark(port, self.node, self.run.ledger.id)
        except (Stop, DriverError):
            return False  # it is still marked, as the final observation shows


def is_stopped(plan: NodePlan) -> bool:
    return plan.blocked is not None and plan.blocked.code is BlockCode.STOPPED


def drift_of(plan: NodePlan) -> frozenset[str]:
    """What actions are done for. That a node which has just booted is not Ready yet makes it no other drift."""
    return frozenset(item.path for item in plan.drift if item.kind in ACTIONABLE and item.path != "cluster.member")


def backs_off_until(plan: NodePlan) -> datetime | None:
    return plan.blocked.until if plan.blocked is not None and plan.blocked.code is BlockCode.BACKOFF else None


def _only_waits(plan: NodePlan) -> bool:
    """Blocked by what is as it should be: somebody else's cordon on a node that is converged otherwise."""
    return plan.blocked is not None and plan.blocked.code is BlockCode.FOREIGN_CORDON


def _isolated(plan: NodePlan) -> bool:
    return plan.goal is Goal.ISOLATED or bool(plan.illness)
