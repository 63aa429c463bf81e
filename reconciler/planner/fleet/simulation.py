"""The run in advance: which node begins when, simulated in seconds from now, from one event to the next.

It does what a run does whenever a node ends: of the nodes that wait, the first in order for which every limit has room
begins. The budget is the very one that a run asks (budget.py), charged and freed in simulated time; windows say when
they open (windows.py), since nothing here asks them from moment to moment. So it is no second WorkQueue: that one asks
again whenever it is told to, this one has to know what to wait for. Jobs that ask for the same share a queue, and a
queue that finds a limit used up waits at that limit, so that an event costs about as much as it changes, however many
nodes wait.
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
from reconciler.planner.fleet.budget_group import Group
from reconciler.planner.fleet.permit import Permit
from reconciler.planner.fleet.windows import AHEAD_DAYS
from reconciler.planner.node.workload import Need


@dataclass(slots=True, eq=False)
class Job:
    """The work of one node. `position`: its place in the order. `returns`: the node is back in service when it ends.

    `isolated`: the node is out before it begins, but not drained. `waits_until`: in seconds; it takes so long only from
    then on.
    """

    node: str
    position: int
    takes_s: float
    returns: bool
    isolated: bool = False
    waits_until: float = 0.0
    start: float | None = None
    end: float | None = None


@dataclass(slots=True, eq=False)
class Queue:
    """Jobs that ask for the same. `ticket` says which of its entries in a heap is the one that counts.

    `counts`: its nodes are out of service meanwhile. `reasons`: what they are taken out for; empty when they are not,
    or are out already. `openings`: when they may begin, in seconds; None = at any time.
    `limits`: those that hold, as of `epoch`. `woken_by`: the limit at which it waited.
    """

    number: int
    counts: bool
    isolated: bool
    reasons: frozenset[Reason]
    openings: tuple[tuple[float, float], ...] | None
    jobs: list[tuple[int, Job]] = field(default_factory=list)
    ticket: int = 0
    woken_by: Group | None = None
    epoch: int = -1
    limits: list[Group] = field(default_factory=list)


class Simulation:
    """Times are seconds from `permit.now`. `ended` is called with every job that ends, and may let others in.

    `peak`: how many nodes are seen to be out of service at most. `taken`: those that are taken out.

    The permit's budget serves as the simulated one: it is used up afterwards.
    """

    def __init__(self, permit: Permit, ended: Callable[[Job], None]) -> None:
        self.ended = ended
        self.time = 0.0
        self.peak = permit.budget.seen_out
        self._unread = len(permit.budget.out) - self.peak
        self.taken: set[str] = set()
        self._budget, self._windows, self._now = permit.budget, permit.windows, permit.now
        self._agenda: dict[float, list[Callable[[], None]]] = {}
        self._times: list[float] = []
        self._ready: list[tuple[int, int, int]] = []  # heap of (position, queue, ticket)
        self._freed: dict[int, Group] = {}
        # At each limit, by whether they are isolated, a heap of (position, queue, ticket).
        self._waiting: dict[tuple[int, bool], list[tuple[int, int, int]]] = {}
        self._queues: list[Queue] = []
        self._queue_of: dict[object, Queue] = {}
        self._epoch = 0
        for rate in self._budget.rates:
            for at, _ in rate.taken:
                self._forget_later(rate, at)

    # --- who asks for what -------------------------------------------------------------------------------------------

    def queue(self, job: Job, reasons: frozenset[Reason], window: tuple[str, Need] | None, *, counts: bool) -> Queue:
        """Return the queue for jobs like this. `window`: the pool, and what its windows must hold."""
        kind = self._budget.kind(job.node) if counts else None
        key = (kind, counts, job.isolated, reasons, window)
        found = self._queue_of.get(key)
        if found is None:
            openings = None if window is None else self._openings(*window)
            found = self._queue_of[key] = Queue(len(self._queues), counts, job.isolated, reasons, openings)
            self._queues.append(found)
        return found

    def _openings(self, pool: str, need: Need) -> tuple[tuple[float, float], ...] | None:
        found = self._windows.openings(pool, need)
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
        """Let a job wait: from `ready` on it may begin, as soon as its queue is open and there is room."""
        if ready > self.time:
            self.later(ready, partial(self.enter, job, queue))
            return
        heappush(queue.jobs, (job.position, job))
        if queue.jobs[0][1] is job:
            self._again(queue)

    def begin(self, job: Job, queue: Queue) -> None:
        """Begin a job now."""
        job.start, job.end = self.time, max(self.time, job.waits_until) + job.takes_s
        if queue.reasons:
            at = self._now + timedelta(seconds=self.time)
            self._budget.charge(job.node, at)
            self.taken.add(job.node)
            self.peak = max(self.peak, len(self._budget.out) - self._unread)
            for limit in () if job.isolated else self._budget.groups(job.node):
                if limit.period is not None:
                    self._forget_later(limit, at)
        self.later(job.end, partial(self._end, job, queue))

    def run(self) -> None:
        for told in self._budget.hours:
            for at in _boundaries(told, self._now):
                self.later((at - self._now).total_seconds(), partial(self._change_hours, at))
        self._fill()
        while self._times:
            self.time = heappop(self._times)
            due = self._agenda[self.time]
            for do in due:  # which may add to it
                do()
            del self._agenda[self.time]
            self._fill()

    def _end(self, job: Job, queue: Queue) -> None:
        if job.returns and queue.counts:
            self._budget.restore(job.node)
            self._freed.update((id(limit), limit) for limit in self._budget.groups(job.node) if limit.period is None)
        self.ended(job)

    def _forget_later(self, rate: Group, at: datetime) -> None:
        assert rate.period is not None
        self.later((at + rate.period - self._now).total_seconds(), partial(self._forget, rate, at))

    def _forget(self, rate: Group, at: datetime) -> None:
        rate.forget(at)
        self._freed[id(rate)] = rate

    def _change_hours(self, at: datetime) -> None:
        """Take in that limits begin or cease to hold: all that wait ask again."""
        self._budget.move_to(at)
        self._epoch += 1
        for queue in self._queues:
            if queue.jobs:
                self._again(queue)

    # --- who is next -------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        for limit in self._freed.values():
            self._wake(limit, isolated=False)
            self._wake(limit, isolated=True)
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
        elif opening is not None and (limit := self._used_up(queue)) is not None:
            waiting = self._waiting.setdefault((id(limit), queue.isolated), [])
            heappush(waiting, (position, queue.number, queue.ticket))
        elif opening is not None:
            _, job = heappop(queue.jobs)
            self.begin(job, queue)
            self._again(queue)
        if woken_by is not None and (woken_by.has_room_to_drain if queue.isolated else woken_by.count < woken_by.limit):
            self._wake(woken_by, isolated=queue.isolated)

    def _again(self, queue: Queue, ticket: int | None = None) -> None:
        """Let the first of the queue ask, unless it has asked since the ticket was drawn."""
        if queue.jobs and ticket in (None, queue.ticket):
            queue.ticket += 1
            heappush(self._ready, (queue.jobs[0][0], queue.number, queue.ticket))

    def _wake(self, limit: Group, *, isolated: bool) -> None:
        """Let the first queue that waits at the limit ask again; it wakes the next if it leaves room."""
        waiting = self._waiting.get((id(limit), isolated))
        while waiting:
            _, number, ticket = heappop(waiting)
            queue = self._queues[number]
            if ticket == queue.ticket:
                queue.woken_by = limit
                self._again(queue)
                return

    def _opening(self, queue: Queue) -> float | None:
        """Return when the queue is open: now, at a time to come, or never (None)."""
        if queue.openings is None:
            return self.time
        return next((max(first, self.time) for first, last in queue.openings if self.time <= last), None)

    def _used_up(self, queue: Queue) -> Group | None:
        """Return a limit that has no room for the first of the queue."""
        if not queue.reasons:
            return None
        node = queue.jobs[0][1].node
        if queue.epoch != self._epoch:
            queue.epoch, queue.limits = self._epoch, self._budget.limits(node, queue.reasons)
        return self._budget.used_up(node, queue.limits)


def _boundaries(told: Hours, now: datetime) -> Iterator[datetime]:
    last = now + timedelta(days=AHEAD_DAYS)
    for span in hours.spans(told, now, AHEAD_DAYS, wide=True):
        yield from (at for at in span if now < at <= last)
