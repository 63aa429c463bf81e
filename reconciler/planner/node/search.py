"""Find the fewest actions from a set of conditions to a goal, by a shortest-path search.

States are bit masks. Cost is lexicographic: drains, reboots, seconds, actions. Ties are broken by catalogue order, so
the answer is minimal and the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from typing import NamedTuple

from reconciler.planner.node.catalogue import Catalogue, Row

_LIMIT = 200_000  # states; far above what the catalogue can produce, so reaching it is a bug and raises
# A cost is one number, so that adding and comparing is one step: drains, reboots, milliseconds, actions, in that order.
_ACTION, _MILLISECOND, _REBOOT, _DRAIN = 1, 1 << 16, 1 << 64, 1 << 80


class _Step(NamedTuple):
    """An action in bits. `keeps`: all that it does not break. `consumes`: (staged bit, bit it sets, bits it clears)."""

    requires: int
    forbids: int
    achieves: int
    keeps: int
    awaits: int  # the staged bits of `consumes`
    consumes: tuple[tuple[int, int, int], ...]
    cost: int


class Unsearchable(RuntimeError):
    """The search visited more states than a sound catalogue has: a defect of the catalogue."""


def search(catalogue: Catalogue, start: frozenset[str], goal: frozenset[str]) -> tuple[Row, ...] | None:
    """Return the cheapest actions from `start` to a state that includes all of `goal`; None if there are none.

    Raise Unsearchable if the search visits more states than a sound catalogue has.
    """
    bits = _number(catalogue, start, goal)
    steps = [(at, *_compile(row, catalogue, bits)) for at, row in enumerate(catalogue.rows)]
    target, origin = _mask(goal, bits), _mask(start, bits)
    queue: list[tuple[int, tuple[int, ...], int]] = [(0, (), origin)]  # cost, rows taken, state
    cheapest = {origin: queue[0]}
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
        for at, requires, forbids, achieves, keeps, awaits, consumes, added in steps:
            if state & requires != requires or state & forbids:
                continue
            following = (state | achieves) & keeps
            if state & awaits:
                following = _activated(state, achieves, keeps, consumes)
            total = cost + added
            known = cheapest.get(following)
            if known is None or total <= known[0]:
                reached = (total, (*path, at), following)
                if known is None or reached < known:
                    cheapest[following] = reached
                    heapq.heappush(queue, reached)
    return None


def _activated(state: int, achieves: int, keeps: int, consumes: tuple[tuple[int, int, int], ...]) -> int:
    """Return the conditions after an action that activates staged ones, which break nothing that it achieves itself."""
    left, gained, kept = state, achieves, keeps
    for staged, sets, clears in consumes:
        if state & staged:
            left &= ~staged
            gained |= sets
            kept &= ~clears
    return (left | gained) & kept | achieves & keeps


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


def _compile(row: Row, catalogue: Catalogue, bits: dict[str, int]) -> _Step:
    awaited = [staged for staged in catalogue.staged if staged.activation in row.activates]
    return _Step(
        _mask(row.requires, bits),
        _mask(row.forbids, bits),
        _mask(row.achieves, bits),
        ~_mask(row.breaks, bits),
        _mask((staged.condition for staged in awaited), bits),
        tuple((bits[staged.condition], bits[staged.achieves], _mask(staged.breaks, bits)) for staged in awaited),
        row.drains * _DRAIN + row.reboots * _REBOOT + round(1000 * row.seconds) * _MILLISECOND + _ACTION,
    )


def apply(catalogue: Catalogue, row: Row, state: frozenset[str]) -> frozenset[str]:
    """Return the conditions after an action, by name, as `search` computes them in bits."""
    achieved, broken, consumed = set(row.achieves), set(row.breaks), set()
    for staged in catalogue.staged:
        if staged.activation in row.activates and staged.condition in state:
            consumed.add(staged.condition)
            achieved.add(staged.achieves)
            broken.update(staged.breaks)
    return ((state - consumed) | achieved) - broken | (set(row.achieves) - set(row.breaks))


def harmless(
    full: Catalogue, unknown: Container[str], start: frozenset[str], wanted: frozenset[str]
) -> tuple[Row, ...]:
    """Choose actions that no workload notices, in catalogue order, until none adds to the goal."""
    chosen: list[Row] = []
    reached = start
    while True:
        for row in full.rows:
            gains = (set(row.achieves) & wanted) - reached
            if row.harmless and gains and not any(name in unknown for name in gains) and set(row.requires) <= reached:
                break
        else:
            return tuple(chosen)
        chosen.append(row)
        reached = apply(full, row, reached)
