"""Plays a schedule: the reconciler runs again and again while things happen, and then they are over.

Looked at throughout: invariants 4 to 10 and 17 by the referee of tests/soak, before each write; here that crashes and
a second runner do no harm (11, 12), that no run hangs, and that the fleet then ends as specified, or says why not.
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
from tests.faults.schedule import FAULTS, HOUR, LENGTH_S, MINUTE, Happening, Schedule
from tests.soak import plans
from tests.soak.referee import Fuse, PowerCut
from tests.soak.shorten import shortest
from tests.soak.spec import SIGNATURES
from tests.soak.world import SmallFleet

DAY = 24 * HOUR
WAIT_S = 20 * MINUTE  # of each run
PAUSE_S = 30 * MINUTE  # from one run to the next, as a schedule would start them
BY_HAND = "by hand: "
LEASE_S = 61.0  # until that of a runner that died has run out
LONGEST_S = 12 * HOUR  # of a run beyond its wait: three tries of the slowest actions, one after another
LASTING = frozenset(
    {BlockCode.ATTEMPTS, BlockCode.GATE, BlockCode.HALTED, BlockCode.STORM}
)  # why a node stays as it is until a person sees to it


class Broken(AssertionError):
    """An invariant, and how it was broken."""


@dataclass(frozen=True)
class Lived:
    """`broken`: "" = nothing was. `story`: all that happened, line by line."""

    schedule: Schedule
    broken: str
    story: tuple[str, ...]
    runs: int
    actions: int
    seen_to: int  # nodes that a person had to see to in the end

    def __str__(self) -> str:
        nodes = " ".join(self.schedule.names)
        policy = ", ".join(f"{name} {value}" for name, value in self.schedule.policy.items())
        head = f"seed {self.schedule.seed}: {nodes}; {policy}"
        end = self.broken or f"nothing broke in {self.runs} runs and {self.actions} actions"
        return "\n".join([head, *self.story, "", end])


def live(schedule: Schedule) -> Lived:
    life = _Life(schedule)
    broken = ""
    try:
        life.play()
    except Broken as found:
        broken = str(found)
    finally:
        life.world.book.close()
    return Lived(schedule, broken, tuple(life.story), life.runs, life.actions, life.seen_to)


def told(schedule: Schedule) -> str:
    """What a failing test says: "" when nothing breaks; else the shortest schedule that breaks it, and what to type."""
    broken = live(schedule).broken
    if not broken:
        return ""
    steps, _ = shortest(schedule.happenings, lambda fewer: live(replace(schedule, happenings=tuple(fewer))).broken)
    lived = live(replace(schedule, happenings=tuple(steps)))
    return f"{lived}\n\nagain: python -m tests.faults seed {schedule.seed}"


class _Life:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.story: list[str] = []
        self.runs = self.actions = self.seen_to = 0
        self.world = SmallFleet(spec=schedule.spec(), names=schedule.names)
        self.begins = self.world.seconds()
        self.world.referee.listener = self.hears
        self._work: asyncio.Task[ApplyReport] | None = None
        self._doing: dict[str, tuple[str, str]] = {}  # node -> who does what to it
        self._edits: list[Happening] = []  # of the spec, which the next run reads

    # --- the whole ---

    def play(self) -> None:
        self.world.run(self._hours())
        self._check()
        self.tell("everything is over")
        self._read_spec()
        self.world.all_is_over()
        left = self._until_nothing_is_left()
        if not left:
            return
        self._check_reasons(left)
        self.seen_to = len(left)
        self.tell(f"a person sees to {', '.join(sorted(left))}")
        self.world.see_to(self.world.names)
        if self._until_nothing_is_left():
            raise Broken("\n".join(["plan_converges:", *plans.left(self.world)]))

    async def _hours(self) -> None:
        tasks = [asyncio.create_task(self._goes_on(one)) for one in self.schedule.happenings]
        try:
            while self.world.seconds() - self.begins < LENGTH_S:
                await asyncio.sleep(0)  # what happens at this very moment comes first
                if self.world.resume():
                    self.tell("a person has looked into the storm")
                await self._one_run(WAIT_S)
                self._check()
                await asyncio.sleep(PAUSE_S)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _one_run(self, wait_s: float) -> ApplyReport | None:
        """None: it died, or was refused."""
        world, referee = self.world, self.world.referee
        self._read_spec()
        referee.fuse = Fuse()
        self.runs += 1
        self._work = work = asyncio.create_task(world.applying(wait_s=wait_s))
        done, _ = await asyncio.wait([work], timeout=wait_s + LONGEST_S)
        self._work, doing = None, dict(self._doing)
        self._ended("")
        if not done:
            work.cancel()
            raise Broken(f"no_hang: a run goes on after {format_duration(wait_s + LONGEST_S)}, at {doing}")
        died, referee.fuse = referee.fuse.blown, Fuse()
        if died:
            self.tell("the run has died")
            world.lab.documents.clear()  # the process that served them is gone
            await asyncio.sleep(LEASE_S)
        if work.cancelled():
            return None
        error = work.exception()
        if error is None:
            referee.ran()
            return work.result()
        expected = isinstance(error, LeaseHeld | Blind) or (isinstance(error, Refused) and FLEET in referee.held)
        if not died and not expected:
            raise Broken(f"a run dies: {error!r}") from error
        return None

    def _check(self) -> None:
        self.world.referee.look()
        if self.world.referee.found:
            raise Broken("\n".join(self.world.referee.found))

    # --- the end ---

    def _until_nothing_is_left(self) -> Mapping[str, str]:
        """Node -> why it is not as specified."""
        world, found = self.world, dict[str, str]()
        for _ in range(5):
            report = world.run(self._one_run(2 * HOUR))
            self._check()
            assert report is not None, "nobody interferes any more"
            self._check_marks(report)
            if not plans.left(world):
                return {}
            found = {name: end.detail for name, end in report.results.items() if end.state is not Ended.CONVERGED}
            world.wait(1.05 * DAY)  # what failed too often is tried again a day later
        if not found:
            raise Broken("\n".join(["plan_converges: by all reports, but", *plans.left(world)]))
        return found

    def _check_marks(self, report: ApplyReport) -> None:
        """Invariant 9, second half."""
        for name, result in report.results.items():
            node = report.plan.nodes[name]
            serves = node.goal is Goal.IN_SERVICE and node.blocked is None
            if serves and result.state in (Ended.CONVERGED, Ended.DONE) and self.world.is_ours(name):
                raise Broken(f"own_mark_is_not_leaked: {name}: {result}")

    def _check_reasons(self, left: Mapping[str, str]) -> None:
        """Without a person's help a node may stay out, but only for a reason that lasts, and it says so."""
        plan = self.world.plan()
        for name, detail in left.items():
            blocked = plan.nodes[name].blocked
            self.tell(f"left: {name}: {detail}")
            if not detail or blocked is None or blocked.code not in LASTING:
                raise Broken(f"ends_converged_or_blocked_for_a_reason: {name}: {blocked}, {detail!r}")
            if self.world.is_serving(name) and not self.world.is_ours(name) and plan.nodes[name].goal is Goal.ISOLATED:
                raise Broken(f"ends_converged_or_blocked_for_a_reason: {name} serves: {detail}")

    # --- what happens ---

    async def _goes_on(self, one: Happening) -> None:
        await asyncio.sleep(one.at)
        self.tell(f"** {one.what} {one.subject} {one.detail}".rstrip())
        happens = HAPPENS[one.what]
        happens[0](self, one)
        if one.until is not None:
            await asyncio.sleep(one.until - one.at)
            self.tell(f"** over: {one.what} {one.subject} {one.detail}".rstrip())
            happens[1](self, one)

    def crash(self, one: Happening) -> None:
        """At one of the next calls that the run makes."""
        assert isinstance(one.detail, tuple)
        how, calls = one.detail
        if self._work is not None:
            self.world.referee.fuse = Fuse(calls, None if how == "power cut" else self._work.cancel)

    def edit(self, one: Happening) -> None:
        self._edits.append(one)

    def _read_spec(self) -> None:
        while self._edits:
            one = self._edits.pop(0)
            assert isinstance(one.detail, tuple)
            setattr(self.world.spec.pools[one.subject], *one.detail)
        self.world.edited()

    def second_runner(self, one: Happening) -> None:  # noqa: ARG002 - as all of them
        self._second = asyncio.create_task(self._runs_too())

    async def _runs_too(self) -> None:
        """Somebody starts it by hand: while another run works, it does nothing (invariant 12)."""
        world, alone = self.world, self._work is None
        request = ApplyRequest(world.fleet, "by-hand", "by-hand", "another", SIGNATURES, wait_s=0.0)
        try:
            await apply(
                request, fabric=world.fabric, ledger=world.book, clock=world.clock, gate=world.gate,
                progress=lambda event: self.hears(event, BY_HAND),
            )  # fmt: skip
        except (Blind, LeaseHeld, Refused, PowerCut) as refused:
            self.tell(f"the second runner: {refused}")
            return
        finally:
            self._ended(BY_HAND)
        if not alone:
            world.referee.broken("two_runners_never_act_twice", "a second run began while another worked")

    def _ended(self, who: str) -> None:
        """Whatever it was doing, it does no more."""
        self._doing = {node: doing for node, doing in self._doing.items() if doing[0] != who}

    # --- what is told ---

    def hears(self, event: Event, who: str = "") -> None:
        match event:
            case ActionStarted(node, action):
                self.tell(f"{who}{node}: {action.id} begins, because {', '.join(action.because)}")
                if node in self._doing:
                    self.world.referee.broken(
                        "two_runners_never_act_twice", f"{action.id} begins on {node} during {self._doing[node][1]}"
                    )
                self._doing[node] = who, action.id
            case ActionFinished(node, action, outcome, _):
                self.actions += 1
                self._doing.pop(node, None)
                self.tell(f"{who}{node}: {action.id} {outcome_word(outcome)}: {outcome.detail}")
            case NodeSettled(node, state, detail):
                self.tell(f"{who}{node} is {state}: {detail}")
            case _:
                pass

    def tell(self, line: str) -> None:
        self.story.append(f"{timedelta(seconds=round(self.world.seconds() - self.begins))!s:>16}  {line}")


