"""Rounds of tests: each node takes part at most once in a round, and a round takes no more nodes than its budget.

First everyone is screened: with a node of its own rack or group, then with nodes of two other groups. Then those whose
results are doubtful meet partners that are held for healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from reconciler.gate.fabric.topology import Fabric

SCREENING_RUNS = 6  # eighteen in three screenings: a link that is down in two runs of five shows in 99 of 100
CONFIRMING_RUNS = 8
CONTROLS = 4  # pairs of healthy nodes in each later round: they tell whether the fabric is congested just then


class Match(NamedTuple):
    """A test of two nodes in a round: runs in a row. `control`: both are held for healthy."""

    one: str
    other: str
    runs: int
    control: bool


@dataclass(frozen=True, slots=True)
class Round:
    """The tests that run at the same time. `loopbacks`: node -> runs with itself."""

    matches: tuple[Match, ...]
    loopbacks: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """How much one round may take. `crossings`: most pairs of a group at once whose traffic takes its uplinks."""

    nodes: int
    crossings: int | None = None


def screenings(fabric: Fabric) -> Iterator[tuple[str, str]]:
    """Yield the pairs of the three screenings in order. With a budget for all nodes each is one round."""
    groups = [sorted(nodes, key=lambda node: (fabric.racks.get(node, ""), node)) for nodes in fabric.members.values()]
    if len(groups) == 1:
        yield from (pair for step in range(3) for pair in _circle(groups[0], step))
        return
    yield from _joined(fabric, [_circle(nodes, 0) for nodes in groups])
    for step in range(2):
        yield from _joined(fabric, list(_between(groups, step)))


def _circle(nodes: Sequence[str], step: int) -> list[tuple[str, str]]:
    """Pair nodes by the circle method. Step 0 pairs the first with the second, the third with the fourth, and so on.

    Of n nodes, n - 1 steps pair all with all. Of an odd number one idles, which pairs with "".
    """
    places = [*nodes, ""] if len(nodes) % 2 else list(nodes)
    ring = places[0::2] + places[1::2][::-1]
    fixed, moving = ring[0], ring[1:]
    at = step % max(1, len(moving))
    ring = [fixed, *moving[at:], *moving[:at]]
    return [(ring[i], ring[-1 - i]) for i in range(len(ring) // 2)]


def _between(groups: Sequence[Sequence[str]], step: int) -> Iterator[list[tuple[str, str]]]:
    """Pair each group with another, node by node. The idle one of an odd number of groups pairs within itself."""
    names = [str(at) for at in range(len(groups))]
    for one, other in _circle(names, step):
        if not one or not other:
            yield _circle(groups[int(one or other)], step + 1)
            continue
        first, second = groups[int(one)], groups[int(other)]
        at = step % len(second)
        yield list(zip_longest(first, [*second[at:], *second[:at]], fillvalue=""))


def _joined(fabric: Fabric, lists: Iterable[list[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs, and then those that had no partner in pairs of their own."""
    alone: list[str] = []
    for one, other in (pair for pairs in lists for pair in pairs):
        if one and other:
            yield one, other
        else:
            alone.append(one or other)
    alone.sort(key=lambda node: fabric.groups[node])
    yield from zip(alone[: len(alone) // 2], alone[len(alone) // 2 :], strict=False)


class Seats:
    """The places of one round that is being filled."""

    def __init__(self, fabric: Fabric, room: Room) -> None:
        self._groups, self._room = fabric.groups, room
        self.left = set(fabric.groups)  # nodes without a seat
        self._crossing: dict[str, int] = {}
        self.matches: list[Match] = []
        self.loopbacks: list[tuple[str, int]] = []

    def free(self, node: str) -> bool:
        return node in self.left

    def full(self, wanted: int = 2) -> bool:
        return len(self._groups) - len(self.left) + wanted > self._room.nodes

    def pair(self, one: str, other: str, runs: int, *, control: bool) -> bool:
        """Seat a pair, and return whether there was room for it."""
        if self.full() or not (self.free(one) and self.free(other)):
            return False
        ends = {self._groups[one], self._groups[other]}
        most = self._room.crossings
        if len(ends) == 2:
            if most is not None and any(self._crossing.get(end, 0) >= most for end in ends):
                return False
            for end in ends:
                self._crossing[end] = self._crossing.get(end, 0) + 1
        self.left -= {one, other}
        self.matches.append(Match(one, other, runs, control))
        return True

    def loopback(self, node: str, runs: int) -> bool:
        if self.full(1) or not self.free(node):
            return False
        self.left.discard(node)
        self.loopbacks.append((node, runs))
        return True

    def round(self) -> Round:
        return Round(tuple(self.matches), tuple(self.loopbacks))
