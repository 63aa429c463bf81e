"""Nodes that wait for their turn, most urgent first; among equals pools take turns, so that none starves (J7)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from reconciler.model.plan import NodePlan
from reconciler.model.vocab import Reason
from reconciler.planner.rollout import pending
from reconciler.planner.schedule import Leave, flashes, need_s, reasons, takes_out, urgency


@dataclass(frozen=True, slots=True)
class _Place:
    """What a plan asks for. `turn`: urgency, place in its pool, pool."""

    turn: tuple[int, int, str]
    pool: str
    reasons: frozenset[Reason]
    out: bool
    flashes: bool
    need_s: float
    changes: bool  # something that the spec changed, which may have to wait for its wave


class Line:
    """`plans`: all that may ever stand in it, in the order of their pools."""

    def __init__(self, plans: Iterable[NodePlan]) -> None:
        self._rank: dict[str, int] = {}
        self._places: dict[str, _Place] = {}
        self._order: list[str] | None = None  # may name some that have left
        length: dict[str, int] = {}
        for plan in plans:
            self._rank[plan.node] = length[plan.pool] = length.get(plan.pool, -1) + 1

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._places))

    def __bool__(self) -> bool:
        return bool(self._places)

    def join(self, plan: NodePlan) -> None:
        """With this plan, which may be another than before."""
        self._places[plan.node] = _Place(
            turn=(urgency(plan), self._rank[plan.node], plan.pool),
            pool=plan.pool,
            reasons=reasons(plan),
            out=takes_out(plan),
            flashes=any(map(flashes, plan.actions)),
            need_s=need_s(plan),
            changes=not plan.postponed and bool(pending(plan)),
        )
        self._order = None

    def leave(self, node: str) -> None:
        self._places.pop(node, None)

    def in_turn(self) -> list[str]:
        if self._order is None:
            self._order = sorted(self._places, key=lambda name: self._places[name].turn)
        else:
            self._order = [name for name in self._order if name in self._places]
        return self._order

    def key(self, node: str, leave: Leave) -> Hashable:
        """Nodes of which this is equal get the same leave, or none for the same reason."""
        place = self._places[node]
        wave = None
        if place.changes:
            progress = leave.rollouts.by_pool.get(place.pool)
            wave = None if progress is None else progress.wave_of.get(node)
        window = (place.pool, place.need_s) if leave.windows else None
        pool = place.pool if wave is not None else None
        return leave.budget.alike(node), place.reasons, place.out, place.flashes, window, pool, wave
