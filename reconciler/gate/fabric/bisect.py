"""Bisection: which node spoils a test that a group of nodes takes together, such as an all_reduce over all of them.

For faults that no pair shows. Groups are halved and test at the same time, so a step is a round. A half that passes is
good, and its nodes are the partners of the last step: a node fails by two groups with different good nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

SMALLEST = 3  # nodes of a group that is halved no further


class Passed(StrEnum):
    """The outcome of a group's test. ERROR: it could not run, which proves nothing; it is asked for again."""

    YES = "yes"
    NO = "no"
    ERROR = "error"


class GroupRun(NamedTuple):
    """A test that a group took together."""

    nodes: frozenset[str]
    passed: Passed


@dataclass(frozen=True, slots=True)
class Bisection:
    """The outcome of all results so far. `next`: groups of one round, no node in two; () when nothing is left to ask.

    `between`: groups that pass by themselves and not together: what joins them is at fault, and no node of theirs.
    """

    convicted: frozenset[str]
    good: frozenset[str]
    between: tuple[frozenset[str], ...]
    next: tuple[frozenset[str], ...]


def bisect(nodes: Sequence[str], runs: Iterable[GroupRun]) -> Bisection:
    """Judge all results of groups so far. A group that passed once after it had failed is good: once is chance."""
    results: dict[frozenset[str], list[Passed]] = {}
    for run in runs:
        results.setdefault(run.nodes, []).append(run.passed)
    state = _State(results)
    state.descend(tuple(nodes))
    following = state.round()
    return Bisection(frozenset(state.convicted), frozenset(state.good), tuple(state.between), following)


class _State:
    def __init__(self, results: dict[frozenset[str], list[Passed]]) -> None:
        self._results = results
        self.convicted: set[str] = set()
        self.good: set[str] = set()
        self.between: list[frozenset[str]] = []
        self._asked: list[frozenset[str]] = []
        self._suspects: list[tuple[str, ...]] = []

    def _passes(self, group: frozenset[str]) -> bool | None:
        """Return whether a group passes: None before it has passed once, or failed twice."""
        found = self._results.get(group, [])
        if Passed.YES in found:
            return True
        return False if found.count(Passed.NO) > 1 else None

    def descend(self, nodes: tuple[str, ...]) -> bool | None:
        """Halve a group that fails; return whether it passes, None while that is asked."""
        group = frozenset(nodes)
        passes = self._passes(group)
        if passes is None:
            self._asked.append(group)
        elif passes:
            self.good |= group
        elif len(nodes) <= SMALLEST:
            self._suspects.append(nodes)
        else:
            middle = len(nodes) // 2
            halves = [self.descend(nodes[:middle]), self.descend(nodes[middle:])]
            if halves == [True, True]:
                self.between.append(group)
        return passes

    def round(self) -> tuple[frozenset[str], ...]:
        """Return the groups of the next round: those that are halved, then suspects with good nodes of their own."""
        taken = {node for group in self._asked for node in group}
        partners = sorted(self.good)
        for at, node in enumerate(node for group in self._suspects for node in group):
            proofs = {group: found for group, found in self._results.items() if self._is_proof(group, node, partners)}
            failed = [group for group, found in proofs.items() if Passed.NO in found]
            if any(Passed.YES in found for found in proofs.values()):
                self.good.add(node)
            elif len(failed) > 1:
                self.convicted.add(node)
            else:
                met = {other for group in failed for other in group}
                free = [other for other in partners[at:] + partners[:at] if other not in taken | met]
                if free and node not in taken:
                    self._asked.append(frozenset({node, free[0]}))
                    taken |= {node, free[0]}
        self.between += [frozenset(group) for group in self._suspects if self.good.issuperset(group)]
        return tuple(self._asked)

    @staticmethod
    def _is_proof(group: frozenset[str], node: str, partners: Sequence[str]) -> bool:
        return len(group) == 2 and node in group and any(other in partners for other in group if other != node)
