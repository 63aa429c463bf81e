"""Nodes that wait for their turn, most urgent first; among equals pools take turns, so that none starves (J7).

Nodes that ask for the same stand in one queue: what its first is refused, the others need not ask for. So a look at
who may go costs as much as there are different wishes, however many nodes wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from reconciler.model.plan import BlockCode, Blocked, NodePlan
from reconciler.planner.fleet.rollouts import Progress, pending
from reconciler.planner.fleet.schedule import Permit, reasons, takes_out, urgency
from reconciler.planner.node.workload import work

Turn = tuple[int, int, str, str]  # urgency, place in its pool, pool, node
Ask = Callable[[str], Blocked | None]


class WorkQueue:
    """`plans`: of all that may ever stand in it, pool by pool in their order."""

    def __init__(self, plans: Iterable[NodePlan]) -> None:
        self._rank: dict[str, int] = {}
        self._turns: dict[str, Turn] = {}
        self._wishes: dict[str, tuple[Hashable, ...]] = {}  # what each asks for, but for the group and the wave
        self._of_pool: dict[str, set[str]] = {}  # those that may have to wait for their wave
        self._alone: set[str] = set()  # those with a reason of their own to wait
        self._queue_of: dict[str, Hashable] = {}
        self._queues: dict[Hashable, list[Turn]] = {}
        self._unsorted: set[str] = set()  # not in a queue yet
        self._waves: Mapping[str, Progress] = {}
        self._refused: dict[Hashable, Blocked] = {}  # queue, or node that asks alone -> why it waits
        length: dict[str, int] = {}
        for plan in plans:
            self._rank[plan.node] = length[plan.pool] = length.get(plan.pool, -1) + 1

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._turns))

    def __bool__(self) -> bool:
        return bool(self._turns)

    def join(self, plan: NodePlan) -> None:
        """With this plan, which may be another than before."""
        name = plan.node
        self.leave(name)
        self._turns[name] = (urgency(plan), self._rank[name], plan.pool, name)
        window = (plan.pool, work(plan.actions).need_s)
        self._wishes[name] = (
            reasons(plan),
            takes_out(plan),
            work(plan.actions).flashes,
            bool(plan.actions),
            work(plan.actions).braked,
            window,
        )
        if plan.blocked is not None and plan.blocked.code is BlockCode.BACKOFF:
            self._alone.add(name)
        if not plan.postponed and pending(plan):
            self._of_pool.setdefault(plan.pool, set()).add(name)
        self._unsorted.add(name)

    def leave(self, name: str) -> None:
        turn = self._turns.pop(name, None)
        if turn is None:
            return
        self._out_of_queue(name, turn)
        self._unsorted.discard(name)
        self._alone.discard(name)
        self._of_pool.get(turn[2], set()).discard(name)

    def why(self, name: str) -> Blocked | None:
        """Why it waits, when it was last asked for."""
        return self._refused.get(name) or self._refused.get(self._queue_of.get(name, name))

    def ask(self, leave: Permit, room: Callable[[], bool], ask: Ask) -> None:
        """Call `ask` for one after another in turn while there is `room`; what it refuses, it refuses to all alike.

        None: the node has gone, or is passed over without prejudice to those behind it.
        """
        self._sort(leave)
        self._refused = {}
        special = (leave.budget.special() | self._alone) & self._turns.keys()
        heads: list[tuple[Turn, Hashable, bool]] = [(self._turns[name], name, True) for name in special]
        heads += [(queue[0], key, False) for key, queue in self._queues.items()]
        order = [(head[0], at) for at, head in enumerate(heads)]
        heapify(order)
        while order and room():
            turn, at = heappop(order)
            _, key, alone = heads[at]
            queue = [] if alone else self._queues.get(key, [])  # which what goes now leaves, and may leave empty
            blocked = ask(turn[3]) if alone or turn[3] not in special else None
            if blocked is not None:
                self._refused[key] = blocked
                continue
            following = bisect_right(queue, turn)
            if following < len(queue):
                heappush(order, (queue[following], at))

    def _sort(self, leave: Permit) -> None:
        """Into queues; those of pools whose waves have changed anew."""
        waves = leave.rollouts.by_pool
        for pool, members in self._of_pool.items():
            if waves.get(pool) is not self._waves.get(pool):
                self._unsorted |= members
        self._waves = dict(waves)
        for name in sorted(self._unsorted):
            turn = self._turns[name]
            self._out_of_queue(name, turn)
            key = self._queue_of[name] = self._key(name, turn, leave)
            insort(self._queues.setdefault(key, []), turn)
        self._unsorted.clear()

    def _key(self, name: str, turn: Turn, leave: Permit) -> Hashable:
        *wish, window = self._wishes[name]
        wave: tuple[str, int | None] | None = None
        if name in self._of_pool.get(turn[2], ()):
            progress = self._waves.get(turn[2])
            wave = turn[2], None if progress is None else progress.wave_of.get(name)
        return leave.budget.kind(name), tuple(wish), window if leave.windows else None, wave

    def _out_of_queue(self, name: str, turn: Turn) -> None:
        key = self._queue_of.pop(name, None)
        queue = self._queues.get(key)
        if queue is None:
            return
        at = bisect_left(queue, turn)
        del queue[at]
        if not queue:
            del self._queues[key]
