"""Bisection: which node spoils a test that a group of nodes takes together, such as an all_reduce over all of them.

For faults that no pair shows. Groups are halved and test at the same time, so a step is a round. A half that passes is
good, and its nodes are the partners of the last step: a node fails by two groups with different good nodes, of which
one is behind its own leaf. Where none of a leaf is good, it or what it leads to may be the cause, and no node is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

SMALLEST = 3  # nodes of a group that is halved no further
PROOFS = 2  # failures with good nodes, of which one is behind the node's own leaf


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
    `suspects`: nodes that are neither convicted nor good.
    """

    convicted: frozenset[str]
    good: frozenset[str]
    between: tuple[frozenset[str], ...]
    next: tuple[frozenset[str], ...]
    suspects: frozenset[str] = frozenset()


def bisect(nodes: Sequence[str], runs: Iterable[GroupRun]) -> Bisection:
    """Judge all results of one group so far. One that passed once after it had failed is good: once is chance."""
    return bisect_groups([nodes], runs, {})


def bisect_groups(groups: Iterable[Sequence[str]], runs: Iterable[GroupRun], leaves: Mapping[str, str]) -> Bisection:
    """Judge all results of several groups so far, whose good nodes are partners for all. `leaves`: node -> leaf.

    A group that twice could not run is halved like one that failed, though that speaks against nobody.
    """
    results: dict[frozenset[str], list[Passed]] = {}
    for run in runs:
        results.setdefault(run.nodes, []).append(run.passed)
    state = _State(results, leaves)
    for nodes in groups:
        state.descend(tuple(nodes))
    following = state.round()
    suspects = frozenset(state.suspects) - state.convicted - state.good
    return Bisection(frozenset(state.convicted), frozenset(state.good), tuple(state.between), following, suspects)


class _State:
    def __init__(self, results: dict[frozenset[str], list[Passed]], leaves: Mapping[str, str]) -> None:
        self._results = results
        self._leaves = leaves
        self.convicted: set[str] = set()
        self.good: set[str] = set()
        self.between: list[frozenset[str]] = []
        self._asked: list[frozenset[str]] = []
        self._suspects: list[tuple[str, ...]] = []

    def _passes(self, group: frozenset[str]) -> bool | None:
        """Return whether a group passes: None before it has passed once, or twice not."""
        found = self._results.get(group, [])
        if Passed.YES in found:
            return True
        return False if len(found) > 1 else None

    @property
    def suspects(self) -> set[str]:
        return {node for group in self._suspects for node in group}

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
                self._note_between(group)
        return passes

    def _note_between(self, group: frozenset[str]) -> None:
        if self._results[group].count(Passed.NO) > 1:
            self.between.append(group)

    def round(self) -> tuple[frozenset[str], ...]:
        """Return the groups of the next round: those that are halved, then suspects with good nodes of their own."""
        taken = {node for group in self._asked for node in group}
        suspects = [node for group in self._suspects for node in group]
        passed = [group for group, found in self._results.items() if Passed.YES in found]
        self.good |= {node for node in suspects for group in passed if node in group and len(group) == 2}
        partners = sorted(self.good)
        for at, node in enumerate(suspects):
            if node in self.good:
                continue
            proofs = {group: found for group, found in self._results.items() if self._is_proof(group, node, partners)}
            failed = [group for group, found in proofs.items() if Passed.NO in found]
            if len(failed) > 1 and any(self._at_home(node, group) for group in failed):
                self.convicted.add(node)
            else:
                met = {other for group in failed for other in group}
                free = [other for other in partners[at:] + partners[:at] if other not in taken | met]
                home = [other for other in free if self._at_home(node, (other,))]
                chosen = home or (free if len(failed) < PROOFS else [])
                if chosen and node not in taken:
                    self._asked.append(frozenset({node, chosen[0]}))
                    taken |= {node, chosen[0]}
        for nodes in self._suspects:
            if self.good.issuperset(nodes):
                self._note_between(frozenset(nodes))
        return tuple(self._asked)

    def _at_home(self, node: str, others: Iterable[str]) -> bool:
        """Return whether these nodes are behind the node's own leaf, so that no spine takes part."""
        return all(self._leaves.get(other) == self._leaves.get(node) for other in others)

    @staticmethod
    def _is_proof(group: frozenset[str], node: str, partners: Sequence[str]) -> bool:
        return len(group) == 2 and node in group and any(other in partners for other in group if other != node)
