"""Who goes when: a simulation of the limits that hold nodes back, from one event to the next.

It does what apply does with every node that ends: of those that wait, the first in turn for whom every limit has room
begins. Nodes that ask for the same share a queue, and a queue that finds a limit used up waits at that limit, so that
an event costs about as much as it changes, however many nodes wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush

from reconciler.model.desired import Hours
from reconciler.model.vocab import Reason
from reconciler.planner.fleet import hours
from reconciler.planner.fleet.budget import Budget
from reconciler.planner.fleet.budget_group import ANY, Group
from reconciler.planner.fleet.windows import AHEAD_DAYS, Windows


@dataclass(slots=True, eq=False)
class _Slots:
    """One limit of the budget. `period`: of a rate, in seconds. `waiting`: heap of (position, queue, ticket)."""

    limit: int
    used: int
    reasons: frozenset[Reason] = ANY
    declared: bool = False
    period: float | None = None
    active: bool = True
    waiting: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return self.used >= self.limit


@dataclass(slots=True, eq=False)
class Job:
    """One node's work. `position`: whose turn comes first. `returns`: the node is back in service when it ends.

    `isolated`: the node is out before it begins, and takes room of the budget only then.
    """

    node: str
    position: int
    takes_s: float
    returns: bool
    isolated: bool = False
    start: float | None = None
    end: float | None = None


@dataclass(slots=True, eq=False)
class Queue:
    """Jobs that ask for the same. `ticket` says which of its entries in a heap is the one that counts.

    `charged`: limits that its nodes count in while they are out; `why`: what they are taken out for, empty = they are
    not, or are out already; `openings`: when they may begin, None = at any time.
    """

    number: int
    charged: tuple[_Slots, ...]
    why: frozenset[Reason]
    openings: tuple[tuple[float, float], ...] | None
    jobs: list[tuple[int, Job]] = field(default_factory=list)
    ticket: int = 0
    woken_by: _Slots | None = None
    epoch: int = -1
    checked: tuple[_Slots, ...] = ()


class QueueSimulation:
    """Times are seconds from `now`. `ended` is told of every job that ends, and may let others in."""

    def __init__(self, budget: Budget, windows: Windows, now: datetime, ended: Callable[[Job], None]) -> None:
        self.ended = ended
        self.time = 0.0
        self.out = len(budget.out)
        self.peak = self.out
        self._budget, self._windows, self._now = budget, windows, now
        self._agenda: dict[float, list[Callable[[], None]]] = {}
        self._times: list[float] = []
        self._ready: list[tuple[int, int, int]] = []
        self._freed: dict[int, _Slots] = {}
        self._queues: list[Queue] = []
        self._queue_of: dict[object, Queue] = {}
        self._slots: dict[int, _Slots] = {}
        self._hourly: dict[Hours, list[_Slots]] = {}
        self._default = _Slots(1, self.out)
        self._epoch = 0

    # --- who asks for what -------------------------------------------------------------------------------------------

    def queue(self, node: str, why: frozenset[Reason], window: tuple[str, float] | None, *, counts: bool) -> Queue:
        """For jobs like this. `window`: the pool and how long its windows must allow; `counts`: it is out meanwhile."""
        groups = self._budget.groups(node) if counts else ()
        key = (tuple(map(id, groups)), counts, why, window)
        found = self._queue_of.get(key)
        if found is None:
            charged = tuple(map(self._of, groups)) + ((self._default,) if counts else ())
            found = Queue(len(self._queues), charged, why, None if window is None else self._openings(*window))
            self._queues.append(found)
            self._queue_of[key] = found
        return found

    def _of(self, group: Group) -> _Slots:
        found = self._slots.get(id(group))
        if found is None:
            drained = group.count - len(group.isolated)
            found = _Slots(group.limit, drained, group.reasons, group.declared, active=group.active)
            if group.period is not None:
                found.period = group.period.total_seconds()
                for since, _ in group.taken:
                    self.later((since + group.period - self._now).total_seconds(), partial(self._free, found))
            if group.during is not None:
                self._hourly.setdefault(group.during, []).append(found)
            self._slots[id(group)] = found
        return found

    def _openings(self, pool: str, need_s: float) -> tuple[tuple[float, float], ...] | None:
        found = self._windows.openings(pool, need_s)
        if found is None:
            return None
        return tuple(((a - self._now).total_seconds(), (b - self._now).total_seconds()) for a, b in found)

    # --- what happens ------------------------------------------------------------------------------------------------

    def later(self, at: float, do: Callable[[], None]) -> None:
        at = max(at, self.time)
        if at not in self._agenda:
            self._agenda[at] = []
            heappush(self._times, at)
        self._agenda[at].append(do)

    def enter(self, job: Job, queue: Queue, ready: float = 0.0) -> None:
        """From `ready` on it may go, as soon as its queue is open and there is room."""
        if ready > self.time:
            self.later(ready, partial(self.enter, job, queue))
            return
        heappush(queue.jobs, (job.position, job))
        if queue.jobs[0][1] is job:
            self._again(queue)

    def begin(self, job: Job, queue: Queue) -> None:
        """It goes now."""
        job.start, job.end = self.time, self.time + job.takes_s
        if queue.why:
            for slots in queue.charged:
                slots.used += 1
                if slots.period is not None:
                    self.later(self.time + slots.period, partial(self._free, slots))
            self.out += not job.isolated
            self.peak = max(self.peak, self.out)
        self.later(job.end, partial(self._end, job, queue))

    def run(self) -> None:
        for told in self._hourly:
            for at in _boundaries(told, self._now):
                self.later((at - self._now).total_seconds(), partial(self._turn_hour, told, at))
        self._fill()
        while self._times:
            self.time = heappop(self._times)
            due = self._agenda[self.time]
            for do in due:  # which may add to it
                do()
            del self._agenda[self.time]
            self._fill()

    def _end(self, job: Job, queue: Queue) -> None:
        if job.returns and queue.charged:
            self.out -= 1
            for slots in queue.charged:
                if slots.period is None:
                    self._free(slots)
        self.ended(job)

    def _free(self, slots: _Slots) -> None:
        slots.used -= 1
        self._freed[id(slots)] = slots

    def _turn_hour(self, told: Hours, at: datetime) -> None:
        """Limits begin or cease to hold: who waits asks again."""
        for slots in self._hourly[told]:
            slots.active = hours.cover(told, at)
        self._epoch += 1
        for queue in self._queues:
            if queue.jobs:
                self._again(queue)

    # --- whose turn it is --------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        for slots in self._freed.values():
            self._wake(slots)
        self._freed.clear()
        while self._ready:
            position, number, ticket = heappop(self._ready)
            queue = self._queues[number]
            if ticket == queue.ticket:
                self._try(queue, position)

    def _try(self, queue: Queue, position: int) -> None:
        woken_by, queue.woken_by = queue.woken_by, None
        opening = self._opening(queue)
        if opening is not None and opening > self.time:
            self.later(opening, partial(self._again, queue, queue.ticket))
        elif opening is not None and (full := self._full(queue)) is not None:
            heappush(full.waiting, (position, queue.number, queue.ticket))
        elif opening is not None:
            _, job = heappop(queue.jobs)
            self.begin(job, queue)
            self._again(queue)
        if woken_by is not None and not woken_by.full:
            self._wake(woken_by)

    def _again(self, queue: Queue, ticket: int | None = None) -> None:
        """Its first asks, unless it has asked since the ticket was drawn."""
        if queue.jobs and ticket in (None, queue.ticket):
            queue.ticket += 1
            heappush(self._ready, (queue.jobs[0][0], queue.number, queue.ticket))

    def _wake(self, slots: _Slots) -> None:
        """The first of those that wait for it; that one wakes the next if it leaves room."""
        while slots.waiting:
            _, number, ticket = heappop(slots.waiting)
            queue = self._queues[number]
            if ticket == queue.ticket:
                queue.woken_by = slots
                self._again(queue)
                return

    def _opening(self, queue: Queue) -> float | None:
        """When the queue is open: a time up to now, one to come, or never."""
        if queue.openings is None:
            return self.time
        return next((max(first, self.time) for first, last in queue.openings if self.time <= last), None)

    def _full(self, queue: Queue) -> _Slots | None:
        """A limit that has no room."""
        if not queue.why:
            return None
        if queue.epoch != self._epoch:
            queue.epoch, queue.checked = self._epoch, self._covering(queue)
        for slots in queue.checked:
            if slots.used >= slots.limit:
                return slots
        return None

    def _covering(self, queue: Queue) -> tuple[_Slots, ...]:
        """Limits that hold for it at this hour, and the default for what no declared one covers (as in Budget)."""
        own = queue.charged[:-1]
        found = tuple(slots for slots in own if slots.active and not slots.reasons.isdisjoint(queue.why))
        covered: frozenset[Reason] = frozenset().union(*(slots.reasons for slots in found if slots.declared))
        return found if covered >= queue.why else (*found, self._default)


def _boundaries(told: Hours, now: datetime) -> Iterator[datetime]:
    last = now + timedelta(days=AHEAD_DAYS)
    for span in hours.spans(told, now, AHEAD_DAYS, wide=True):
        yield from (at for at in span if now < at <= last)
