"""A gate that a person asks for: an apply for which earlier certificates don't count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.desired import Acceptance, AskedGate, BudgetLimit, GatePhase, GateTest, Threshold
from reconciler.model.gate import Verdict
from reconciler.model.plan import Goal
from reconciler.model.results import Wanted
from tests.converge.world import QuickGate, World

DEEP = Acceptance(
    "deep", (GatePhase("burn", (GateTest("burn", "link-counters", {}, (Threshold("ports", min=1.0),), 60.0),)),), None
)


def ask(world: World, *names: str, other: Acceptance | None = None) -> ApplyReport:
    own = world.fleet
    asked = AskedGate(world.clock.now(), "ops", other)
    nodes = {name: replace(node, asked=asked if name in names else None) for name, node in own.nodes.items()}
    world.fleet = replace(own, nodes=nodes)
    try:
        return world.apply(selected=names)
    finally:
        world.fleet = own


def actions(report: ApplyReport) -> list[str]:
    return [done.action + (f":{done.target}" if done.target else "") for done in report.executed]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.adopt()
    made.apply()
    return made


def test_a_node_in_service_is_drained_tested_and_comes_back_with_a_new_certificate(world: World) -> None:
    before = world.ledger.node("n1").certificate
    report = ask(world, "n1")
    assert report.results["n1"].state is Ended.DONE, report.results
    assert actions(report) == ["mark", "drain", "run_gate", "admit"]
    after = world.ledger.node("n1").certificate
    assert before is not None
    assert after is not None
    assert after.issued_at > before.issued_at
    assert world.gate.runs == ["n1"]
    rows = list(world.ledger.results(Wanted(("n0", "n1"))))
    assert {(row.node, row.profile, row.verdict) for row in rows} == {("n1", "", "pass")}
    assert world.apply().executed == (), "what was asked for once is done once"


def test_the_tests_of_another_profile_are_recorded_and_certify_nothing(world: World) -> None:
    before = world.ledger.node("n1").certificate
    world.gate.verdicts = {"n1": Verdict.FAIL}
    report = ask(world, "n1", other=DEEP)
    assert report.results["n1"].state is Ended.DONE, report.results
    assert actions(report) == ["mark", "drain", "run_gate:deep"]
    assert report.plan.nodes["n1"].goal is Goal.TESTED
    assert report.plan.nodes["n1"].in_service is False
    assert world.ledger.node("n1").certificate == before
    (run,) = world.ledger.last_gate("n1")
    assert (run.profile, run.test, run.tool, run.verdict) == ("deep", "burn", "link-counters", Verdict.UNJUDGED)
    back = world.apply()
    assert actions(back) == ["admit"], "its own certificate is as valid as before"
    assert back.plan.nodes["n1"].in_service is True


def test_a_second_request_runs_the_other_tests_again(world: World) -> None:
    ask(world, "n1", other=DEEP)
    again = ask(world, "n1", other=DEEP)
    assert actions(again) == ["run_gate:deep"]
    assert world.gate.runs == ["n1", "n1"]


def test_other_tests_are_no_repair_of_a_gate_that_failed(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=1)
    world.adopt()
    world.apply()
    world.gate.verdicts = {"n0": Verdict.FAIL}
    assert ask(world, "n0").results["n0"].state is Ended.FAILED
    world.gate.verdicts = {}
    deep = ask(world, "n0", other=DEEP)
    assert actions(deep) == ["run_gate:deep"], "which may help to find out why"
    for report in (world.apply(), ask(world, "n0")):
        assert report.executed == (), "a failure is not tried again without a repair on record"
        assert report.plan.nodes["n0"].in_service is False


@pytest.mark.parametrize("other", [None, DEEP])
def test_a_held_node_is_left_alone(world: World, other: Acceptance | None) -> None:
    world.ledger.hold("n1", "under test", "ops", None, world.clock.now())
    report = ask(world, "n1", other=other)
    assert report.executed == ()
    assert "under test" in report.results["n1"].detail


def test_gates_by_hand_stay_within_the_budget(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budgets": (BudgetLimit("fleet", "1"),)}
    world = World(tmp_path, settings=settings)
    world.adopt()
    world.apply()
    report = ask(world, "n0", "n1", "n2")
    assert {end.state for end in report.results.values()} == {Ended.DONE}
    out = [(done.action, done.node) for done in report.executed if done.action in ("mark", "admit")]
    assert [action for action, _ in out] == ["mark", "admit"] * 3
    assert isinstance(world.gate, QuickGate)
