"""Run a schedule: the reconciler runs repeatedly during the events, and then until the fleet has settled.

The checker of tests/soak checks invariants 4 to 10 and 17 before each write. This module checks that crashes and a
second runner do no harm (11, 12), that no run hangs, and that every node ends as specified or with a reason.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from reconciler.converge.apply import ApplyReport, ApplyRequest, apply
from reconciler.converge.events import ActionFinished, ActionStarted, Event, NodeSettled
from reconciler.converge.run import Ended
from reconciler.model.errors import Blind, LeaseHeld, Refused
from reconciler.model.outcome import outcome_word
from reconciler.model.plan import BlockCode, Goal
from reconciler.model.records import FLEET
from reconciler.model.units import format_duration
from tests.faults.schedule import FAULTS, HOUR, LENGTH_S, MINUTE, Schedule, ScheduledEvent
from tests.soak import plans
from tests.soak.invariant_checker import CrashTrigger, PowerCut
from tests.soak.shorten import shortest
from tests.soak.spec import SIGNATURES
from tests.soak.world import SmallFleet

DAY = 24 * HOUR
WAIT_S = 20 * MINUTE  # of each run
PAUSE_S = 30 * MINUTE  # between scheduled runs
BY_HAND = "by hand: "
LEASE_S = 61.0  # until the lease of a dead runner has expired
LONGEST_S = 12 * HOUR  # a run after its wait: three attempts of the slowest actions in sequence
LASTING = frozenset(
    {BlockCode.ATTEMPTS, BlockCode.GATE, BlockCode.HALTED, BlockCode.STORM}
)  # reasons that last until an operator acts


class Broken(AssertionError):
    """An invariant does not hold. The message names it and says why."""


@dataclass(frozen=True)
class ScheduleResult:
    """The result of a schedule. `broken`: the broken invariant, or "". `log`: all events, line by line."""

    schedule: Schedule
    broken: str
    log: tuple[str, ...]
    runs: int
    actions: int
    acknowledged: int  # nodes that an operator had to acknowledge at the end

    def __str__(self) -> str:
        nodes = " ".join(self.schedule.names)
        policy = ", ".join(f"{name} {value}" for name, value in self.schedule.policy.items())
        head = f"seed {self.schedule.seed}: {nodes}; {policy}"
        end = self.broken or f"nothing broke in {self.runs} runs and {self.actions} actions"
        return "\n".join([head, *self.log, "", end])


def run_schedule(schedule: Schedule) -> ScheduleResult:
    run = _ScheduleRun(schedule)
    broken = ""
    try:
        run.play()
    except Broken as found:
        broken = str(found)
    finally:
        run.world.raw_ledger.close()
    return ScheduleResult(schedule, broken, tuple(run.log), run.runs, run.actions, run.acknowledged)


def failure_report(schedule: Schedule) -> str:
    """Return "" when no invariant breaks, else the shortest schedule that breaks it and the command to repeat it."""
    broken = run_schedule(schedule).broken
    if not broken:
        return ""
    steps, _ = shortest(schedule.events, lambda fewer: run_schedule(replace(schedule, events=tuple(fewer))).broken)
    result = run_schedule(replace(schedule, events=tuple(steps)))
    return f"{result}\n\nagain: python -m tests.faults seed {schedule.seed}"


class _ScheduleRun:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.log: list[str] = []
        self.runs = self.actions = self.acknowledged = 0
        self.world = SmallFleet(spec=schedule.spec(), names=schedule.names)
        self.begins = self.world.seconds()
        self.world.checker.listener = self.on_event
        self._work: asyncio.Task[ApplyReport] | None = None
        self._doing: dict[str, tuple[str, str]] = {}  # node -> (runner, running action)
        self._edits: list[ScheduledEvent] = []  # edits of the spec that the next run reads

    # --- the runs ---

    def play(self) -> None:
        self.world.run(self._hours())
        self._check()
        self.write("everything is over")
        self._read_spec()
        self.world.end_disturbances()
        left = self._settle()
        if not left:
            return
        self._check_reasons(left)
        self.acknowledged = len(left)
        self.write(f"a person sees to {', '.join(sorted(left))}")
        self.world.acknowledge(self.world.names)
        if self._settle():
            raise Broken("\n".join(["plan_converges:", *plans.left(self.world)]))

    async def _hours(self) -> None:
        tasks = [asyncio.create_task(self._happen(one)) for one in self.schedule.events]
        try:
            while self.world.seconds() - self.begins < LENGTH_S:
                await asyncio.sleep(0)  # events of this moment come first
                if self.world.resume():
                    self.write("a person has looked into the storm")
                await self._one_run(WAIT_S)
                self._check()
                await asyncio.sleep(PAUSE_S)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _one_run(self, wait_s: float) -> ApplyReport | None:
        """Run once. Return None when the run died or was refused."""
        world, checker = self.world, self.world.checker
        self._read_spec()
        checker.crash_trigger = CrashTrigger()
        self.runs += 1
        self._work = work = asyncio.create_task(world.applying(wait_s=wait_s))
        done, _ = await asyncio.wait([work], timeout=wait_s + LONGEST_S)
        self._work, doing = None, dict(self._doing)
        self._ended("")
        if not done:
            work.cancel()
            raise Broken(f"no_hang: a run goes on after {format_duration(wait_s + LONGEST_S)}, at {doing}")
        died, checker.crash_trigger = checker.crash_trigger.fired, CrashTrigger()
        if died:
            self.write("the run has died")
            world.lab.installs.dies(world.clock.elapsed)  # the process that served them is dead
            await asyncio.sleep(LEASE_S)
        if work.cancelled():
            return None
        error = work.exception()
        if error is None:
            checker.ran()
            return work.result()
        expected = isinstance(error, LeaseHeld | Blind) or (isinstance(error, Refused) and FLEET in checker.held)
        if not died and not expected:
            raise Broken(f"a run dies: {error!r}") from error
        return None

    def _check(self) -> None:
        self.world.checker.look()
        if self.world.checker.found:
            raise Broken("\n".join(self.world.checker.found))

    # --- the end ---

    def _settle(self) -> Mapping[str, str]:
        """Run until the fleet settles; return node -> why it is not as specified."""
        world, found = self.world, dict[str, str]()
        for _ in range(5):
            report = world.run(self._one_run(2 * HOUR))
            self._check()
            assert report is not None, "nobody interferes any more"
            self._check_marks(report)
            if not plans.left(world):
                return {}
            found = {name: end.detail for name, end in report.results.items() if end.state is not Ended.CONVERGED}
            world.wait(1.05 * DAY)  # actions that failed too often are retried after a day
        if not found:
            raise Broken("\n".join(["plan_converges: by all reports, but", *plans.left(world)]))
        return found

    def _check_marks(self, report: ApplyReport) -> None:
        """Check the second half of invariant 9: no node in service keeps its mark."""
        for name, result in report.results.items():
            node = report.plan.nodes[name]
            serves = node.goal is Goal.IN_SERVICE and node.blocked is None
            if serves and result.state in (Ended.CONVERGED, Ended.DONE) and self.world.is_marked(name):
                raise Broken(f"own_mark_is_not_leaked: {name}: {result}")

    def _check_reasons(self, left: Mapping[str, str]) -> None:
        """Check that a node stays out only for a reason that needs an operator, and that the run reports it."""
        plan = self.world.plan()
        for name, detail in left.items():
            blocked = plan.nodes[name].blocked
            self.write(f"left: {name}: {detail}")
            if not detail or blocked is None or blocked.code not in LASTING:
                raise Broken(f"ends_converged_or_blocked_for_a_reason: {name}: {blocked}, {detail!r}")
            if (
                self.world.is_serving(name)
                and not self.world.is_marked(name)
                and plan.nodes[name].goal is Goal.ISOLATED
            ):
                raise Broken(f"ends_converged_or_blocked_for_a_reason: {name} serves: {detail}")

    # --- events of the schedule ---

    async def _happen(self, one: ScheduledEvent) -> None:
        await asyncio.sleep(one.at)
        self.write(f"** {one.what} {one.subject} {one.detail}".rstrip())
        happens = HANDLERS[one.what]
        happens[0](self, one)
        if one.until is not None:
            await asyncio.sleep(one.until - one.at)
            self.write(f"** over: {one.what} {one.subject} {one.detail}".rstrip())
            happens[1](self, one)

    def crash(self, one: ScheduledEvent) -> None:
        """Crash the run at one of its next calls."""
        assert isinstance(one.detail, tuple)
        how, calls = one.detail
        if self._work is not None:
            self.world.checker.crash_trigger = CrashTrigger(calls, None if how == "power cut" else self._work.cancel)

    def edit(self, one: ScheduledEvent) -> None:
        self._edits.append(one)

    def _read_spec(self) -> None:
        while self._edits:
            one = self._edits.pop(0)
            assert isinstance(one.detail, tuple)
            setattr(self.world.spec.pools[one.subject], *one.detail)
        self.world.edited()

    def second_runner(self, one: ScheduledEvent) -> None:  # noqa: ARG002 - as all of them
        self._second = asyncio.create_task(self._runs_too())

    async def _runs_too(self) -> None:
        """Start a second run by hand, which must do nothing while another run works (invariant 12)."""
        world, alone = self.world, self._work is None
        request = ApplyRequest(world.fleet, "by-hand", "by-hand", "another", SIGNATURES, wait_s=0.0)
        try:
            await apply(
                request, fabric=world.fabric, ledger=world.raw_ledger, clock=world.clock, gate=world.gate,
                progress=lambda event: self.on_event(event, BY_HAND),
            )  # fmt: skip
        except (Blind, LeaseHeld, Refused, PowerCut) as refused:
            self.write(f"the second runner: {refused}")
            return
        finally:
            self._ended(BY_HAND)
        if not alone:
            world.checker.broken("two_runners_never_act_twice", "a second run began while another worked")

    def _ended(self, who: str) -> None:
        """Forget the running actions of a runner, because it has ended."""
        self._doing = {node: doing for node, doing in self._doing.items() if doing[0] != who}

    # --- events of runs ---

    def on_event(self, event: Event, who: str = "") -> None:
        match event:
            case ActionStarted(node, action):
                self.write(f"{who}{node}: {action.id} begins, because {', '.join(action.because)}")
                if node in self._doing:
                    self.world.checker.broken(
                        "two_runners_never_act_twice", f"{action.id} begins on {node} during {self._doing[node][1]}"
                    )
                self._doing[node] = who, action.id
            case ActionFinished(node, action, outcome, _):
                self.actions += 1
                self._doing.pop(node, None)
                self.write(f"{who}{node}: {action.id} {outcome_word(outcome)}: {outcome.detail}")
            case NodeSettled(node, state, detail):
                self.write(f"{who}{node} is {state}: {detail}")
            case _:
                pass

    def write(self, line: str) -> None:
        self.log.append(f"{timedelta(seconds=round(self.world.seconds() - self.begins))!s:>16}  {line}")


def _fault(run: _ScheduleRun, one: ScheduledEvent) -> None:
    run.world.checker.disturbed(one.subject)
    kind, parameters = FAULTS[str(one.detail)]
    run.world.machine(one.subject).inject(kind, **parameters)


def _clear(run: _ScheduleRun, one: ScheduledEvent) -> None:
    run.world.checker.disturbed(one.subject)
    run.world.machine(one.subject).clear(FAULTS[str(one.detail)][0])


def _hold(run: _ScheduleRun, one: ScheduledEvent) -> None:
    assert one.until is not None
    run.world.hold(one.subject, None)


def _gate(run: _ScheduleRun, one: ScheduledEvent) -> None:
    run.world.gate.failing.add(one.subject)
    run.world.checker.disturbed(one.subject)


def _api(run: _ScheduleRun, _: ScheduledEvent, *, down: bool) -> None:
    run.world.kube.down = down


def _nothing(_: _ScheduleRun, __: ScheduledEvent) -> None:
    pass


Handler = Callable[[_ScheduleRun, ScheduledEvent], Any]
HANDLERS: Mapping[str, Sequence[Handler]] = {
    "drift": (lambda run, one: run.world.spoil(one.subject, str(one.detail)), _nothing),
    "edit": (_ScheduleRun.edit, _nothing),
    "fault": (_fault, _clear),
    "fails its gate": (_gate, _nothing),
    "cordon": (lambda run, one: run.world.cordon(one.subject), lambda run, one: run.world.uncordon(one.subject)),
    "hold": (_hold, lambda run, one: run.world.release(one.subject)),
    "API server down": (functools.partial(_api, down=True), functools.partial(_api, down=False)),
    "crash": (_ScheduleRun.crash, _nothing),
    "second runner": (_ScheduleRun.second_runner, _nothing),
}
