"""Two independent partners convict a node, one never does, and a pass with another shows who else may be bad."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from reconciler.gate.fabric.bisect import Passed
from reconciler.gate.fabric.pair_verdict import Decision, PairResult, judge_pairs

YES, NO, ERROR = Passed.YES, Passed.NO, Passed.ERROR
A, B, C, D = "a", "b", "c", "d"


@pytest.mark.parametrize(
    ("results", "wanted", "decision"),
    [
        ([], 1, Decision.OPEN),
        ([(A, ERROR)], 1, Decision.OPEN),
        ([(A, YES)], 1, Decision.CLEARED),
        ([(A, YES)], 2, Decision.OPEN),
        ([(A, YES), (A, YES)], 2, Decision.OPEN),
        ([(A, YES), (B, YES)], 2, Decision.CLEARED),
        ([(A, NO)], 1, Decision.OPEN),
        ([(A, NO), (A, NO), (A, NO)], 1, Decision.OPEN),
        ([(A, NO), (A, YES)], 1, Decision.OPEN),
        ([(A, NO), (B, ERROR)], 1, Decision.OPEN),
        ([(A, NO), (B, NO)], 1, Decision.CONVICTED),
        ([(A, NO), (B, YES)], 1, Decision.CLEARED),
        ([(A, NO), (B, YES)], 2, Decision.OPEN),
        ([(A, NO), (B, YES), (C, NO)], 1, Decision.CONVICTED),
        ([(A, NO), (B, YES), (C, YES)], 2, Decision.CLEARED),
        ([(A, NO), (B, NO), (C, YES), (D, YES)], 1, Decision.CLEARED),
    ],
)
def test_the_verdict_whatever_the_order(results: list[tuple[str, Passed]], wanted: int, decision: Decision) -> None:
    for order in permutations(results):
        assert judge_pairs([PairResult(*one) for one in order], wanted).decision is decision


def test_a_pass_with_another_clears_the_node_and_suspects_the_first() -> None:
    found = judge_pairs([PairResult(A, NO), PairResult(B, YES)])
    assert (found.decision, found.agree, found.suspects) == (Decision.CLEARED, (B,), (A,))


def test_nobody_is_suspected_before_the_node_is_cleared() -> None:
    assert judge_pairs([PairResult(A, NO)]).suspects == ()
    assert judge_pairs([PairResult(A, NO), PairResult(B, NO)]).suspects == ()


def test_partners_without_certificate_convict_nobody_and_may_clear() -> None:
    ill = [PairResult(A, NO, certified=False), PairResult(B, NO, certified=False)]
    assert judge_pairs(ill).decision is Decision.OPEN
    assert judge_pairs([*ill, PairResult(C, NO)]).decision is Decision.OPEN
    found = judge_pairs([*ill, PairResult(C, YES, certified=False)])
    assert (found.decision, found.suspects) == (Decision.CLEARED, (A, B))


def test_a_failure_counts_though_the_certificate_of_the_partner_ends_later() -> None:
    found = judge_pairs([PairResult(A, NO), PairResult(A, NO, certified=False), PairResult(B, NO)])
    assert (found.decision, found.disagree) == (Decision.CONVICTED, (A, B))


def test_no_partner_at_all_is_no_proof() -> None:
    with pytest.raises(ValueError, match="0 partners"):
        judge_pairs([], 0)


def test_one_bad_node_is_convicted_and_no_good_one_is_by_one_bad_partner() -> None:
    """Of any eight nodes with a bad one, asked until the verdict: the bad one fails, and the others pass."""
    seed = random.SystemRandom().randrange(10**12)
    for at in range(seed, seed + 300):
        chance = random.Random(at)
        names = [f"n{number}" for number in range(8)]
        bad, wanted = chance.choice(names), chance.choice([1, 2])
        for node in names:
            partners = chance.sample([name for name in names if name != node], 7)
            results: list[PairResult] = []
            while judge_pairs(results, wanted).decision is Decision.OPEN:
                partner = partners.pop()
                results.append(PairResult(partner, NO if bad in (node, partner) else YES))
            found = judge_pairs(results, wanted)
            assert found.decision is (Decision.CONVICTED if node == bad else Decision.CLEARED), at
            assert set(found.suspects) <= {bad}, at
            assert len(results) <= wanted + 1, at
