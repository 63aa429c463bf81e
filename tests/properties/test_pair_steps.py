"""A gate's test with partners convicts a bad node and never a good one, whatever else is broken around it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from reconciler.gate.fabric.bisect import Passed
from reconciler.gate.fabric.pair_steps import Ask, AskControl, Control, Ended, Met, next_step
from reconciler.model.gate import Verdict

SEEDS = 3000
MOST_STEPS = 12
ALL_WAYS = (("l0", "l1"), ("l0", "l2"), ("l1", "l2"))
BAD_NODES, BAD_LEAVES, BAD_WAYS, ERRORS = 0.15, 0.1, 0.1, 0.1


@dataclass
class Truth:
    """Nodes behind leaves, some of them bad, and the tests of one node with partners drawn by chance."""

    chance: random.Random
    bad: set[str] = field(default_factory=set)
    bad_leaves: set[str] = field(default_factory=set)
    bad_ways: set[frozenset[str]] = field(default_factory=set)
    refusals: float = 0.0

    def __post_init__(self) -> None:
        draw = self.chance.random
        self.leaves = {f"n{at}": f"l{at // 4}" for at in range(12)}
        self.bad = {name for name in self.leaves if draw() < BAD_NODES}
        self.bad_leaves = {leaf for leaf in set(self.leaves.values()) if draw() < BAD_LEAVES}
        ways = [frozenset(pair) for pair in (("l0", "l1"), ("l0", "l2"), ("l1", "l2"))]
        self.bad_ways = {way for way in ways if draw() < BAD_WAYS}
        self.certified = {name: draw() < 0.8 for name in self.leaves}

    def test(self, one: str, other: str) -> Passed:
        if self.chance.random() < self.refusals:
            return Passed.ERROR
        leaves = {self.leaves[one], self.leaves[other]}
        broken = {one, other} & self.bad or leaves & self.bad_leaves or frozenset(leaves) in self.bad_ways
        return Passed.NO if broken else Passed.YES

    def judge(self, node: str) -> tuple[Ended, list[Met]]:
        others = [name for name in self.leaves if name != node]
        self.chance.shuffle(others)
        met: list[Met] = []
        controls: list[Control] = []
        nobody: list[bool] = []
        for _ in range(MOST_STEPS):
            match next_step(met, controls, 2, nobody):
                case Ended() as ended:
                    return ended, met
                case AskControl(one, other):
                    controls.append(Control(one, other, self.test(one, other)))
                case Ask(near):
                    found = next((n for n in others if (self.leaves[n] == self.leaves[node]) is near), None)
                    if found is None:
                        nobody.append(near)
                        continue
                    others.remove(found)
                    met.append(Met(found, near, self.certified[found], self.test(node, found)))
        raise AssertionError(f"no end after {MOST_STEPS} steps: {met}")


def seeds() -> list[int]:
    return [random.randrange(2**40) for _ in range(SEEDS)]


def test_only_a_bad_node_is_convicted_and_by_two_certified_partners() -> None:
    convicted = cleared = 0
    for seed in seeds():
        truth = Truth(random.Random(seed), refusals=ERRORS)
        node = truth.chance.choice(sorted(truth.leaves))
        ended, met = truth.judge(node)
        if ended.verdict is Verdict.FAIL:
            convicted += 1
            assert node in truth.bad, f"seed {seed}: {ended}"
            assert len({one.partner for one in met if one.certified and one.passed is Passed.NO}) >= 2, f"seed {seed}"
        elif ended.verdict is Verdict.PASS:
            cleared += 1
            assert node not in truth.bad, f"seed {seed}: {ended}"
            assert len(ended.agree) >= 2, f"seed {seed}"
            assert {one.near for one in met if one.passed is Passed.YES} == {True, False}, f"seed {seed}"
    assert convicted > SEEDS / 50
    assert cleared > SEEDS / 5


def test_a_bad_node_among_good_ones_is_always_convicted() -> None:
    for seed in seeds()[:300]:
        truth = Truth(random.Random(seed))
        truth.bad, truth.bad_leaves, truth.bad_ways = {"n5"}, set(), set()
        truth.certified = dict.fromkeys(truth.leaves, True)
        assert truth.judge("n5")[0].verdict is Verdict.FAIL, f"seed {seed}"
        assert truth.judge("n6")[0].verdict is Verdict.PASS, f"seed {seed}"


ALL_WAYS = (("l0", "l1"), ("l0", "l2"), ("l1", "l2"))


@pytest.mark.parametrize(
    "broken",
    [lambda truth: truth.bad_leaves.add("l1"), lambda truth: truth.bad_ways.update(map(frozenset, ALL_WAYS))],
    ids=["a leaf", "every way between leaves"],
)
def test_a_common_cause_is_an_incident_and_convicts_nobody(broken: Callable[[Truth], None]) -> None:
    for seed in seeds()[:100]:
        truth = Truth(random.Random(seed))
        truth.bad, truth.bad_leaves, truth.bad_ways = set(), set(), set()
        truth.certified = dict.fromkeys(truth.leaves, True)
        broken(truth)
        ended, _ = truth.judge("n5")
        assert ended.verdict is Verdict.UNJUDGED, f"seed {seed}: {ended}"
        assert ended.incident, f"seed {seed}: {ended}"


@pytest.mark.parametrize("partners", [0, 1])
def test_fewer_than_two_partners_are_neither_a_pass_nor_a_fail(partners: int) -> None:
    met = [Met("b", True, True, passed) for passed in (Passed.NO,)][:partners]
    for passed in (Passed.YES, Passed.NO, Passed.ERROR):
        had = [one._replace(passed=passed) for one in met]
        ended = next_step(had, (), 2, (True, False))
        assert isinstance(ended, Ended)
        assert ended.verdict is Verdict.UNJUDGED
        assert "needs partners" in ended.why


def test_partners_without_a_certificate_convict_nobody() -> None:
    met = [Met(name, near, False, Passed.NO) for name, near in (("b", True), ("c", False), ("d", True), ("e", False))]
    ended = next_step(met, (), 2)
    assert isinstance(ended, Ended)
    assert ended.verdict is Verdict.UNJUDGED
    assert "no valid certificate" in ended.why


def test_partners_behind_other_leaves_alone_convict_no_node() -> None:
    met = [Met(name, False, True, Passed.NO) for name in "bcde"]
    ended = next_step(met, (), 2, (True,))
    assert isinstance(ended, Ended)
    assert (ended.verdict, ended.incident) == (Verdict.UNJUDGED, True)
    assert "the node or its leaf" in ended.why
