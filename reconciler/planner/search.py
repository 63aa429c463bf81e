"""The fewest actions from a set of conditions to a goal: a shortest-path search.

States are bit masks. Cost is lexicographic: drains, reboots, seconds, actions. Ties are broken by catalogue order, so
the answer is minimal and the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.planner.catalogue import Catalogue, Row

Cost = tuple[int, int, float, int]
_LIMIT = 200_000  # states; far above what the catalogue can produce, so reaching it is a bug and raises


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A row in bits. `consumes`: (staged bit, bit it sets, bits it clears), by activation."""

    requires: int
    forbids: int
    achieves: int
    breaks: int
    consumes: tuple[tuple[int, int, int], ...]
    cost: Cost

    def apply(self, state: int) -> int:
        broken = self.breaks
        achieved = self.achieves
        for staged, sets, clears in self.consumes:
            if state & staged:
                state &= ~staged
                achieved |= sets
                broken |= clears
        return ((state | achieved) & ~broken) | (self.achieves & ~self.breaks)


class Unsearchable(RuntimeError):
    """The search grew beyond all bounds: a defect of the catalogue."""


def search(catalogue: Catalogue, start: frozenset[str], goal: frozenset[str]) -> tuple[Row, ...] | None:
    """The cheapest sequence of rows from `start` to a state where all of `goal` holds; None when there is none."""
    bits = _number(catalogue, start, goal)
    compiled = [_compile(row, catalogue, bits) for row in catalogue.rows]
    target, origin = _mask(goal, bits), _mask(start, bits)
    queue: list[tuple[Cost, tuple[int, ...], int]] = [((0, 0, 0.0, 0), (), origin)]
    settled: set[int] = set()
    while queue:
        cost, path, state = heapq.heappop(queue)
        if state in settled:
            continue
        if state & target == target:
            return tuple(catalogue.rows[at] for at in path)
        settled.add(state)
        if len(settled) > _LIMIT:
            raise Unsearchable(f"{len(settled)} states from {sorted(start)} to {sorted(goal)}")
        for at, row in enumerate(compiled):
            if state & row.requires != row.requires or (row.forbids and state & row.forbids):
                continue
            following = row.apply(state)
            if following != state and following not in settled:
                added = row.cost
                total = (cost[0] + added[0], cost[1] + added[1], cost[2] + added[2], cost[3] + 1)
                heapq.heappush(queue, (total, (*path, at), following))
    return None


def _number(catalogue: Catalogue, *sets: Iterable[str]) -> dict[str, int]:
    names: set[str] = set().union(*sets)
    for row in catalogue.rows:
        names.update(row.requires, row.achieves, row.breaks, row.forbids)
    for staged in catalogue.staged:
        names.update((staged.condition, staged.achieves, *staged.breaks))
    return {name: 1 << at for at, name in enumerate(sorted(names))}


def _mask(names: Iterable[str], bits: dict[str, int]) -> int:
    mask = 0
    for name in names:
        mask |= bits[name]
    return mask


def _compile(row: Row, catalogue: Catalogue, bits: dict[str, int]) -> _Compiled:
    consumes = tuple(
        (bits[staged.condition], bits[staged.achieves], _mask(staged.breaks, bits))
        for staged in catalogue.staged
        if staged.activation in row.activates
    )
    return _Compiled(
        _mask(row.requires, bits),
        _mask(row.forbids, bits),
        _mask(row.achieves, bits),
        _mask(row.breaks, bits),
        consumes,
        (row.drains, row.reboots, row.seconds, 1),
    )


def apply(catalogue: Catalogue, row: Row, state: frozenset[str]) -> frozenset[str]:
    """The conditions after `row`, by name: what `search` does in bits."""
    achieved, broken, consumed = set(row.achieves), set(row.breaks), set()
    for staged in catalogue.staged:
        if staged.activation in row.activates and staged.condition in state:
            consumed.add(staged.condition)
            achieved.add(staged.achieves)
            broken.update(staged.breaks)
    return ((state - consumed) | achieved) - broken | (set(row.achieves) - set(row.breaks))
