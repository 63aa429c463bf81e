"""The verdict on a node from its tests with partners, one partner after another.

A pass proves both nodes and the path. A failure proves that one of the two or the path is bad, and not which: two
independent partners have to disagree with a node before it is convicted. A partner is independent when its certificate
is valid; a failure with any other convicts nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from reconciler.gate.fabric.bisect import Passed
from reconciler.gate.fabric.blame import PARTNERS


class PairResult(NamedTuple):
    """A test of the node with a partner. `certified`: the partner's certificate was valid then."""

    partner: str
    passed: Passed
    certified: bool = True


class Decision(StrEnum):
    """CLEARED: enough partners passed. CONVICTED: enough disagree. OPEN: another partner has to be asked."""

    CLEARED = "cleared"
    CONVICTED = "convicted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The decision and its evidence. `disagree`: independent partners that failed.

    `suspects`: partners of a cleared node that failed: they or the path are bad. Empty before it is cleared.
    """

    decision: Decision
    agree: tuple[str, ...]
    disagree: tuple[str, ...]
    suspects: tuple[str, ...] = ()


def judge_pairs(results: Iterable[PairResult], wanted: int = 1) -> PairVerdict:
    """Judge all results of a node so far. `wanted`: how many partners have to pass.

    A partner that failed once disagrees, whatever it measured again: a link that flaps passes too. A test that could
    not run says nothing. A node that more independent partners speak against than for is not cleared by one that
    passed.
    """
    if wanted < 1:
        raise ValueError(f"{wanted} partners prove nothing")
    failed: dict[str, bool] = {}
    passed: set[str] = set()
    for result in results:
        if result.passed is Passed.NO:
            failed[result.partner] = failed.get(result.partner, False) or result.certified
        elif result.passed is Passed.YES:
            passed.add(result.partner)
    agree = tuple(sorted(passed - failed.keys()))
    disagree = tuple(sorted(partner for partner, certified in failed.items() if certified))
    if len(disagree) >= PARTNERS and len(disagree) > len(agree):
        return PairVerdict(Decision.CONVICTED, agree, disagree)
    if len(agree) >= wanted:
        return PairVerdict(Decision.CLEARED, agree, disagree, tuple(sorted(failed)))
    return PairVerdict(Decision.OPEN, agree, disagree)
