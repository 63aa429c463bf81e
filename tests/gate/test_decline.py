"""Gray decline: a node against what it measured itself when it first passed, through all gates in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from reconciler.app.drift_report import drift_report
from reconciler.gate.certificate import compose
from reconciler.gate.decline import declines, first_results, sentence
from reconciler.model.desired import Acceptance, Cohort, GatePhase, IgnoreRule, Peers, Threshold
from reconciler.model.documents import dump, load
from reconciler.model.drift import DriftClass
from reconciler.model.gate import Certificate
from reconciler.model.period_report import Past
from reconciler.model.vocab import Concern
from reconciler.planner.fleet.period_report import period_report
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render import drift, plan
from reconciler.render import period_report as period
from reconciler.render.comment import as_markdown
from tests import builders as b
from tests.gate.cases import gate_test
from tests.gate.test_cohort import asked, certificate, measured
from tests.planner.test_change import fleet, pass_over

ACCEPTANCE = Acceptance("gate", (GatePhase("burn", (asked(),)),), None)
FIRST = certificate(490.0)
OLD = replace(FIRST, issued_at=FIRST.issued_at - timedelta(days=90))
NODE = b.node(profile=replace(b.PROFILE, acceptance=ACCEPTANCE))


def later(
    value: float, known: Certificate, days: int = 90, acceptance: Acceptance = ACCEPTANCE, **how: Any
) -> Certificate:
    made = certificate(value, issued_at=FIRST.issued_at + timedelta(days=days), **how)
    return replace(made, first=first_results(made, known, acceptance))


def told(made: Certificate, acceptance: Acceptance = ACCEPTANCE) -> list[str]:
    return [sentence(one) for one in declines(made, acceptance)]


def test_gray_decline_is_told_against_a_nodes_own_first_certificate() -> None:
    assert told(FIRST) == []
    assert told(later(485.0, FIRST)) == []
    [said] = told(later(470.0, FIRST))
    assert said.endswith("and is 470, 4.1% less")
    assert told(later(470.0, FIRST, version="2.14")) == []
    other = replace(FIRST.binding, image_sha256="f" * 64)
    assert told(later(470.0, FIRST, binding=other)) == []
    changed = replace(FIRST.binding, tests={"nccl-tests": "another size"})
    assert told(later(470.0, FIRST, binding=changed)) == []


def test_the_first_result_is_kept_through_every_gate() -> None:
    """Each gate loses 1 %, so none is far from the one before it."""
    made = FIRST
    for at, value in enumerate((486.0, 482.0, 478.0, 474.0), 1):
        made = load(Certificate, dump(later(value, made, at)), name="certificate")
    [one] = declines(made, ACCEPTANCE)
    assert (one.first, one.at, one.now, one.unit) == (490.0, FIRST.issued_at, 474.0, "GB/s")
    again = later(480.0, later(485.0, made, 6, version="2.14"), 7, version="2.14")
    assert told(again) == [], "with another version of the tool it begins anew"
    assert [one.at for one in again.first] == [FIRST.issued_at + timedelta(days=6)]


def test_a_failure_is_nothing_to_compare_with_and_loses_nothing() -> None:
    below = later(300.0, FIRST, 1)
    assert below.first == first_results(below, FIRST, ACCEPTANCE)
    assert later(480.0, replace(below, first=()), 2).first == ()
    not_run = replace(certificate(0.0), results=(), first=below.first)
    [one] = declines(later(470.0, not_run, 3), ACCEPTANCE)
    assert one.at == FIRST.issued_at, "a test that a failure before it kept from running keeps its first result"
    adopted = replace(FIRST, adopted=True)
    assert later(470.0, adopted).first == ()


def test_a_result_that_stands_is_compared_by_its_own_gate() -> None:
    """A composed certificate has results of several gates: the later one did not measure this test."""
    drives = gate_test("fio")
    both = replace(ACCEPTANCE, phases=(GatePhase("burn", (asked(), drives)),))
    old = replace(FIRST, results=(measured(490.0), replace(measured(1.0, name="fio"), tool="fio")))
    made = replace(later(0.0, old, 5), results=(measured(470.0),))
    made = compose(made, old, {"fio"})
    made = replace(made, first=first_results(made, old, both))
    assert [one.test for one in made.first] == ["nccl-tests"], "what stands is its own first result"


def test_only_metrics_with_a_lower_limit_decline() -> None:
    by_peers = Cohort(0.03, 3.5, (Peers("2.13", 3, 480.0, 2.0),))
    for bar, expected in (
        (Threshold("busbw_peak", min=1.0), 1),
        (Threshold("busbw_peak", max=1000.0, cohort=by_peers), 1),
        (Threshold("busbw_peak", max=1000.0), 0),
    ):
        acceptance = replace(ACCEPTANCE, phases=(GatePhase("burn", (replace(asked(), thresholds=(bar,)),)),))
        assert len(told(later(470.0, FIRST, acceptance=acceptance), acceptance)) == expected


def test_a_plan_reports_it_and_does_nothing_about_it() -> None:
    [well, ill] = [
        b.planner().plan(NODE, b.observed(), b.record(NODE, certificate=later(value, OLD, 0)))
        for value in (490.0, 470.0)
    ]
    found = [item for item in ill.drift if item not in well.drift]
    assert [(item.path, item.concern, item.kind) for item in found] == [
        ("health.gray_decline_nccl-tests.busbw_peak", Concern.HEALTH, DriftClass.REPORTED)
    ]
    assert found[0].observed == "470 GB/s, 4.1% less than the 490 GB/s when it first passed"
    assert (ill.actions, ill.goal, ill.blocked) == (well.actions, well.goal, well.blocked)
    assert not ill.illness


def test_an_ignore_rule_covers_it() -> None:
    record = b.record(NODE, certificate=later(470.0, OLD, 0))
    rule = IgnoreRule("health.gray_decline_*", "the room is warm")
    [item] = [one for one in b.planner((rule,)).plan(NODE, b.observed(), record).drift if "gray" in one.path]
    assert (item.kind, item.detail) == (DriftClass.IGNORED, "the room is warm")


def test_every_report_shows_it() -> None:
    record = b.record(NODE, certificate=later(470.0, OLD, 0))
    observation = pass_over({NODE.node: b.observed()})
    snapshot = LedgerSnapshot(b.LEDGER, {NODE.node: record})
    made = plan_fleet(fleet(NODE), observation, snapshot, b.NOW, PlanRequest("p", b.CONTEXT.signatures))
    shown = "470 GB/s, 4.1% less than the 490 GB/s when it first passed"
    for document in (made, drift_report(made, observation)):
        assert shown in as_markdown(document).replace("\\", "")
    assert shown in plan.human(made)
    assert shown in drift.human(drift_report(made, observation))
    past = period_report(
        Past(),
        "test",
        [NODE.node],
        b.NOW - timedelta(days=1),
        b.NOW,
        declines=[*declines(record.certificate, ACCEPTANCE)],
    )
    for text in (period.human(past), period.as_markdown(past).replace("\\", "")):
        [row] = [line for line in text.splitlines() if "4.1%" in line]
        assert all(
            word in row for word in ("nccl-tests", "busbw_peak", "490 GB/s", "470 GB/s", f"{OLD.issued_at:%Y-%m-%d}")
        )
