"""The timetable of a plan: when nodes and waves are expected to begin and end, and how many nodes are out at once.

It takes estimates for granted: that every action succeeds in the time that it usually takes, and that nobody else takes
nodes out or brings any back. A node has no times where these can't be told: when a person must look at it first, when
its rollout is halted, and when a budget or a window never lets it go.

More budget does not guarantee an earlier end. Nodes begin greedily, in order, and with work of different length that
can make a long one start later (Graham's anomalies); with work of equal length and one limit it can't.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from reconciler.model.plan import BlockCode, Goal, NodePlan, RolloutPlan, Wave, WaveState
from reconciler.planner.fleet.permit import Permit, reasons, takes_out, waits
from reconciler.planner.fleet.rollouts import pending
from reconciler.planner.fleet.simulation import Job, Queue, Simulation
from reconciler.planner.fleet.work_queue import in_order
from reconciler.planner.node.workload import work


@dataclass(frozen=True, slots=True)
class Timetable:
    """Plans with their expected times.

    `finish_s`: seconds until the last node that is expected to end has ended. `peak`: the most nodes out of service at
    once. `later`: work that waves will bring and that the plans do not have yet.
    """

    nodes: dict[str, NodePlan]
    rollouts: tuple[RolloutPlan, ...]
    finish_s: float
    peak: int
    later: tuple[NodePlan, ...]


def timetable(
    plans: Mapping[str, NodePlan],
    permit: Permit,
    rollouts: Sequence[RolloutPlan] = (),
    missing: Collection[str] = (),
) -> Timetable:
    """Return when the plans are expected to begin and end.

    `plans`: as `schedule` returns them. `permit`: as that leaves it; its budget is used up by the simulation.
    `missing`: nodes that their wave of a rollout waits for.
    """
    table = _Table(permit, rollouts, missing)
    for position, plan in enumerate(in_order(plan for plan in plans.values() if plan.actions)):
        table.add(plan, position)
    table.simulation.run()
    timed = dict(plans)
    for name, job in table.jobs.items():
        if job.start is not None and job.end is not None:
            timed[name] = replace(plans[name], start=table.clock(job.start), end=table.clock(job.end))
    return Timetable(
        nodes=timed,
        rollouts=tuple(table.timed(course) for course in table.courses),
        finish_s=max((job.end for job in table.all_jobs() if job.end is not None), default=0.0),
        peak=table.simulation.peak,
        later=tuple(plan for plan in table.later if plan.node in table.simulation.taken),
    )


def out_s(plan: NodePlan) -> float:
    """Return for how many seconds a node is out of service for its plan: from the first disrupting action on."""
    done = work(plan.actions)
    return done.takes_s if plan.in_service is False else done.out_s


@dataclass(slots=True, eq=False)
class _Course:
    """A rollout in the simulation. Lists have an entry for each wave.

    `left`: how many members it still waits for; `over`: when it has baked, in seconds; `jobs`: of the nodes that it
    changes; `held`: what begins with it. `opened`: how many waves have begun; `longest`: the longest plan.
    """

    rollout: RolloutPlan
    left: list[int]
    over: list[float | None]
    jobs: list[list[Job]]
    held: list[list[Callable[[], None]]]
    opened: int = 0
    longest: NodePlan | None = None
    longest_s: float = -1.0


class _Table:
    """The jobs of a simulation, and the waves that hold some of them back."""

    def __init__(self, permit: Permit, rollouts: Sequence[RolloutPlan], missing: Collection[str]) -> None:
        self.permit = permit
        self.simulation = Simulation(permit, self._ended)
        self.jobs: dict[str, Job] = {}
        self.courses: list[_Course] = []
        self.later: list[NodePlan] = []
        self._wave_of: dict[str, tuple[_Course, int]] = {}
        self._missing = missing
        self._first: dict[Job, Callable[[], None] | None] = {}
        self._times: dict[float, datetime] = {}
        for rollout in rollouts:
            self._begin(rollout)

    def all_jobs(self) -> Iterator[Job]:
        """Yield all jobs, also for changes that waves will bring and that are not planned yet."""
        yield from self.jobs.values()
        for course in self.courses:
            for jobs in course.jobs:
                yield from jobs

    def clock(self, seconds: float) -> datetime:
        if seconds not in self._times:
            self._times[seconds] = self.permit.now + timedelta(seconds=seconds)
        return self._times[seconds]

    # --- jobs --------------------------------------------------------------------------------------------------------

    def add(self, plan: NodePlan, position: int) -> None:
        isolated = self.permit.budget.is_isolated(plan.node)
        out = self.permit.budget.is_out(plan.node) and not isolated
        job = self.jobs[plan.node] = self._job(plan, position, isolated=isolated)
        course, wave = self._wave_of.get(plan.node, (None, 0))
        if course is not None and plan.postponed:
            self._first[job] = None
            course.held[wave].append(partial(self._rest, job, course, wave))
        elif course is not None and pending(plan):
            course.jobs[wave].append(job)
            if job.takes_s > course.longest_s:
                course.longest, course.longest_s = plan, job.takes_s
            if wave >= course.opened:
                if not self._never(plan):
                    course.held[wave].append(partial(self._enter, plan, job, out))
                return
        if plan.blocked is None or not (waits(plan.blocked) or plan.wave):
            self.simulation.begin(
                job, self._queue(plan, job, out)
            )  # what is planned in spite of a block is not held back by it
        elif not self._never(plan):
            self._enter(plan, job, out)

    def _job(self, plan: NodePlan, position: int, *, isolated: bool = False) -> Job:
        done = work(plan.actions)
        until = done.waits_until
        waits = 0.0 if until is None else (until - self.permit.now).total_seconds()
        return Job(plan.node, position, done.takes_s - done.waits_s, plan.goal is Goal.IN_SERVICE, isolated, waits)

    def _enter(self, plan: NodePlan, job: Job, out: bool) -> None:
        pause = plan.blocked.until if plan.blocked is not None and plan.blocked.code is BlockCode.BACKOFF else None
        ready = 0.0 if pause is None else (pause - self.permit.now).total_seconds()
        self.simulation.enter(job, self._queue(plan, job, out), ready)

    def _never(self, plan: NodePlan) -> bool:
        """Return whether passing time alone never lets the node go."""
        halted = plan.blocked is not None and plan.blocked.code is BlockCode.HALTED
        braked = self.permit.brake is not None and work(plan.actions).braked
        return halted or braked or (takes_out(plan) and self.permit.budget.unreadable(plan.node))

    def _queue(self, plan: NodePlan, job: Job, out: bool) -> Queue:
        leaves = takes_out(plan) and not out
        window = None
        if self.permit.windows.any and (leaves or work(plan.actions).flashes):
            window = (plan.pool, work(plan.actions).need)
        return self.simulation.queue(job, reasons(plan) if leaves else frozenset(), window, counts=leaves or out)

    def _rest(self, first: Job, course: _Course, wave: int) -> None:
        """Let the wave's change follow on a node that has other work before it.

        That change is not planned yet; it is taken to last as long as the longest of the others.
        """
        if course.longest is None:
            return
        plan = replace(course.longest, node=first.node, in_service=True, blocked=None)
        self.later.append(plan)
        job = self._job(plan, first.position)
        course.jobs[wave].append(job)
        enter = partial(self.simulation.enter, job, self._queue(plan, job, out=False))
        if first.end is not None and first.end <= self.simulation.time:
            enter()
        else:
            self._first[first] = enter

    def _ended(self, job: Job) -> None:
        if job in self._first:
            then = self._first[job]
            if then is not None and job.returns:
                then()
        elif job.returns and job.node in self._missing:
            course, wave = self._wave_of[job.node]
            course.left[wave] -= 1
            if not course.left[wave]:
                self._settle(course, wave, self.simulation.time + course.rollout.bake_s)

    # --- waves -------------------------------------------------------------------------------------------------------

    def _begin(self, rollout: RolloutPlan) -> None:
        count = len(rollout.waves)
        course = _Course(rollout, [0] * count, [None] * count, [[] for _ in range(count)], [[] for _ in range(count)])
        self.courses.append(course)
        for at, wave in enumerate(rollout.waves):
            self._wave_of.update(dict.fromkeys(wave.nodes, (course, at)))
            course.left[at] = sum(name in self._missing for name in wave.nodes)
            if not course.left[at]:
                baked = wave.end if wave.state is WaveState.BAKING else None
                self._settle(course, at, 0.0 if baked is None else (baked - self.permit.now).total_seconds())
        self._open(course)

    def _settle(self, course: _Course, wave: int, over: float) -> None:
        """Take in that a wave has converged; it has baked at `over`, in seconds."""
        course.over[wave] = max(over, self.simulation.time)
        self.simulation.later(over, partial(self._open, course))

    def _open(self, course: _Course) -> None:
        """Open each wave whose earlier waves are all over."""
        while not course.rollout.halted and course.opened < len(course.over):
            last = course.over[course.opened - 1] if course.opened else 0.0
            if last is None or last > self.simulation.time:
                return
            course.opened += 1
            for enter in course.held[course.opened - 1]:
                enter()

    def timed(self, course: _Course) -> RolloutPlan:
        waves = (self._timed(course, at, wave) for at, wave in enumerate(course.rollout.waves))
        return replace(course.rollout, waves=tuple(waves))

    def _timed(self, course: _Course, at: int, wave: Wave) -> Wave:
        if wave.state not in (WaveState.OPEN, WaveState.WAITING):
            return wave  # it is over, or bakes, or can't be told
        starts = [job.start for job in course.jobs[at] if job.start is not None]
        over = course.over[at]
        return replace(
            wave,
            start=self.clock(min(starts)) if starts else None,
            end=self.clock(over) if over is not None and at < course.opened else None,
        )
