"""Histograms count every value once, between round numbers; limits are the judge's own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.gate.bars import beyond, histogram, limits_of, unit_of
from reconciler.gate.certificate import judge_test
from reconciler.model.bars import Limits
from reconciler.model.desired import Cohort, Peers, Threshold
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.gate_tools import TOOLS
from tests.gate.cases import gate_test

ANY = st.floats(allow_nan=False, allow_infinity=False)
NEAR = st.floats(400, 500)
PEERS = st.builds(Peers, st.just("2.13"), st.integers(8, 12), NEAR, st.floats(0, 9))
COHORTS = st.builds(lambda peers: Cohort(0.03, 3.5, (peers,)), PEERS)
ENDS = st.none() | NEAR
BARS = st.builds(Threshold, st.just("busbw_peak"), min=ENDS, max=ENDS, cohort=st.none() | COHORTS)


@settings(max_examples=60)
@given(st.lists(st.one_of(ANY, NEAR), max_size=40), st.lists(st.one_of(ANY, NEAR), max_size=3))
def test_every_value_is_counted_once_between_its_edges(values: list[float], marks: list[float]) -> None:
    found = histogram(values, marks)
    assert sum(found.counts) == len(values)
    assert len(found.counts) == len(found.edges) + 1
    assert all(low < high for low, high in pairwise(found.edges))
    assert len(found.edges) <= 90
    for (low, high), number in zip(pairwise(found.edges), found.counts[1:-1], strict=True):
        assert number == sum(low <= value < high for value in values)


def test_edges_are_round_and_one_outlier_leaves_the_others_their_bins() -> None:
    values = [470.0 + at / 100 for at in range(1000)] + [3.0]
    found = histogram(values, (460.0,))
    assert found.edges[0] == 460.0
    assert found.counts[0] == 1
    assert all(edge == round(edge, 1) for edge in found.edges)
    assert 8 <= sum(number > 0 for number in histogram(values).counts) <= 22
    assert histogram([8.0] * 12, (8.0,)).counts == (0, 12, 0)
    assert histogram(values, (50.0,)).edges[0] > 400, "a bar far away is below the axis, and is said to be"


@settings(max_examples=150)
@given(st.lists(BARS, min_size=1, max_size=2), NEAR)
def test_a_value_is_beyond_its_limits_exactly_when_the_judge_refuses_it(bars: list[Threshold], value: float) -> None:
    test = replace(gate_test("nccl-tests"), thresholds=tuple(bars))
    result = TestResult("nccl-tests", "nccl-tests", Verdict.PASS, (), {"busbw_peak": value}, "2.13")
    refused = judge_test(test, result)[0] is Verdict.FAIL
    assert (beyond(limits_of(bars, "2.13"), value)[1] > 0) is refused


def test_how_far_it_is_beyond() -> None:
    assert beyond(Limits(440.0, None), 418.0) == (440.0, 0.05)
    assert beyond(Limits(None, 0.0), 3.0) == (0.0, 3.0)
    assert beyond(Limits(10.0, 20.0), 25.0) == (20.0, 0.25)
    assert beyond(Limits(), 25.0) == (0.0, 0.0)


def test_units_are_those_of_the_tools_table() -> None:
    assert unit_of("nccl-tests", "busbw_peak") == "GB/s"
    assert unit_of("perftest", "gbps.mlx5_0") == "Gb/s"
    assert unit_of("perftest", "gbps.spread") == ""
    assert unit_of("command", "mfu") == ""
    assert {
        "nccl-tests",
        "rccl-tests",
        "fio",
        "fio-verify",
        "iperf3",
        "perftest",
        "hpcc",
        "clock",
        "pcie",
    } <= TOOLS.keys()
