"""When what is planned is expected to happen: starts, ends, waves, and how many nodes are out at once.

The timetable takes estimates for granted: that every action does what it should in the time that it takes as a rule,
and that nobody else takes nodes out or brings any back. Nodes of which nobody can say have no times: those that
somebody must look at first, those behind a halted rollout, and those that a budget or a window never lets go.

More budget is no guarantee of an earlier end. Nodes are let go greedily, in turn, and with work of different length
that can let a long one start later (Graham's anomalies); with work of equal length and one limit it can not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from reconciler.model.plan import BlockCode, Goal, NodePlan, RolloutPlan, Wave, WaveState
from reconciler.planner.rollout import pending
from reconciler.planner.schedule import Leave, disrupts, flashes, in_turn, need_s, reasons, takes_out
from reconciler.planner.turns import Job, Queue, Turns


@dataclass(frozen=True, slots=True)
class Timetable:
    """`finish_s`: until the last that is expected to end has ended. `peak`: nodes out of service at once, at most."""

    nodes: dict[str, NodePlan]
    rollouts: tuple[RolloutPlan, ...]
    finish_s: float
    peak: int


def timetable(
    plans: Mapping[str, NodePlan],
    leave: Leave,
    rollouts: Sequence[RolloutPlan] = (),
    unsettled: Collection[str] = (),
) -> Timetable:
    """`plans` as scheduled, and `leave` as that left it. `unsettled`: members that a wave which has them waits for."""
    table = _Table(leave, rollouts, unsettled)
    for position, plan in enumerate(in_turn(plan for plan in plans.values() if plan.actions)):
        table.add(plan, position)
    table.turns.run()
    timed = dict(plans)
    for name, job in table.jobs.items():
        if job.start is not None and job.end is not None:
            timed[name] = replace(plans[name], start=table.clock(job.start), end=table.clock(job.end))
    return Timetable(
        nodes=timed,
        rollouts=tuple(table.timed(course) for course in table.courses),
        finish_s=max((job.end for job in table.jobs.values() if job.end is not None), default=0.0),
        peak=table.turns.peak,
    )


def out_s(plan: NodePlan) -> float:
    """How long it is out of service for what is planned: from its first disrupting action on."""
    first = 0
    if plan.in_service is not False:
        first = next((at for at, action in enumerate(plan.actions) if disrupts(action)), len(plan.actions))
    return sum(action.estimate_s for action in plan.actions[first:])


def waits(plan: NodePlan) -> bool:
    """Whether its actions may not begin now. Others that are blocked do at once what is planned in spite of that."""
    blocked = plan.blocked
    return blocked is not None and (blocked.code.passes or blocked.code is BlockCode.HALTED or bool(plan.wave))


@dataclass(slots=True, eq=False)
class _Course:
    """A rollout on its way. `opened`: how many of its waves have begun; `over`: when each has baked; `left`: members
    that it still waits for; `jobs`: of those that it changes; `held`: what begins with it."""

    rollout: RolloutPlan
    left: list[int]
    over: list[float | None]
    jobs: list[list[Job]]
    held: list[list[Callable[[], None]]]
    opened: int = 0


class _Table:
    """Jobs and the waves that hold some of them back."""

    def __init__(self, leave: Leave, rollouts: Sequence[RolloutPlan], unsettled: Collection[str]) -> None:
        self.leave = leave
        self.turns = Turns(leave.budget, leave.windows, leave.now, self._ended)
        self.jobs: dict[str, Job] = {}
        self.courses: list[_Course] = []
        self._wave_of: dict[str, tuple[_Course, int]] = {}
        self._missing: set[str] = set()
        self._times: dict[float, datetime] = {}
        for rollout in rollouts:
            self._begin(rollout, unsettled)

    def clock(self, seconds: float) -> datetime:
        if seconds not in self._times:
            self._times[seconds] = self.leave.now + timedelta(seconds=seconds)
        return self._times[seconds]

    # --- jobs --------------------------------------------------------------------------------------------------------

    def add(self, plan: NodePlan, position: int) -> None:
        takes_s = sum(action.estimate_s for action in plan.actions)
        job = self.jobs[plan.node] = Job(plan.node, position, takes_s, plan.goal is Goal.IN_SERVICE)
        course, wave = self._wave_of.get(plan.node, (None, 0))
        if course is not None and not pending(plan):
            course = None  # what is done to it waits for no wave
        if course is not None:
            course.jobs[wave].append(job)
        if not waits(plan):
            self.turns.begin(job, self._queue(plan))
        elif not self._never(plan):
            until = None if plan.blocked is None or plan.blocked.code is not BlockCode.BACKOFF else plan.blocked.until
            ready = 0.0 if until is None else (until - self.leave.now).total_seconds()
            enter = partial(self.turns.enter, job, self._queue(plan), ready)
            if course is None or wave < course.opened:
                enter()
            else:
                course.held[wave].append(enter)

    def _never(self, plan: NodePlan) -> bool:
        """Whether time alone does not let it go."""
        halted = plan.blocked is not None and plan.blocked.code is BlockCode.HALTED
        return halted or (takes_out(plan) and self.leave.budget.unreadable(plan.node))

    def _queue(self, plan: NodePlan) -> Queue:
        out = self.leave.budget.is_out(plan.node)
        leaves = takes_out(plan) and not out
        window = None
        if self.leave.windows.any and (leaves or any(map(flashes, plan.actions))):
            window = (plan.pool, need_s(plan))
        return self.turns.queue(plan.node, reasons(plan) if leaves else frozenset(), window, counts=leaves or out)

    def _ended(self, job: Job) -> None:
        if job.returns and job.node in self._missing:
            course, wave = self._wave_of[job.node]
            course.left[wave] -= 1
            if not course.left[wave]:
                self._settle(course, wave, self.turns.time + course.rollout.bake_s)

    # --- waves -------------------------------------------------------------------------------------------------------

    def _begin(self, rollout: RolloutPlan, unsettled: Collection[str]) -> None:
        count = len(rollout.waves)
        course = _Course(rollout, [0] * count, [None] * count, [[] for _ in range(count)], [[] for _ in range(count)])
        self.courses.append(course)
        for at, wave in enumerate(rollout.waves):
            self._wave_of.update(dict.fromkeys(wave.nodes, (course, at)))
            missing = [name for name in wave.nodes if name in unsettled and name not in rollout.failed]
            self._missing.update(missing)
            course.left[at] = len(missing)
        for at, wave in enumerate(rollout.waves):
            if not course.left[at]:
                baked = wave.end if wave.state is WaveState.BAKING else None
                self._settle(course, at, 0.0 if baked is None else (baked - self.leave.now).total_seconds())
        self._open(course)

    def _settle(self, course: _Course, wave: int, over: float) -> None:
        """All of a wave is well; it has baked at `over`."""
        course.over[wave] = max(over, self.turns.time)
        self.turns.later(over, partial(self._open, course))

    def _open(self, course: _Course) -> None:
        """Every wave that has none before it which is not over."""
        if course.rollout.halted:
            return
        while course.opened < len(course.over):
            if course.opened:
                over = course.over[course.opened - 1]
                if over is None or over > self.turns.time:
                    return
            course.opened += 1
            for enter in course.held[course.opened - 1]:
                enter()

    def timed(self, course: _Course) -> RolloutPlan:
        waves = (self._timed(course, at, wave) for at, wave in enumerate(course.rollout.waves))
        return replace(course.rollout, waves=tuple(waves))

    def _timed(self, course: _Course, at: int, wave: Wave) -> Wave:
        if wave.state not in (WaveState.OPEN, WaveState.WAITING):
            return wave  # it is over, or bakes, or nobody can say
        starts = [job.start for job in course.jobs[at] if job.start is not None]
        over = course.over[at]
        return replace(
            wave,
            start=self.clock(min(starts)) if starts else None,
            end=self.clock(over) if over is not None and at < course.opened else None,
        )
