"""Nodes that wait to be let go: the one order and the one decision of a plan, its timetable, a rehearsal and a run.

The most urgent goes first; among equals the pools take turns, so that none starves (pitfall J7). Nodes that ask for the
same share a queue: what its first is refused, the others need not ask for. So to let nodes go costs as much as there
are different requests, however many nodes wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush

from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan
from reconciler.model.vocab import Reason
from reconciler.planner.fleet.permit import WITHOUT_BATCH, Permit, reasons, takes_out, without_verdict
from reconciler.planner.fleet.rollouts import Progress, pending
from reconciler.planner.node.workload import Need, cut_of, siblings_of, work

Place = tuple[int, int, str, str]  # urgency, number within its pool, pool, node: the first in order is the smallest
Ask = Callable[[str], Blocked | None]
_RENEWAL = frozenset({Reason.RENEWAL})


def schedule(plans: Mapping[str, NodePlan], permit: Permit) -> dict[str, NodePlan]:
    """Return each plan with its verdict as of now: batch 0 may go; others get a later batch of the budget, and why.

    The permit's budget is charged with all that may go.
    """
    judged = {name: without_verdict(plan, permit.now) for name, plan in plans.items()}
    queue = WorkQueue(judged.values())
    for plan in judged.values():
        if plan.actions and plan.goal is not Goal.NOTHING:
            queue.join(plan)

    def ask(name: str) -> Blocked | None:
        blocked = permit.admit(judged[name])
        if blocked is None:
            queue.remove(name)
        return blocked

    queue.ask(permit, lambda: True, ask)
    for name in queue.in_order():
        plan, blocked = judged[name], queue.why(name)
        if blocked is not None:
            batch = None if blocked.code in WITHOUT_BATCH else permit.budget.queue(name, reasons(plan))
            judged[name] = replace(plan, wave=batch, blocked=plan.blocked or blocked)
    return judged


def in_order(plans: Iterable[NodePlan]) -> list[NodePlan]:
    """Return these plans in the order in which they go."""
    plans = list(plans)
    numbers = _numbers(plans)
    return sorted(plans, key=lambda plan: (urgency(plan, reasons(plan)), numbers[plan.node], plan.pool, plan.node))


class WorkQueue:
    """`plans`: of all that may ever wait in it, in the order of the spec."""

    def __init__(self, plans: Iterable[NodePlan]) -> None:
        self._numbers = _numbers(plans)
        self._places: dict[str, Place] = {}
        self._requests: dict[str, tuple[Hashable, tuple[str, Need]]] = {}  # what each asks for, and its window
        self._plans: dict[str, NodePlan] = {}  # of those that wait
        self._of_pool: dict[str, set[str]] = {}  # those that may have to wait for their wave
        self._alone: set[str] = set()  # those with a reason of their own to wait
        self._queue_of: dict[str, Hashable] = {}
        self._queues: dict[Hashable, list[Place]] = {}
        self._unsorted: set[str] = set()  # not in a queue yet
        self._waves: Mapping[str, Progress] = {}
        self._refused: dict[Hashable, Blocked] = {}  # queue, or node that asks alone -> why it waits

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._places))

    def __bool__(self) -> bool:
        return bool(self._places)

    def in_order(self) -> list[str]:
        """Return the names of those that wait, the first to go first."""
        return [place[3] for place in sorted(self._places.values())]

    def join(self, plan: NodePlan) -> None:
        """Add a node, or replace its plan by a newer one."""
        name = plan.node
        self.remove(name)
        done, why = work(plan.actions), reasons(plan)
        self._places[name] = urgency(plan, why), self._numbers[name], plan.pool, name
        request = (why, takes_out(plan), done.flashes, bool(plan.actions), done.braked)
        self._requests[name] = request, (plan.pool, done.need)
        self._plans[name] = plan
        backs_off = plan.blocked is not None and plan.blocked.code is BlockCode.BACKOFF
        if backs_off or siblings_of(cut_of(plan)):
            self._alone.add(name)
        if not plan.postponed and pending(plan):
            self._of_pool.setdefault(plan.pool, set()).add(name)
        self._unsorted.add(name)

    def remove(self, name: str) -> None:
        place = self._places.pop(name, None)
        if place is None:
            return
        self._out_of_queue(name, place)
        self._unsorted.discard(name)
        self._plans.pop(name, None)
        self._alone.discard(name)
        self._of_pool.get(place[2], set()).discard(name)

    def why(self, name: str) -> Blocked | None:
        """Return why it had to wait when it was last asked for."""
        return self._refused.get(name) or self._refused.get(self._queue_of.get(name, name))

    def ask(self, permit: Permit, room: Callable[[], bool], ask: Ask) -> None:
        """Call `ask` for one node after another while there is `room`; what it refuses, it refuses to all alike.

        `ask` returns None when the node has gone, or is passed over without prejudice to those behind it.
        """
        self._sort(permit)
        self._refused = {}
        special = (permit.budget.special() | self._alone) & self._places.keys()
        heads: list[tuple[Place, Hashable, bool]] = [(self._places[name], name, True) for name in special]
        heads += [(queue[0], key, False) for key, queue in self._queues.items()]
        order = [(head[0], at) for at, head in enumerate(heads)]
        heapify(order)
        while order and room():
            place, at = heappop(order)
            _, key, alone = heads[at]
            queue = [] if alone else self._queues.get(key, [])  # which what goes now leaves, and may leave empty
            blocked = ask(place[3]) if alone or place[3] not in special else None
            if blocked is not None:
                self._refused[key] = blocked
                continue
            following = bisect_right(queue, place)
            if following < len(queue):
                heappush(order, (queue[following], at))

    def _sort(self, permit: Permit) -> None:
        """Put nodes into queues; also those of pools whose waves have changed."""
        waves = permit.rollouts.by_pool
        for pool, members in self._of_pool.items():
            if waves.get(pool) is not self._waves.get(pool):
                self._unsorted |= members
        self._waves = dict(waves)
        added: dict[Hashable, list[Place]] = {}
        for name in self._unsorted:
            place = self._places[name]
            self._out_of_queue(name, place)
            key = self._queue_of[name] = self._key(name, place, permit)
            added.setdefault(key, []).append(place)
        for key, places in added.items():
            queue = self._queues.setdefault(key, [])
            queue += places
            queue.sort()
        self._unsorted.clear()

    def _key(self, name: str, place: Place, permit: Permit) -> Hashable:
        request, window = self._requests[name]
        wave: tuple[str, int | None] | None = None
        if name in self._of_pool.get(place[2], ()):
            progress = self._waves.get(place[2])
            wave = place[2], None if progress is None else progress.wave_of.get(name)
        order = permit.kind_of_order(self._plans[name])
        return permit.budget.kind(name), request, window if permit.windows else None, wave, order

    def _out_of_queue(self, name: str, place: Place) -> None:
        key = self._queue_of.pop(name, None)
        queue = self._queues.get(key)
        if queue is None:
            return
        at = bisect_left(queue, place)
        del queue[at]
        if not queue:
            del self._queues[key]


# --- the order -------------------------------------------------------------------------------------------------------


def _numbers(plans: Iterable[NodePlan]) -> Mapping[str, int]:
    """Number the nodes of each pool: those that have something to do, in the order of the spec, and then the others."""
    found: dict[str, int] = {}
    length: dict[str, int] = {}
    for plan in sorted(plans, key=lambda plan: not plan.actions):
        found[plan.node] = length[plan.pool] = length.get(plan.pool, -1) + 1
    return found


def urgency(plan: NodePlan, why: frozenset[Reason]) -> int:
    """Rank who goes first when the budget is short: nodes that are out already, then the ill, drift, and renewals."""
    if plan.in_service is False and not plan.isolated:
        return 0
    return 1 if Reason.REMEDIATION in why else 3 if why == _RENEWAL else 2
