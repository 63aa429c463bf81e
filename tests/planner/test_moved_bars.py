"""The what-if of moved bars says what the gate's own judge says, and counts every node once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.gate.certificate import judge_test
from reconciler.model import desired as d
from reconciler.model.bars import MovedBar, NewTest
from reconciler.model.errors import Position
from reconciler.model.gate import Certificate, Verdict
from reconciler.model.observed import Observation
from reconciler.model.records import NodeRecord
from reconciler.planner.fleet.moved_bars import moved_bars
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render import bars as words
from tests import builders as b
from tests.planner.test_change import fleet

PLACE = Position("acceptance.yaml", 12, 9)
TEST = d.GateTest("nccl", "nccl-tests", {}, (), 600.0)


def profile(*bars: d.Threshold, **test: Any) -> d.Profile:
    phases = (d.GatePhase("burn", (replace(TEST, thresholds=bars, **test),)),)
    provenance = {"acceptance.phases.0.tests.0.thresholds.0": PLACE, "acceptance.phases.0.tests.0": PLACE}
    said = d.Acceptance("gate", phases, None)
    return replace(b.PROFILE, digest=repr((bars, test)), acceptance=said, provenance=provenance)


def least(value: float, *peers: d.Peers) -> d.Threshold:
    return d.Threshold("busbw_peak", min=value, cohort=d.Cohort(0.03, 3.5, peers) if peers else None)


def certified(values: Mapping[str, float | None], before: d.Profile, version: str = "2.13") -> dict[str, NodeRecord]:
    """None: the node was adopted, so nothing of it was measured."""
    bare = b.certificate(b.node(profile=before), b.observed())

    def certificate(name: str, value: float | None) -> Certificate:
        if value is None:
            return replace(bare, node=name, adopted=True, results=())
        [result] = bare.results
        result = replace(result, metrics={**result.metrics, "busbw_peak": value}, tool_version=version)
        return replace(bare, node=name, results=(result,))

    return {name: NodeRecord(name, certificate=certificate(name, value)) for name, value in values.items()}


def moved(
    before: d.Profile,
    after: d.Profile,
    values: Mapping[str, float | None],
    records: Mapping[str, NodeRecord] | None = None,
) -> tuple[Sequence[MovedBar], Sequence[NewTest]]:
    base, head = (fleet(*(b.node(name, profile=each) for name in values)) for each in (before, after))
    return moved_bars(base, head, values, records or certified(values, before), lambda _: 1.5)


BARS = st.builds(
    lambda low, high, peers: d.Threshold("busbw_peak", low, high, peers and d.Cohort(0.03, 3.5, (peers,))),
    st.none() | st.integers(440, 480), st.none() | st.integers(470, 500),
    st.none() | st.builds(d.Peers, st.just("2.13"), st.sampled_from([9, 10]), st.integers(450, 490), st.integers(0, 5)),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(BARS, BARS, st.lists(st.none() | st.integers(430, 510).map(float), min_size=1, max_size=12))
def test_it_says_what_the_judge_says(old: d.Threshold, new: d.Threshold, found: list[float | None]) -> None:
    values = {f"n{at:02d}": value for at, value in enumerate(found)}
    before, after = profile(old), profile(new)
    records = certified(values, before)
    bars, tests = moved(before, after, values, records)
    assert not tests
    if old == new:
        assert not bars
        return
    [bar] = bars
    assert after.acceptance is not None
    assert before.acceptance is not None
    tests_at = [each.acceptance.phases[0].tests[0] for each in (before, after) if each.acceptance is not None]
    judged = {}
    for name, record in records.items():
        assert record.certificate is not None
        if not record.certificate.adopted:
            judged[name] = tuple(judge_test(test, record.certificate.results[0])[0] for test in tests_at)
    assert {one.node for one in bar.below} == {n for n, both in judged.items() if both == (Verdict.PASS, Verdict.FAIL)}
    assert {one.node for one in bar.admitted} == {
        n for n, both in judged.items() if both == (Verdict.FAIL, Verdict.PASS)
    }
    assert all(one.share > 0 for one in (*bar.below, *bar.admitted))
    assert [one.share for one in bar.below] == sorted((one.share for one in bar.below), reverse=True)
    assert set(bar.unmeasured) == set(values) - set(judged)
    assert len(bar.below) + len(bar.admitted) + bar.kept == len(judged)
    assert sum(sum(spread.histogram.counts) for spread in bar.spreads) == len(judged)
    for spread in bar.spreads:
        lines = words.figure(bar, spread)
        assert max(map(len, lines)) <= 110
        for at, text in words.limit_words(spread.after):
            assert sum(text in line for line in lines[1:]) >= 1, (at, lines)


def test_a_raised_bar_costs_what_its_formula_says() -> None:
    values = {"a": 431.0, "b": 455.0, "c": 480.0, "d": None}
    [bar], _ = moved(profile(least(430.0)), profile(least(460.0)), values)
    assert [(one.node, one.value, one.limit, round(one.share, 4)) for one in bar.below] == [
        ("a", 431.0, 460.0, 0.063), ("b", 455.0, 460.0, 0.0109),
    ]  # fmt: skip
    assert (bar.kept, bar.unmeasured, bar.gpus, bar.gpu_hours) == (1, ("d",), 4, 3.0)
    assert (bar.before, bar.after, bar.place, bar.unit) == ((">= 430",), (">= 460",), str(PLACE), "GB/s")
    assert words.cost(bar).startswith("GPU-hours: 2 nodes with 4 GPUs x the plan's estimated hours")
    assert "4 GPUs x 24 h = 96 for each day" in words.cost(bar)


def test_a_lowered_bar_names_who_passes_now() -> None:
    [bar], _ = moved(profile(least(460.0)), profile(least(440.0)), {"a": 431.0, "b": 455.0, "c": 480.0})
    assert ([one.node for one in bar.admitted], bar.below, bar.kept) == (["b"], (), 2)
    assert ("was refused, passes now", "1", "b 455 GB/s (1.1% below 460)") in list(words.rows(bar))
    assert words.cost(bar) == ""


def test_a_new_reference_is_a_moved_bar_and_its_figures_are_named() -> None:
    """Peers of another version of the tool are no peers, so each version has a figure of its own."""
    before, after = (profile(least(400.0, d.Peers("2.13", 40, median, 2.0))) for median in (470.0, 490.0))
    records = certified({"a": 470.0, "b": 489.0}, before) | certified({"c": 470.0}, before, "2.14")
    [bar], _ = moved(before, after, {"a": 0, "b": 0, "c": 0}, records)
    assert [(one.node, round(one.limit, 1)) for one in bar.below] == [("a", 475.3)]
    assert "within 3% and modified z 3.5 of its peers, >= 475.3 by 40 with 2.13" in words.title(bar)
    assert {spread.tool_version: sum(spread.histogram.counts) for spread in bar.spreads} == {"2.13": 2, "2.14": 1}


@pytest.mark.parametrize("change", [{"args": {"minBytes": "8G"}}, {"name": "other"}])
def test_another_test_needs_a_run(change: dict[str, Any]) -> None:
    bars, [test] = moved(profile(least(430.0)), profile(least(430.0), **change), {"a": 431.0, "b": 455.0})
    assert not bars
    assert (test.nodes, test.gpus, test.timeout_s, test.gpu_hours) == (("a", "b"), 4, 600.0, 4 * 600 / 3600)


def test_what_an_earlier_form_of_the_test_measured_is_no_metric_of_it() -> None:
    records = certified({"a": 431.0}, profile(least(430.0), args={"minBytes": "8G"}))
    [bar], _ = moved(profile(least(430.0)), profile(least(460.0)), {"a": 431.0}, records)
    assert (bar.below, bar.unmeasured) == ((), ("a",))


def test_thousands_of_nodes_are_told_in_a_few_lines() -> None:
    values = {f"gpu-{at:05d}": 450.0 + (at * 7919 % 1000) / 25 for at in range(2_000)}
    [bar], _ = moved(profile(least(430.0)), profile(least(460.0)), values)
    assert len(bar.below) == 500
    [below, *_] = words.rows(bar)
    assert str(below[2]).count("gpu-") == words.WORST
    assert str(below[2]).endswith(" and 495 more")
    lines = words.figure(bar, bar.spreads[0])
    assert len(lines) < 30
    assert max(map(len, lines)) <= 110


def test_a_plan_says_on_which_nodes_peers_do_not_count_and_why() -> None:
    profiled = profile(least(440.0, d.Peers("2.13", 42, 480.0, 2.0)))
    own = fleet(*(b.node(name, profile=profiled) for name in ("n0", "n1")))
    records = certified({"n0": 480.0}, profiled) | certified({"n1": 480.0}, profiled, "2.13-conf.1a2b3c4d")
    seen = Observation("1.0", "test", "", b.NOW, b.NOW, {name: b.observed(name) for name in own.nodes})
    request = PlanRequest("p", b.CONTEXT.signatures)
    notes = plan_fleet(own, seen, LedgerSnapshot(b.LEDGER, records), b.NOW, request).notes
    assert [note for note in notes if "peers" in note] == [
        "nccl: busbw_peak: min and max alone decide, as there are 0 peers with nccl-tests 2.13-conf.1a2b3c4d "
        "(42 have 2.13; -conf. is what its nodes set for NCCL): n1"
    ]
