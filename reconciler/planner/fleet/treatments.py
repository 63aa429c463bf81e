"""Tell which rung of the ladder healed which signal on which model, and the order that follows from it.

A rung healed a signal when the signal was there as the rung began and was gone before the next rung of the node began.
A reset of the BMC treats no host: it is told for the signals that asked for it, and is no rung of the others.
A signal that is gone by itself in that time counts for the rung, so few attempts prove little: an order is proposed
from three attempts at each of its rungs. The planner never reads it: a person changes the policy.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from reconciler.health.ladder import REMEDIATION
from reconciler.model.desired import Fleet
from reconciler.model.period_report import Episode
from reconciler.model.records import Attempt
from reconciler.model.reliability import LadderProposal, RungTally
from reconciler.planner.fleet.durations import times
from reconciler.planner.node.bmc_reset import ACTION as RESET_FROM_HOST
from reconciler.spec.kinds.remediation_policy import RungAction

ENOUGH: Final = 3  # attempts at a rung, from which its share of successes says something


@dataclass(slots=True)
class _Tally:
    attempts: int = 0
    heal_s: list[float] = field(default_factory=list)
    take_s: list[float] = field(default_factory=list)


def rung_tallies(
    illness: Mapping[str, Sequence[Episode]], attempts: Mapping[str, Sequence[Attempt]], models: Mapping[str, str]
) -> tuple[RungTally, ...]:
    """Return what each rung did for each signal. `illness`: by node. `models`: by node."""
    found: dict[tuple[str, str, str], _Tally] = {}
    for node, some in attempts.items():
        judged = [one for one in some if one.outcome not in ("started", "refused")]
        of_host = [one for one in judged if one.cause == REMEDIATION]
        of_bmc = [one for one in judged if one.action == RESET_FROM_HOST]
        for rung, after in (*zip_longest(of_host, of_host[1:]), *zip_longest(of_bmc, of_bmc[1:])):
            for episode in _shown(illness.get(node, ()), rung):
                tally = found.setdefault((models.get(node, ""), episode.path, _rung_of(rung)), _Tally())
                tally.attempts += 1
                if rung.ended_at is not None:
                    tally.take_s.append((rung.ended_at - rung.at).total_seconds())
                if episode.until is not None and (after is None or episode.until <= after.at):
                    tally.heal_s.append((episode.until - rung.at).total_seconds())
    return tuple(
        RungTally(
            model, signal, rung, one.attempts, len(one.heal_s), times(one.heal_s),
            statistics.fmean(one.take_s) if one.take_s else None,
        )
        for (model, signal, rung), one in sorted(found.items())
    )  # fmt: skip


def _shown(episodes: Sequence[Episode], rung: Attempt) -> Iterator[Episode]:
    """Yield the signals that a rung was to heal: all that the node showed, or those that had its BMC reset."""
    asked = None if rung.cause == REMEDIATION else frozenset(rung.cause.split(", "))
    for one in episodes:
        if one.since <= rung.at and (one.until is None or one.until > rung.at) and (asked is None or one.path in asked):
            yield one


def _rung_of(attempt: Attempt) -> str:
    """Return the name by which the ladder knows an action."""
    return RungAction.RESET_BMC.value if attempt.action == RESET_FROM_HOST else attempt.action


def proposals(tallies: Sequence[RungTally], fleet: Fleet) -> tuple[LadderProposal, ...]:
    """Return orders that differ from the policy's. First comes what heals most for its time: time over success.

    That order has the least expected time until one heals, if their successes don't depend on each other. Rungs without
    enough attempts, or that healed nothing, follow in the policy's order.
    """
    ladders = {
        (node.profile.inventory.model or ""): tuple(rung.action for rung in node.profile.remediation.ladder)
        for node in fleet.nodes.values()
        if node.profile.remediation is not None
    }
    by_signal: dict[tuple[str, str], list[RungTally]] = {}
    for one in tallies:
        by_signal.setdefault((one.model, one.signal), []).append(one)
    found = []
    for (model, signal), some in by_signal.items():
        ladder = ladders.get(model, ())
        known = [one for one in some if one.attempts >= ENOUGH and one.healed and one.take_s and one.rung in ladder]
        known.sort(key=lambda one: ((one.take_s or 0.0) * one.attempts / one.healed, ladder.index(one.rung)))
        first = [one.rung for one in known]
        order = (*first, *(rung for rung in ladder if rung not in first))
        if len(first) > 1 and order != ladder:
            found.append(LadderProposal(model, signal, order, ladder))
    return tuple(found)
