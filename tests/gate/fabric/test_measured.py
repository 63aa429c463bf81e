"""Tests over the wire, which tell no spine: what they name all the same, and whom they never convict."""

from __future__ import annotations

import random

import pytest

from reconciler.gate.fabric.measured import alone, bar_of, by_itself, legs, rails_in
from reconciler.gate.fabric.results import Bar
from reconciler.gate.fabric.topology import PartKind
from reconciler.lab.leaf_spine import Broken, FabricFault, LeafSpine
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.gate import TestResult, Verdict
from tests.gate.fabric.trial import play, trial

RDMA = GateTest("rails", "perftest", {"rails": "a, b", "partners": 2}, (Threshold("gbps", min=360.0),), 60.0)
TCP = GateTest(
    "wire", "iperf3", {"partners": 2}, (Threshold("retransmits", max=9.0), Threshold("gbps", min=20.0)), 60.0
)


def result(**metrics: float) -> TestResult:
    named = {name.replace("_", "."): value for name, value in metrics.items()}
    return TestResult("rails", "perftest", Verdict.PASS, (), named)


def seeds(count: int) -> list[int]:
    return [random.randrange(2**40) for _ in range(count)]


@pytest.mark.parametrize("nodes", [8, 16])
@pytest.mark.parametrize("scene", ["none", "one", "flap"])
def test_no_healthy_node_is_convicted_and_every_other_part_than_a_spine_is_named(nodes: int, scene: str) -> None:
    for seed in seeds(6):
        outcome = trial(seed, nodes, scene, routes=False)
        assert outcome.wronged == [], seed
        spine = any(part.kind is PartKind.SPINE for part in outcome.faults)  # told in most seeds: see below
        assert outcome.named or spine or scene == "flap", (seed, outcome.faults)
        assert outcome.rounds <= outcome.most_rounds, seed


@pytest.mark.parametrize("pace", [0.3, 0.6])
def test_a_bad_spine_is_told_as_the_way_between_leaves(pace: float) -> None:
    told = []
    for seed in seeds(10):
        lab = LeafSpine.of_size(8, random.Random(seed))
        lab.faults.append(Broken(FabricFault.SPINE, "s01", pace=pace))
        outcome = play(lab, routes=False)
        assert not [one for one in outcome.diagnosis.convicted if one.part.blames_node], seed
        told.append(any(one.part.kind is PartKind.BETWEEN for one in outcome.diagnosis.convicted))
    assert sum(told) >= 8


def test_a_result_is_read_by_rail_and_way_and_what_is_missing_proves_nothing() -> None:
    there, back = legs(RDMA, result(gbps_a_there=390.0, gbps_a_back=391.0, gbps_b_there=12.0))
    assert (there.bandwidth, back.bandwidth) == ((390.0, 12.0), (391.0, None))
    assert by_itself(RDMA, result(gbps_b=390.0)) == (None, 390.0)
    itself = alone(RDMA)
    assert itself is not None
    assert "partners" not in itself.args


def test_a_test_of_one_rail_has_a_second_that_is_never_low() -> None:
    there, back = legs(TCP, result(gbps_there=23.0, gbps_back=9.0))
    assert rails_in(TCP) == len(there.bandwidth) == 2
    assert (there.bandwidth[0], back.bandwidth[0]) == (23.0, 9.0)
    assert there.bandwidth[1] == back.bandwidth[1] == float("inf")
    assert alone(TCP) is None, "a node's loopback is none of its adapters"
    assert bar_of(TCP) == Bar(20.0)
    assert bar_of(GateTest("wire", "iperf3", {}, (), 60.0)) is None
