"""Bisection names the nodes that spoil a group's test, within 2 log2(N) + 3 rounds, and nobody else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from reconciler.gate.fabric.bisect import Bisection, GroupRun, Passed, bisect

Test = Callable[[frozenset[str]], Passed]


def play(nodes: Sequence[str], test: Test, most: int = 100) -> tuple[Bisection, int]:
    runs: list[GroupRun] = []
    for rounds in range(most):
        found = bisect(nodes, runs)
        if not found.next:
            return found, rounds
        taken = [node for group in found.next for node in group]
        assert len(taken) == len(set(taken)), "a node is in two groups of one round"
        runs += [GroupRun(group, test(group)) for group in found.next]
    raise AssertionError(f"not done after {most} rounds")


def spoiled(*bad: str) -> Test:
    return lambda group: Passed.NO if group & {*bad} else Passed.YES


@pytest.mark.parametrize("size", [8, 64, 512])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_bad_nodes_are_named_in_time(size: int, count: int) -> None:
    first = random.SystemRandom().randrange(10**12)
    for seed in range(first, first + 30):
        chance = random.Random(seed)
        nodes = [f"n{at:03d}" for at in range(size)]
        bad = chance.sample(nodes, count)
        found, rounds = play(nodes, spoiled(*bad))
        assert found.convicted == {*bad}, seed
        assert found.good == {*nodes} - {*bad}, seed
        assert rounds <= 2 * (size.bit_length() - 1) + 3, seed


def test_a_test_that_could_not_run_is_asked_for_again() -> None:
    chance = random.Random(7)
    nodes = [f"n{at:03d}" for at in range(64)]
    found, _ = play(nodes, lambda group: Passed.ERROR if chance.random() < 0.3 else spoiled("n033")(group))
    assert found.convicted == {"n033"}


def test_one_failure_is_chance() -> None:
    seen: set[frozenset[str]] = set()

    def test(group: frozenset[str]) -> Passed:
        first = group not in seen
        seen.add(group)
        return Passed.NO if first and len(group) > 2 else Passed.YES

    found, rounds = play([f"n{at}" for at in range(16)], test)
    assert (found.convicted, rounds) == (frozenset(), 2)


def test_halves_that_pass_apart_and_not_together_convict_nobody() -> None:
    nodes = [f"n{at}" for at in range(16)]
    left = frozenset(nodes[:8])
    found, _ = play(nodes, lambda group: Passed.NO if group & left and group - left else Passed.YES)
    assert found.convicted == frozenset()
    assert found.between == (frozenset(nodes),)


def test_a_fleet_without_a_good_node_convicts_nobody() -> None:
    found, _ = play([f"n{at}" for at in range(8)], lambda _: Passed.NO)
    assert found.convicted == frozenset()
