"""A node against its peers and against itself: both figures have to hold, and under ten peers there is no cohort."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.gate.asked import asked_tests, text_of
from reconciler.gate.certificate import judge_test
from reconciler.gate.cohort import distribution, limit, notes, peerless_sentence, references, with_driver, without_peers
from reconciler.gate.results import key_of
from reconciler.model.desired import Acceptance, Cohort, Desired, GatePhase, GateTest, Peers, Threshold
from reconciler.model.documents import dump, load
from reconciler.model.gate import Certificate, TestResult, Verdict
from reconciler.model.reference import Reference
from tests import builders as b
from tests.gate.cases import gate_test


def asked(n: int = 42, median: float = 480.0, mad: float = 2.0, *, least: float | None = 440.0) -> GateTest:
    cohort = Cohort(0.03, 3.5, (Peers("2.13", n, median, mad),))
    return replace(gate_test("nccl-tests"), thresholds=(Threshold("busbw_peak", min=least, cohort=cohort),))


def measured(value: float, version: str = "2.13", name: str = "nccl-tests") -> TestResult:
    return TestResult(name, "nccl-tests", Verdict.PASS, (), {"busbw_peak": value}, version)


@pytest.mark.parametrize(
    ("value", "mad", "verdict"),
    [
        (481.0, 2.0, Verdict.PASS),
        (470.0, 0.5, Verdict.PASS),  # 2.1 % below, and a score of -13: equal peers make it huge
        (464.0, 6.0, Verdict.PASS),  # 3.3 % below, and a score of -1.8: they differ that much
        (460.0, 2.0, Verdict.FAIL),  # 4.2 % below, and a score of -6.7
        (460.0, 0.0, Verdict.FAIL),  # peers that don't differ at all
        (470.0, 0.0, Verdict.PASS),
        (439.0, 60.0, Verdict.FAIL),  # `min` alone
    ],
)
def test_both_figures_have_to_hold(value: float, mad: float, verdict: Verdict) -> None:
    assert judge_test(asked(mad=mad), measured(value))[0] is verdict


def test_the_verdict_says_by_how_much() -> None:
    why = judge_test(asked(), measured(460.0))[1]
    assert why == ("nccl-tests: busbw_peak 460 is 4.2% below the median 480 of its 42 peers (modified z -6.7)",)


@pytest.mark.parametrize(
    ("n", "version", "count"),
    [
        (9, "2.13", "9 peers with nccl-tests 2.13"),
        (42, "2.14", "0 peers with nccl-tests 2.14 (42 have 2.13)"),
        (
            42, "2.13-conf.1a2b3c4d",
            "0 peers with nccl-tests 2.13-conf.1a2b3c4d (42 have 2.13; -conf. is what its nodes set for NCCL)",
        ),
    ],
)  # fmt: skip
def test_under_ten_peers_min_alone_decides_and_that_is_said(n: int, version: str, count: str) -> None:
    test, result = asked(n), measured(445.0, version)
    assert judge_test(test, result)[0] is Verdict.PASS
    assert judge_test(test, measured(439.0, version))[0] is Verdict.FAIL
    said = f"nccl-tests: busbw_peak: min and max alone decide, as there are {count}"
    assert notes(test, result) == (said,)
    assert notes(asked(10), measured(445.0)) == ()
    assert notes(test, None) == ()


@given(
    st.floats(1, 1e4), st.floats(0, 100), st.floats(0.001, 0.5), st.floats(0.1, 10), st.floats(0, 2e4),
    st.integers(0, 100),
)  # fmt: skip
def test_the_limit_is_where_both_figures_begin_to_hold(
    median: float, mad: float, below: float, score: float, value: float, n: int
) -> None:
    least = limit(Cohort(below, score, (Peers("1", n, median, mad),)), "1")
    if n < 10:
        assert least is None
        return
    assert least is not None
    apart = min(abs(value - median * (1 - below)), abs(value - (median - score * mad / 0.6745)))
    if apart > 1e-6 * median:
        far = value < median * (1 - below) and 0.6745 * (median - value) > score * mad
        assert (value < least) is far


def test_a_new_reference_is_a_change_of_the_test() -> None:
    """So waves, guards and the what-if of a pull request know of it."""
    acceptance = Acceptance("gate", (GatePhase("burn", (asked(),)),), None)
    other = Acceptance("gate", (GatePhase("burn", (asked(median=500.0),)),), None)
    assert asked_tests(acceptance) != asked_tests(other)
    assert text_of(asked()) == (
        "nccl-tests, busbw_peak >= 440, busbw_peak within 3% and modified z 3.5 of its peers, >= 465.6 by 42 with 2.13"
    )


def test_the_figures_of_a_distribution() -> None:
    found = distribution([480.0, 481.0, 482.0, 483.0, 400.0])
    assert (found.n, found.median, found.mad) == (5, 481.0, 1.0)
    assert found.p5 == pytest.approx(416.0)


def certificate(value: float, *, version: str = "2.13", **changes: Any) -> Certificate:
    made = b.certificate(b.node(), b.observed())
    return replace(made, results=(measured(value, version),), **changes)


def test_references_are_built_from_what_peers_passed() -> None:
    acceptance = Acceptance("gate", (GatePhase("burn", (asked(),)),), None)
    node = b.node(profile=replace(b.node().profile, acceptance=acceptance))
    other = replace(node, profile=replace(node.profile, inventory=replace(node.profile.inventory, gpus=4)))
    failed = replace(measured(100.0), verdict=Verdict.FAIL)
    certified = [(node, certificate(value)) for value in (480.0, 482.0, 484.0)]
    certified += [
        (other, certificate(300.0)),
        (node, certificate(500.0, version="2.14")),
        (node, certificate(1.0, adopted=True)),
        (node, replace(certificate(0.0), results=(failed,))),
    ]
    found = references(certified)
    figures = {(one.tool_version, one.metrics["busbw_peak"].n, one.metrics["busbw_peak"].median) for one in found}
    assert figures == {("2.13", 1, 300.0), ("2.13", 3, 482.0), ("2.14", 1, 500.0)}
    for one in found:
        assert load(Reference, dump(one)) == one


def test_nodes_whose_bars_by_peers_do_not_count_are_told_once_by_reason() -> None:
    acceptance = Acceptance("gate", (GatePhase("burn", (asked(),)),), None)
    profile = replace(b.node().profile, acceptance=acceptance)
    own = "2.13-conf.1a2b3c4d"
    nodes: list[tuple[Desired, Certificate | None]]
    nodes = [(b.node(f"n{at}", profile=profile), certificate(480.0, version=own)) for at in range(7)]
    nodes += [(b.node("n7", profile=profile), certificate(480.0)), (b.node("n8", profile=profile), None)]
    nodes.append((b.node("n9"), certificate(480.0, version=own)))
    (found,) = without_peers(nodes)
    assert found.nodes == tuple(f"n{at}" for at in range(7))
    told = peerless_sentence(found)
    assert told.startswith(
        f"nccl-tests: busbw_peak: min and max alone decide, as there are 0 peers with nccl-tests {own}"
    )
    assert told.endswith(": n0, n1, n2, n3, n4 and 2 more")


def of_group(value: float, nodes: float) -> TestResult:
    return replace(measured(value), metrics={"busbw_peak": value, "nodes": nodes})


def test_half_a_group_has_no_peers_in_those_who_measured_in_a_whole_one() -> None:
    test = replace(asked(), args={"group": 8})
    assert judge_test(test, of_group(460.0, 8.0))[0] is Verdict.FAIL
    assert notes(test, of_group(460.0, 8.0)) == ()

    assert judge_test(test, of_group(460.0, 4.0))[0] is Verdict.PASS
    assert judge_test(test, of_group(439.0, 4.0))[0] is Verdict.FAIL, "`min` holds for it, too"
    said = "nccl-tests: busbw_peak: min and max alone decide, as it was measured with 4 nodes in place of 8"
    assert notes(test, of_group(460.0, 4.0)) == (said,)


def test_a_metric_of_a_test_without_a_group_may_have_the_name_of_the_count() -> None:
    """A command's: it says nothing of how many nodes a test was measured with."""
    assert judge_test(asked(), of_group(460.0, 3.0))[0] is Verdict.FAIL
    assert notes(asked(), of_group(460.0, 3.0)) == ()