def _fault(life: _Life, one: Happening) -> None:
    life.world.referee.disturbed(one.subject)
    kind, parameters = FAULTS[str(one.detail)]
    life.world.machine(one.subject).inject(kind, **parameters)


def _cured(life: _Life, one: Happening) -> None:
    life.world.referee.disturbed(one.subject)
    life.world.machine(one.subject).clear(FAULTS[str(one.detail)][0])


def _hold(life: _Life, one: Happening) -> None:
    assert one.until is not None
    life.world.hold(one.subject, None)


def _gate(life: _Life, one: Happening) -> None:
    life.world.gate.failing.add(one.subject)
    life.world.referee.disturbed(one.subject)


def _api(life: _Life, _: Happening, *, down: bool) -> None:
    life.world.kube.down = down


def _nothing(_: _Life, __: Happening) -> None:
    pass


Happens = Callable[[_Life, Happening], Any]
HAPPENS: Mapping[str, Sequence[Happens]] = {
    "drift": (lambda life, one: life.world.spoil(one.subject, str(one.detail)), _nothing),
    "edit": (_Life.edit, _nothing),
    "fault": (_fault, _cured),
    "fails its gate": (_gate, _nothing),
    "cordon": (lambda life, one: life.world.cordon(one.subject), lambda life, one: life.world.uncordon(one.subject)),
    "hold": (_hold, lambda life, one: life.world.release(one.subject)),
    "API server down": (functools.partial(_api, down=True), functools.partial(_api, down=False)),
    "crash": (_Life.crash, _nothing),
    "second runner": (_Life.second_runner, _nothing),
}
