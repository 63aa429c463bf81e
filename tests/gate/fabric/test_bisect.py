"""Bisection names the nodes that spoil a group's test, within 2 log2(N) + 3 rounds, and nobody else."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from reconciler.gate.fabric.bisect import Bisection, GroupRun, Passed, bisect, bisect_groups

Test = Callable[[frozenset[str]], Passed]


def play(
    nodes: Sequence[str], test: Test, most: int = 100, groups: int = 0, leaves: Mapping[str, str] | None = None
) -> tuple[Bisection, int]:
    """Ask until nothing is left. `groups`: how many there are at the start; 0 for all nodes together."""
    runs: list[GroupRun] = []
    size = len(nodes) // groups if groups else 0
    for rounds in range(most):
        if size:
            parts = [nodes[at : at + size] for at in range(0, len(nodes), size)]
            found = bisect_groups(parts, runs, leaves or {})
        else:
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


LEAVES = {f"n{at:03d}": f"l{at // 8}" for at in range(64)}


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_bad_nodes_of_several_groups_are_named_with_the_good_ones_of_all(count: int) -> None:
    first = random.SystemRandom().randrange(10**12)
    for seed in range(first, first + 300):
        bad = random.Random(seed).sample([*LEAVES], count)
        found, rounds = play([*LEAVES], spoiled(*bad), groups=8, leaves=LEAVES)
        assert found.convicted <= {*bad}, seed
        assert found.convicted | found.suspects >= {*bad}, seed
        assert found.good >= {*LEAVES} - {*bad}, seed
        if count < 3:  # of three bad nodes behind one leaf, each may have no two good neighbours left
            assert found.convicted == {*bad}, seed
        assert rounds <= 2 * 3 + 3 + 2, seed


def test_a_bad_leaf_convicts_none_of_its_nodes() -> None:
    """Each of them fails with good nodes behind other leaves, as often as it is asked."""
    behind = {node for node, leaf in LEAVES.items() if leaf == "l3"}
    for size in (8, 2, 1):
        found, _ = play(
            [*LEAVES], lambda group: Passed.NO if group & behind else Passed.YES, groups=size, leaves=LEAVES
        )
        assert found.convicted == frozenset()
        assert found.suspects == behind
        assert found.good == {*LEAVES} - behind


def test_healthy_nodes_are_never_convicted_by_what_joins_leaves() -> None:
    """What crosses leaves is slow by chance, as where some spines are."""
    first = random.SystemRandom().randrange(10**12)
    for seed in range(first, first + 300):
        chance = random.Random(seed)

        def crossing(group: frozenset[str], chance: random.Random = chance) -> Passed:
            crosses = len({LEAVES[node] for node in group}) > 1
            return Passed.NO if crosses and chance.random() < 0.7 else Passed.YES

        for groups in (1, 4, 8):
            found, _ = play([*LEAVES], crossing, groups=groups, leaves=LEAVES)
            assert found.convicted == frozenset(), seed


def test_a_group_that_can_not_run_at_all_is_halved_and_no_incident() -> None:
    found, _ = play([*LEAVES], lambda group: Passed.ERROR if len(group) > 16 else Passed.YES, groups=1, leaves=LEAVES)
    assert (found.convicted, found.between, found.suspects) == (frozenset(), (), frozenset())
    assert found.good == {*LEAVES}
