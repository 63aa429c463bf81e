"""A cable between a leaf and a spine is named by flows whose route is known, and no node for it."""

from __future__ import annotations

import random

import pytest

from reconciler.gate.fabric.topology import PartKind
from reconciler.lab.leaf_spine import Broken, FabricFault, LeafSpine
from tests.gate.fabric.trial import play, trial


def lab_of(nodes: int, per_group: int, seed: int) -> LeafSpine:
    lab = LeafSpine.of_size(nodes, random.Random(seed), per_group=per_group)
    lab.by_destination = seed % 2 == 0
    return lab


def test_a_bad_cable_of_one_leaf_and_one_spine_is_named_and_neither_of_them() -> None:
    first, named = random.SystemRandom().randrange(10**9), 0
    for seed in range(first, first + 8):
        lab = lab_of(64, 16, seed)
        lab.faults = [Broken(FabricFault.UPLINK, "g02/s01", 3, 0.3)]
        found = play(lab, by_leaf=True)
        wrong = [one for one in found.diagnosis.convicted if one.part.kind is not PartKind.UPLINK]
        assert wrong == [], f"seed {seed}"
        assert found.innocent == [], f"seed {seed}"
        named += found.named
    assert named >= 7, f"{named} of 8 from seed {first}"


def test_a_link_all_of_whose_flows_take_the_bad_cable_is_not_convicted_for_it() -> None:
    """By the account of n034 alone, its leaf port was: this seed had it convicted beside the cable."""
    lab = lab_of(64, 16, 924499012)
    lab.faults = [Broken(FabricFault.UPLINK, "g02/s01", 3, 0.3)]
    found = play(lab, by_leaf=True)
    assert [one.part.kind for one in found.diagnosis.convicted] == [PartKind.UPLINK]
    assert (found.named, found.innocent) == (True, [])


def test_a_link_that_is_twice_low_by_chance_behind_its_own_leaf_is_not_convicted_for_the_cable() -> None:
    """19 of its 34 runs were low: 17 that the cable explains, and two with a node behind the same leaf."""
    found = trial(109698043043, 512, "uplink")
    assert [one.part.kind for one in found.diagnosis.convicted] == [PartKind.UPLINK]
    assert "n173" in found.diagnosis.undecided
    assert (found.named, found.innocent) == (True, [])


def test_a_bad_link_is_convicted_beside_a_bad_cable() -> None:
    lab = lab_of(64, 16, 7)
    lab.faults = [Broken(FabricFault.UPLINK, "g02/s01", 3, 0.3), Broken(FabricFault.CABLE, "n005", 3, 0.4)]
    found = play(lab, by_leaf=True)
    assert {one.part.kind for one in found.diagnosis.convicted} == {PartKind.UPLINK, PartKind.CABLE}
    assert found.innocent == []


@pytest.mark.parametrize("inbound", [True, False], ids=["down", "up"])
def test_of_a_cable_that_is_bad_one_way_the_way_is_told(inbound: bool) -> None:
    """Among all flows of the cable, those of the other way hide it: the more, the longer the search takes."""
    first, named = random.SystemRandom().randrange(10**9), 0
    for seed in range(first, first + 4):
        lab = lab_of(96, 16, seed)
        lab.faults = [Broken(FabricFault.UPLINK_PORT, "g02/s01", 3, 0.3, inbound=inbound)]
        found = play(lab, by_leaf=True)
        assert found.innocent == [], f"seed {seed}"
        told = [one.detail for one in found.diagnosis.convicted]
        assert all(("down to the leaf" if inbound else "up to the spine") in detail for detail in told), (seed, told)
        named += found.named
    assert named >= 3, f"{named} of 4 from seed {first}"


@pytest.mark.parametrize("nodes", [8, 64])
def test_the_scene_of_bad_uplinks_names_the_cable_and_nothing_else(nodes: int) -> None:
    """Of eight nodes a single one is reached through each cable: its runs behind its own leaf clear it."""
    first, named = random.SystemRandom().randrange(10**9), 0
    for seed in range(first, first + 6):
        found = trial(seed, nodes, "uplink")
        assert found.wronged == [], f"seed {seed}"
        assert found.rounds <= found.most_rounds, f"seed {seed}"
        named += found.named
    assert named >= 5, f"{named} of 6 from seed {first}"


def test_of_two_leaves_both_cables_are_named_as_nothing_tells_them_apart() -> None:
    lab = lab_of(16, 8, 1)
    lab.faults = [Broken(FabricFault.UPLINK, "g00/s01", 3, 0.3)]
    found = play(lab, by_leaf=True).diagnosis
    assert [str(one.part) for one in found.convicted] == ["cable between leaf and spine g00/s01 or g01/s01, rail 3"]


@pytest.mark.parametrize("fault", [Broken(FabricFault.SPINE, "s01"), Broken(FabricFault.CABLE, "n007", 3), None])
def test_what_is_at_fault_elsewhere_is_no_cable_of_a_spine(fault: Broken | None) -> None:
    for seed in range(4):
        lab = lab_of(64, 16, random.SystemRandom().randrange(10**9) * 2 + seed % 2)
        lab.faults = [fault] if fault else []
        found = play(lab, by_leaf=True).diagnosis
        assert PartKind.UPLINK not in {one.part.kind for one in found.convicted}
