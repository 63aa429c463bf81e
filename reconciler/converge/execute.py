"""The work on one node until its goal: look, plan, do the first action, look again (DESIGN 8).

Level-triggered: an action is decided only from facts that were read for it; plans and earlier outcomes only say where
to look. How the work on one node ends never depends on how another node fares.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from reconciler.converge.actions.context import Stop
from reconciler.converge.actions.membership import lift_mark
from reconciler.converge.attempt import attempt
from reconciler.converge.cancelled_repair import cancel, is_uncordoned
from reconciler.converge.firmware_files import unfit_firmware
from reconciler.converge.fleet_limits import FleetLimits
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.lease import bmc_scope
from reconciler.converge.observe import observe_node
from reconciler.converge.plan_questions import backs_off_until, drift_of, is_stopped, known_by, may_serve_as_before
from reconciler.converge.remember import Shown, remember_facts, remember_look, remember_signals
from reconciler.converge.retraction import take_back
from reconciler.converge.run import Ended, NodeResult, Run, Subject
from reconciler.health.table import table_of
from reconciler.model.crash import of_its_own_async
from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError
from reconciler.model.observed import Observed, Silent
from reconciler.model.outcome import Ambiguous, Declined, Done, Permanent, Transient
from reconciler.model.plan import BlockCode, Goal, NodePlan, PlannedAction, is_crashed
from reconciler.model.ports import Cluster
from reconciler.model.records import ISOLATED, OWNER_ANNOTATION, REFUTED, NodeRecord, isolated_for, read_mark
from reconciler.planner.fleet.isolation import evidence, is_retracted
from reconciler.planner.fleet.k3s_order import goes_in_order
from reconciler.planner.fleet.permit import OF_ROLLOUTS
from reconciler.planner.fleet.rollouts import pending
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.backoff import failures
from reconciler.planner.node.by_person import waits_for_person
from reconciler.planner.node.corroboration import BOOT_S
from reconciler.planner.node.holds import retracted
from reconciler.planner.node.repair import waits_for_exchange
from reconciler.planner.node.workload import disrupts, is_braked

TRIES = 3  # of one action in a row
HOLDS_AFTER = 2  # an action done so often for the same drift, and needed again, does not hold
PATIENCE_S = 300.0  # a longer pause after a failure is left to a later run
LOOK_S = 20.0
WAITS_FOR_CONSENT = (
    "it is to be decommissioned, and waits for an approved plan: `reconciler plan --out FILE`, then "
    "`reconciler apply --plan FILE` and the typed consent 'decommission {node}'"
)
CONFIRM_S = 5.0  # between the two reads of evidence that is not latched


class NodeRun:
    """The work on one node, in a task of its own.

    `observed`, `record` and `plan` are the latest; they are part of the run's final report. `seen`: as of the latest
    pass; its inventory is fresh enough to see that a node is ill and to take it out. `suspected`: the signals that the
    pass would isolate the node for, which the next look confirms or not.
    """

    def __init__(
        self, run: Run, node: str, limits: FleetLimits, seen: Observed | None = None, suspected: tuple[str, ...] = ()
    ) -> None:
        self.run = run
        self.node = node
        self.desired: Desired = run.fleet.nodes[node]  # as of the latest look: the spec may have changed since
        self.observed = seen
        self.plan: NodePlan | None = None
        self.record = NodeRecord(node)
        self._limits = limits
        self._suspected = frozenset(suspected)
        self._inventory_due = seen is None
        self._old_inventory = seen is not None  # the inventory is that of the pass
        self._news = asyncio.Event()  # there is news of the node
        self._failures: Counter[str] = Counter()  # in a row, by action
        self._done: Counter[tuple[str, frozenset[str]]] = Counter()  # by action and the drift that it was done for
        self._last_failure = ""  # why the last attempt failed
        self._worked = False
        self._begun = False  # with what is planned; isolating a node is not planned
        self._parked = False  # begun under an approved plan, whose inputs are no longer those of the spec
        self._wave_open = False  # its wave was open when work began: it is finished whatever becomes of the rollout
        self._seen_since = False  # whether the node was looked at after the latest attempt
        self._shown: Shown | None = None  # the signals of the latest look; None: none was recorded yet
        self._boot_deadline: float | None = None  # by the monotonic clock

    async def to_the_end(self) -> NodeResult:
        """Work until the node's goal is reached or nothing more can be done now, and return how it ended.

        A bug ends the work and is its result: nothing more is done to the node (invariant 22).
        """
        return await of_its_own_async(
            self.node, "working on it", self._work, lambda crash: self._result(Ended.CRASHED, crash.sentence)
        )

    def wake(self, *, read_bmc: bool = False) -> None:
        """Look at the node without waiting further: there is news of it, or of its BMC."""
        self._inventory_due = self._inventory_due or read_bmc
        self._news.set()

    async def _work(self) -> NodeResult:
        while True:
            if self.node not in self.run.fleet.nodes:
                return self._result(Ended.POSTPONED, "the spec no longer names it: it is left as it is")
            plan = await self._look()
            if (ended := await self._ended_by_a_person(plan)) is not None:
                return await self._finish(ended)
            if (found := evidence(plan, table_of(self.desired.profile))) and not self.run.stop_of_isolation():
                confirmed, self._suspected = self._confirmed(found), frozenset(found)
                if not confirmed:
                    self._inventory_due = True  # the BMC's part may be a day old: the second read must be fresh
                    await self.run.clock.sleep(CONFIRM_S)  # not cut short by news from the cluster
                    continue
                if signals := self._limits.isolate(plan, self._latest, self.record, confirmed):
                    if (result := await self._isolate(plan, signals)) is not None:
                        return await self._finish(result)
                    continue
            if self._old_inventory and plan.actions and not (plan.illness and spec_of(plan.actions[0].name).takes_out):
                self._inventory_due = True  # a decision that uses the inventory needs a fresh one (DESIGN 5)
                continue
            if wait_s := self._wait_s(plan):
                await self._pause(wait_s)
                continue
            if plan.actions:
                result = (
                    await self._is_unfit(plan) or await self._may_act(plan) or await self._act(plan, plan.actions[0])
                )
            else:
                result = self._nothing_left(plan)
            if result is not None:
                return await self._finish(result)

    @property
    def _latest(self) -> Observed:
        assert self.observed is not None
        return self.observed

    # --- looking and waiting ---

    async def _look(self) -> NodePlan:
        run = self.run
        self._news.clear()
        self.desired = run.fleet.nodes.get(self.node, self.desired)
        previous = None if self._inventory_due else self.observed
        self._old_inventory = self._old_inventory and not self._inventory_due
        async with run.ports.reads:
            self.observed = await observe_node(
                self.desired, run.ports.fabric, run.clock, run.fleet.settings, previous=previous
            )
        self._inventory_due = False
        run.mind_clock()
        record = run.ledger.node(self.node)
        nodes, records = {self.node: self.desired}, {self.node: record}
        news = bool(remember_facts(run.ledger, nodes, [self.observed], records, run.clock.now()))
        news = remember_signals(run.ledger, self.desired, self.observed, record, run.clock.now()) or news
        self.record = run.ledger.node(self.node) if news else record
        plan, rest = self._limits.plan_node(self.desired, self.observed, self.record)
        self.plan = plan if self._wave_open else self._limits.rollouts.part_allowed(plan, rest)
        self._seen_since = True
        look = self.desired, self.observed, self.record, self.plan
        self._shown = remember_look(
            run.ledger, run.fleet, look, self._shown, run.context.run_id, run.clock.now(), worked=self._worked
        )
        return self.plan

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.run.clock.real_seconds(seconds)):
                await self._news.wait()

    def _wait_s(self, plan: NodePlan) -> float:
        """Return the seconds until it is worth looking again; 0 = go on now."""
        if not plan.actions:
            return LOOK_S if not is_stopped(plan) and (self._worth_waiting(plan) or self._known_soon(plan)) else 0.0
        until = backs_off_until(plan)
        if until is None or self._failures[plan.actions[0].id] >= TRIES:
            return 0.0
        pause = (until - self.run.clock.now()).total_seconds()
        return pause if pause <= PATIENCE_S else 0.0

    def _worth_waiting(self, plan: NodePlan) -> bool:
        """Return whether a boot is under way, and this run has not yet waited for it until its deadline."""
        if self.observed is None or not self.run.worth_waiting(self.observed, plan) or self._last_failure:
            return False
        now = self.run.clock.monotonic()
        if self._boot_deadline is None:
            self._boot_deadline = now + BOOT_S
        return now < self._boot_deadline

    def _known_soon(self, plan: NodePlan) -> bool:
        """Return whether unknown facts will be settled by a known time, until which a detector may still report."""
        return known_by(plan, self.run.clock.now()) is not None

    # --- isolation ---

    def _confirmed(self, found: tuple[str, ...]) -> frozenset[str]:
        """Return the signals that are proved: latched ones by one read, each other one by two reads of it."""
        table = table_of(self.desired.profile)
        latched = {path for path in found if table.rule_of(path.removeprefix("health.")).latched}
        return frozenset(latched | (self._suspected & set(found)))

    async def _isolate(self, plan: NodePlan, signals: tuple[str, ...]) -> NodeResult | None:
        """Cordon and mark the node, whatever budget, wave, window, brake or approval say. None: look again."""
        action = next(action for action in plan.actions if action.name == "mark")
        failed = self._failures[action.id]
        before = len(failures(self.record, action.name, action.target)) - failed
        if failed >= (TRIES if before < TRIES else 1):  # once a pass from then on, while the evidence lasts
            return self._result(Ended.FAILED, f"{action.id} failed {before + failed} times: {self._last_failure}")
        return await self._act(plan, replace(action, because=(ISOLATED + ", ".join(signals),)), begin=False)

    async def _take_back(self, plan: NodePlan) -> NodeResult:
        """Lift the mark of a node that was isolated only for retracted signals and not drained: it serves as before."""
        if stop := self.run.stop_of_isolation():
            return self._result(Ended.POSTPONED, stop.detail)
        signals = ", ".join(plan.isolated)
        cluster = self.run.ports.fabric.cluster()
        assert cluster is not None, "only nodes of a cluster are isolated"
        port = self._timed(cluster)
        if trouble := await take_back(port, self.run.ledger, self.node, plan.isolated, self.run.clock):
            return self._result(
                Ended.FAILED, f"its isolation for {signals} was retracted, and the mark stays: {trouble}"
            )
        self._seen_since = False
        return self._result(Ended.DONE, f"no longer isolated for {signals}, which was retracted; it was not drained")

    async def _ended_by_a_person(self, plan: NodePlan) -> NodeResult | None:
        """Return how the work ends where a person took the node back, or said that its signals are wrong."""
        if plan.illness and is_uncordoned(self._latest, self.record, self.run.ledger.id):
            return self._result(Ended.POSTPONED, cancel(self.run.ledger, plan, self.run.clock.now()))
        if plan.isolated and is_retracted(plan, retracted(self.run.holds(), self.run.clock.now())):
            return await self._take_back(plan)
        return None

    # --- acting ---

    async def _is_unfit(self, plan: NodePlan) -> NodeResult | None:
        """Return how it ends where a person is to act, or a healthy node would be flashed with what is not meant."""
        if why := waits_for_person(self.desired, plan):
            return self._result(Ended.PARKED, why)
        if plan.illness or not spec_of(plan.actions[0].name).takes_out:
            return None
        why = await unfit_firmware(self.run.ports.fabric.firmware_files(), self.desired, plan)
        return self._result(Ended.FAILED if self._worked else Ended.NOT_STARTED, why) if why else None

    async def _may_act(self, plan: NodePlan) -> NodeResult | None:
        """Check approval and budget for the plan of this moment. Holds, marks and identity are in the plan itself."""
        action = plan.actions[0]
        if stop := self.run.stop():
            return self._result(Ended.POSTPONED, stop.detail)
        if why := self._waits_for(plan):
            return self._result(Ended.POSTPONED, why)
        begun = self._begun or self.node in self.run.context.begun
        if why := self.run.stale_because(plan, begun=begun):
            self._parked = begun and bool(self.run.other_inputs(plan))
            return self._result(Ended.STALE, why)
        if self._failures[action.id] >= TRIES:
            return self._result(Ended.FAILED, f"{action.id} failed {TRIES} times: {self._last_failure}")
        if self._done[action.id, drift_of(plan)] >= HOLDS_AFTER:
            return self._result(Ended.FAILED, f"{action.id} was done {HOLDS_AFTER} times and does not hold")
        if plan.blocked is not None and backs_off_until(plan) is not None:
            return self._result(Ended.FAILED if self._last_failure else Ended.POSTPONED, plan.blocked.detail)
        if disrupts(action) or goes_in_order(action, self.desired.profile.k3s):
            if why := await self._limits.reserve(plan):
                return self._result(Ended.POSTPONED, why)
            if stop := self.run.stop():  # somebody may have stopped the fleet meanwhile
                return self._result(Ended.POSTPONED, stop.detail)
        if why := self._limits.refusal_to_restore(plan):
            return self._result(Ended.POSTPONED, why)
        if is_braked(action) and (brake := self.run.brake()):
            return self._result(Ended.POSTPONED, brake.detail)
        self._begun = True
        return None

    def _waits_for(self, plan: NodePlan) -> str:
        """Return what the node waits for: a person, its wave, or another writer to its BMC, which fails attempts."""
        if why := self.run.bar_of(self.node):
            return why
        if plan.goal is Goal.DECOMMISSIONED and self.node not in self.run.context.consented:
            return WAITS_FOR_CONSENT.format(node=self.node)
        if plan.blocked is not None and plan.blocked.code in OF_ROLLOUTS:
            return plan.blocked.detail
        return self.run.ports.lease.writer(bmc_scope(self.desired.endpoints.bmc or ""))

    async def _act(self, plan: NodePlan, action: PlannedAction, *, begin: bool = True) -> NodeResult | None:
        """Make one attempt, which is counted before it is tried. None: look again.

        `begin`: the action is a step of the node's rollout.
        """
        if begin and not self._wave_open and pending(plan) and not plan.postponed:
            self._limits.begin_rollout(plan)
            self._wave_open = True
        self._seen_since = False
        out = self._limits.out_of_group(self.desired)
        subject, pool = Subject(self.desired, self._latest, self.record, plan, out), self._limits.partners
        with pool.acting(self.node) as held:
            if held and begin:  # evidence of illness waits for no gate
                return self._result(Ended.POSTPONED, held)
            made = await attempt(self.run, subject, action, pool)
        outcome = made.outcome
        self._worked = self._worked or not isinstance(outcome, Declined)
        if not isinstance(outcome, Declined):
            self._begin_anew(action)
        self._inventory_due = self._inventory_due or made.inventory_due
        self._boot_deadline = None
        if made.crash is not None:
            return self._result(Ended.CRASHED, made.crash.sentence)
        if isinstance(outcome, Transient) and (why := self._waits_for(plan)):
            return self._result(Ended.POSTPONED, why)
        match outcome:
            case Done():
                self._last_failure, self._failures[action.id] = "", 0
                self._done[action.id, drift_of(plan)] += 1
                return None
            case Transient() | Ambiguous() if spec_of(action.name).retriable:
                self._last_failure = outcome.detail
                self._failures[action.id] += 1
                if isinstance(outcome, Transient) and outcome.retry_after_s and self._failures[action.id] < TRIES:
                    await self.run.clock.sleep(outcome.retry_after_s)
                return None
            case Permanent() if outcome.detail.startswith(REFUTED):
                self._last_failure = outcome.detail  # now on record: the next look takes a node in service out for it
                self._failures[action.id] += 1
                return None
            case Transient() | Ambiguous() | Permanent():
                return self._result(Ended.FAILED, f"{action.id}: {outcome.detail}")
            case Declined():
                state = Ended.POSTPONED if outcome.waits else Ended.FAILED if self._worked else Ended.NOT_STARTED
                return self._result(state, f"{action.id} refused ({outcome.code}): {outcome.detail}")
            case _:
                assert_never(outcome)

    def _begin_anew(self, action: PlannedAction) -> None:
        """Count no more what this action undid, even by failing. No two actions undo each other: each is counted."""
        undone = spec_of(action.name).undoes - {action.name}
        for step in [step for step in self._done if step[0].partition(":")[0] in undone]:
            del self._done[step]

    # --- ending ---

    def _nothing_left(self, plan: NodePlan) -> NodeResult:
        if is_crashed(plan):
            return self._result(Ended.CRASHED, plan.situation)
        last = self._last_failure
        if plan.blocked is not None and is_stopped(plan):
            begun = self._worked or last
            left = f"; it is left as it is, {'in' if plan.in_service else 'out of'} service" if begun else ""
            return self._result(Ended.POSTPONED if begun else Ended.NOT_STARTED, plan.blocked.detail + left)
        if self.run.boots(self._latest, plan):
            return self._result(Ended.FAILED, last or "the boot under way did not end in time")
        reached = plan.blocked is None or plan.blocked.code is BlockCode.FOREIGN_CORDON  # which leaves it converged
        if plan.blocked is not None and not reached and not waits_for_exchange(self.record, plan):
            state = Ended.FAILED if self._worked or last else Ended.NOT_STARTED
            return self._result(state, plan.blocked.detail + (f" (last: {last})" if last else ""))
        return self._result(Ended.DONE if self._worked else Ended.CONVERGED, plan.situation)

    def _result(self, state: Ended, detail: str) -> NodeResult:
        return NodeResult(self.node, state, detail)

    async def _finish(self, result: NodeResult) -> NodeResult:
        """Look once more, and lift our mark unless something was done to the node that no gate has judged (H1, H3)."""
        if not self._seen_since:
            await self._look()
        if result.state is Ended.CRASHED:
            return result  # nobody knows whether the node may serve
        if self._parked or not await self._lift_idle_mark():
            return result
        await self._look()
        return replace(result, detail=result.detail + "; it serves as before")

    async def _lift_idle_mark(self) -> bool:
        member = self.observed.member if self.observed is not None else None
        cluster = self.run.ports.fabric.cluster()
        if cluster is None or member is None or isinstance(member, Silent) or member.value is None:
            return False
        stopped = self.run.stop() is not None or self.run.bar_of(self.node)
        if stopped or self._limits.partners.holder(self.node):
            return False
        mark = read_mark(member.value.annotations.get(OWNER_ANNOTATION))
        if mark is None or mark.ledger != self.run.ledger.id:
            return False
        if not may_serve_as_before(self.plan, self.record, member.value) or isolated_for(mark.reason):
            return False  # evidence that is gone proves nothing: the gate judges
        try:
            return await lift_mark(self._timed(cluster), self.node, self.run.ledger.id)
        except (Stop, DriverError):
            return False  # it is still marked, as the final observation shows

    def _timed(self, cluster: Cluster) -> TimedCluster:
        return TimedCluster(cluster, self.run.clock, self.run.fleet.settings, self.run.ports.lease)