def test_references_are_of_whole_groups_and_of_no_counts() -> None:
    test = replace(asked(), args={"group": 8})
    node = b.node(profile=replace(b.node().profile, acceptance=Acceptance("gate", (GatePhase("burn", (test,)),), None)))
    certified = [
        (node, replace(certificate(0.0), results=(of_group(value, nodes),)))
        for value, nodes in ((480.0, 8.0), (482.0, 8.0), (600.0, 4.0), (700.0, 2.0))
    ]
    (found,) = references(certified)
    assert {name: (one.n, one.median) for name, one in found.metrics.items()} == {"busbw_peak": (2, 481.0)}


def test_the_key_of_half_a_group_is_that_of_a_group_of_its_size() -> None:
    node, eight, four = b.node(), {"group": 8, "scope": "leaf"}, {"group": 4, "scope": "leaf"}
    assert key_of(node, of_group(600.0, 4.0), eight) == key_of(node, of_group(600.0, 4.0), four)
    assert key_of(node, of_group(480.0, 8.0), eight) == key_of(node, measured(480.0), eight)
    assert key_of(node, of_group(480.0, 8.0), eight) != key_of(node, of_group(600.0, 4.0), eight)


def test_a_driver_that_no_image_tells_is_part_of_what_peers_have_in_common() -> None:
    told = b.node()
    assert told.profile.image is not None
    assert "driver" in told.profile.image.contents
    bare = b.node(profile=b.profile(image=replace(told.profile.image, contents={})))
    seen = b.observed(host=b.facts(driver="570.1"))
    assert with_driver(measured(460.0), told, seen).tool_version == "2.13", "those of an image have its driver"
    result = with_driver(measured(460.0), bare, seen)
    assert result.tool_version == "2.13-driver.570.1"
    assert with_driver(measured(460.0), b.node(profile=b.profile(image=None)), seen) == result
    assert with_driver(measured(460.0), bare, b.observed(host=b.facts(driver=None))).tool_version == "2.13"
    of_cpus = replace(measured(460.0), tool="hpcc")
    assert with_driver(of_cpus, bare, seen) == of_cpus


def test_peers_have_the_same_driver_or_are_of_a_reference_that_tells_none() -> None:
    def bar(*versions: str) -> GateTest:
        peers = tuple(
            Peers(version, 42, median, 2.0) for version, median in zip(versions, (480.0, 465.0), strict=False)
        )
        cohort = Cohort(0.03, 3.5, peers)
        return replace(gate_test("nccl-tests"), thresholds=(Threshold("busbw_peak", min=440.0, cohort=cohort),))

    mine = measured(455.0, "2.13-driver.570.1")
    assert judge_test(bar("2.13-driver.560.0", "2.13-driver.570.1"), mine)[0] is Verdict.PASS
    assert judge_test(bar("2.13-driver.570.1"), mine)[0] is Verdict.FAIL
    assert judge_test(bar("2.13"), mine)[0] is Verdict.FAIL, "of an earlier version, which told no driver"
    other = bar("2.13-driver.560.0")
    assert judge_test(other, mine)[0] is Verdict.PASS
    assert "0 peers with nccl-tests 2.13-driver.570.1 (42 have 2.13-driver.560.0)" in notes(other, mine)[0]
