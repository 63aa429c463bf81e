"""Why each action of a plan is in it: what there would be without it.

A plan is the cheapest way from a node's conditions to its goal, so the answer is a second search, with the action
struck from the catalogue. Either nothing leads to the goal any more, or the least that does costs no less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from reconciler.planner.node.catalogue import Catalogue, Row
from reconciler.planner.node.search import search


class Cost(NamedTuple):
    """As `search` compares: in this order."""

    drains: int
    reboots: int
    seconds: float
    actions: int


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is the answer to: `rows` lead from `start` to where all of `wanted` holds."""

    catalogue: Catalogue
    start: frozenset[str]
    wanted: frozenset[str]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """What there is without one action.

    `more` None: nothing leads to the goal any more. `missing` are then the conditions of the goal that nothing else
    brings about, in the order in which the catalogue does, and `own` those of them that the action itself is for.
    Otherwise `instead` are the actions that the least other way takes and the plan does not, `spared` those of the plan
    that it does not take, and `more` what it costs beyond the plan, never less than nothing.
    """

    missing: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    more: Cost | None = None
    instead: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()


def alternatives(question: Question) -> Mapping[str, Alternative]:
    """By id, for each action of the plan."""
    names = dict.fromkeys(row.id for row in question.rows)
    return {name: _without(question, name) for name in names}


def cost_of(rows: tuple[Row, ...]) -> Cost:
    return Cost(
        sum(row.drains for row in rows), sum(row.reboots for row in rows), sum(row.seconds for row in rows), len(rows)
    )


def _without(question: Question, name: str) -> Alternative:
    full = question.catalogue
    rest = replace(full, rows=tuple(row for row in full.rows if row.id != name))
    missing = question.wanted - _imaginable(rest, question.start)
    other = None if missing else search(rest, question.start, question.wanted)
    if other is None:
        mine = question.wanted & _effects(full, name)
        # Each may be had by itself, and still not all at once: then what the action is for stands for the rest; or all
        # that is still to come about, of an action that only makes way for others.
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
    return Alternative(more=more, instead=_beyond(its, ours), spared=_beyond(ours, its))


def _imaginable(catalogue: Catalogue, start: frozenset[str]) -> frozenset[str]:
    """All that could come true if nothing ever undid or forbade anything: what is not in it is out of reach for good.

    It spares most searches: without the one action that achieves something, a search would look everywhere in vain.
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
    """What an action is for: what it achieves, at once or by an activation that it makes possible or carries out."""
    found: set[str] = set()
    for row in catalogue.rows:
        if row.id == name:
            found.update(row.achieves)
            found.update(s.achieves for s in catalogue.staged if s.condition in found or s.activation in row.activates)
    return found


def _beyond(some: list[str], others: list[str]) -> tuple[str, ...]:
    """`some` without `others`, each as often as it is there more often."""
    left = list(others)
    found = []
    for name in some:
        if name in left:
            left.remove(name)
        else:
            found.append(name)
    return tuple(found)
