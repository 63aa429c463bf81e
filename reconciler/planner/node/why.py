"""Explain why each action of a plan is in it, by the best plan without it.

A plan is the cheapest way from a node's conditions to its goal. A second search, with one action removed from the
catalogue, finds either no way at all or one that costs at least as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from reconciler.planner.node.catalogue import Catalogue, Row
from reconciler.planner.node.search import search


class Cost(NamedTuple):
    """The cost of a plan. Costs compare field by field, in this order."""

    drains: int
    reboots: int
    seconds: float
    actions: int


@dataclass(frozen=True, slots=True)
class Question:
    """The input and the result of a search: `rows` lead from `start` to conditions that include all of `wanted`."""

    catalogue: Catalogue
    start: frozenset[str]
    wanted: frozenset[str]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best plan without one action.

    `more` is None if there is none. Then `missing` are the conditions of the goal that no other action achieves, in
    catalogue order, and `own` are those of them that the action itself is for. Otherwise `instead` are the actions that
    only the other plan has, `spared` those that only this plan has, and `more` is what the other plan costs beyond this
    one, never less than zero.
    """

    missing: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    more: Cost | None = None
    instead: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()


def alternatives(question: Question) -> Mapping[str, Alternative]:
    """Return the best plan without each action, by the id of the action."""
    names = dict.fromkeys(row.id for row in question.rows)
    return {name: _without(question, name) for name in names}


def cost_of(rows: tuple[Row, ...]) -> Cost:
    return Cost(
        sum(row.drains for row in rows), sum(row.reboots for row in rows), sum(row.seconds for row in rows), len(rows)
    )


def _without(question: Question, name: str) -> Alternative:
    full = question.catalogue
    rest = replace(full, rows=tuple(row for row in full.rows if row.id != name))
    missing = question.wanted - _reachable(rest, question.start)
    other = None if missing else search(rest, question.start, question.wanted)
    if other is None:
        mine = question.wanted & _effects(full, name)
        # Each condition may be reachable alone and still not all together. Then name what the action itself is for, or
        # every unmet condition if the action only makes others possible.
        missing = missing or (mine - question.start) or mine or (question.wanted - question.start)
        place = {condition: at for at, row in reversed([*enumerate(full.rows)]) for condition in _effects(full, row.id)}
        ordered = sorted(missing, key=lambda condition: (place.get(condition, 0), condition))
        return Alternative(tuple(ordered), tuple(condition for condition in ordered if condition in mine))
    ours, its = [row.id for row in question.rows], [row.id for row in other]
    least, most = cost_of(question.rows), cost_of(other)
    more = Cost(
        most.drains - least.drains, most.reboots - least.reboots, most.seconds - least.seconds,
        most.actions - least.actions,
    )  # fmt: skip
    return Alternative(more=more, instead=_difference(its, ours), spared=_difference(ours, its))


def _reachable(catalogue: Catalogue, start: frozenset[str]) -> frozenset[str]:
    """Return all conditions that could come true if no action broke or forbade any: all others are out of reach.

    It saves most searches: without the only action that achieves a condition, a search would try every state in vain.
    """
    reached = set(start)
    size = -1
    while size != len(reached):
        size = len(reached)
        for row in catalogue.rows:
            if reached.issuperset(row.requires):
                reached.update(row.achieves)
                reached.update(
                    staged.achieves
                    for staged in catalogue.staged
                    if staged.condition in reached and staged.activation in row.activates
                )
    return frozenset(reached)


def _effects(catalogue: Catalogue, name: str) -> set[str]:
    """Return what an action is for: what it achieves itself or by an activation that it prepares or carries out."""
    found: set[str] = set()
    for row in catalogue.rows:
        if row.id == name:
            found.update(row.achieves)
            found.update(s.achieves for s in catalogue.staged if s.condition in found or s.activation in row.activates)
    return found


def _difference(some: list[str], others: list[str]) -> tuple[str, ...]:
    """Return `some` without `others`, counting repetitions."""
    left = list(others)
    found = []
    for name in some:
        if name in left:
            left.remove(name)
        else:
            found.append(name)
    return tuple(found)
