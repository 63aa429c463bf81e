"""An approved plan covers a node as long as it needs nothing else, and nothing more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.approval import stale_because
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import NodePlan
from reconciler.model.vocab import Certainty, Concern, Disruption
from tests import builders as b


def plan(**changes: Any) -> NodePlan:
    wrong = b.observed(inventory=b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}))
    made = b.planner().plan(b.node(), wrong, b.record(b.node(), wrong))
    assert b.actions(made) == ["mark", "drain", "set_bios", "soft_restart", "run_gate", "admit"]
    return replace(made, **changes)


def item(path: str, desired: str, kind: DriftClass = DriftClass.DRIFTED) -> DriftItem:
    return DriftItem("gpu-a001", Concern.BIOS, path, kind, desired, "other")


APPROVED = plan()


def test_the_same_plan_is_covered() -> None:
    assert stale_because(APPROVED, plan(), begun=False) == ""


def test_nothing_to_do_is_covered_by_anything() -> None:
    assert stale_because(None, plan(actions=()), begun=False) == ""


def test_a_node_that_the_plan_does_not_know_is_not_covered() -> None:
    assert stale_because(None, APPROVED, begun=False) == "this node is not part of the plan"


@pytest.mark.parametrize("begun", [False, True])
def test_fewer_actions_are_covered(begun: bool) -> None:
    fewer = plan(actions=APPROVED.actions[3:], drift=(), fingerprint="other")
    assert stale_because(APPROVED, fewer, begun=begun) == ""


def test_another_action_is_not_covered() -> None:
    more = plan(actions=(*APPROVED.actions, replace(APPROVED.actions[0], name="reimage")), fingerprint="other")
    assert stale_because(APPROVED, more, begun=True) == "it needs reimage beyond what was approved"


@pytest.mark.parametrize(("begun", "covered"), [(True, True), (False, False)])
def test_what_is_only_supposed_of_a_node_half_way_is_judged_when_it_is_known(begun: bool, covered: bool) -> None:
    """A run died in a boot: the node is silent, and may need this or that besides."""
    supposed = replace(APPROVED.actions[3], name="set_gpu_mode", certainty=Certainty.PREDICTED)
    fresh = plan(actions=(APPROVED.actions[3], supposed), fingerprint="other")
    assert (stale_because(APPROVED, fresh, begun=begun) == "") is covered


@pytest.mark.parametrize(("approved", "covered"), [("reimage", True), ("power_cycle", True), ("soft_restart", False)])
def test_a_restart_is_covered_by_one_that_does_at_least_as_much(approved: str, covered: bool) -> None:
    """An approved reimage proved needless; what it was to bring in with its power cycle still needs one."""
    restart = replace(APPROVED.actions[3], name=approved, disruption=Disruption.REIMAGE)
    cycle = replace(APPROVED.actions[3], name="power_cycle", disruption=Disruption.POWER_CYCLE)
    fresh = plan(actions=(cycle,), fingerprint="other")
    assert (stale_because(plan(actions=(restart,)), fresh, begun=True) == "") is covered


@pytest.mark.parametrize(("approved", "covered"), [("reimage", True), ("power_cycle", True), ("soft_restart", False)])
def test_power_on_is_covered_by_what_turns_power_off_and_on(approved: str, covered: bool) -> None:
    """A run died in between."""
    off_and_on = replace(APPROVED.actions[3], name=approved, disruption=Disruption.REIMAGE)
    on = replace(APPROVED.actions[3], name="power_on", disruption=Disruption.NONE)
    assert (stale_because(plan(actions=(off_and_on,)), plan(actions=(on,), fingerprint="other"), begun=True) == "") is (
        covered
    )


def test_a_node_that_boots_may_take_its_time_to_join_again() -> None:
    """Its host answers, and its kubelet is not Ready yet."""
    join = replace(APPROVED.actions[3], name="join", disruption=Disruption.NONE)
    assert stale_because(APPROVED, plan(actions=(join, *APPROVED.actions[4:]), fingerprint="other"), begun=True) == ""
    without = plan(actions=APPROVED.actions[4:])
    assert "join" in stale_because(without, plan(actions=(join,), fingerprint="other"), begun=True)


def test_higher_disruption_is_not_covered() -> None:
    harder = replace(APPROVED.actions[3], disruption=Disruption.POWER_CYCLE)
    assert stale_because(APPROVED, plan(actions=(harder,), fingerprint="other"), begun=True) == (
        "it needs power_cycle, approved was reboot"
    )


@pytest.mark.parametrize("begun", [False, True])
def test_another_value_is_not_covered(begun: bool) -> None:
    other = plan(drift=(item("bios.SriovGlobalEnable", "Auto"),), fingerprint="other")
    assert "the spec now wants bios.SriovGlobalEnable" in stale_because(APPROVED, other, begun=begun)


@pytest.mark.parametrize("begun", [False, True])
def test_another_input_is_not_covered_whatever_the_fingerprint_says(begun: bool) -> None:
    other = plan(inputs={**APPROVED.inputs, "endpoints.bmc": '"https://10.0.0.66"'}, fingerprint=APPROVED.fingerprint)
    why = stale_because(APPROVED, other, begun=begun)
    assert 'endpoints.bmc: "https://bmc" -> "https://10.0.0.66"' in why
    assert ("left parked" in why) is begun
    shared = stale_because(APPROVED, plan(shared="other"), begun=begun)
    assert "the values that it shares with other nodes" in shared


def test_new_drift_is_covered_only_once_the_plan_s_own_actions_may_have_caused_it() -> None:
    further = plan(drift=(*APPROVED.drift, item("bios.NumaNodesPerSocket", "NPS1")), fingerprint="other")
    assert "bios.NumaNodesPerSocket differs now" in stale_because(APPROVED, further, begun=False)
    assert stale_because(APPROVED, further, begun=True) == ""


def test_what_could_not_be_read_is_no_new_drift() -> None:
    unread = plan(drift=(*APPROVED.drift, item("bios.Other", "1", DriftClass.UNKNOWN)), fingerprint="other")
    assert stale_because(APPROVED, unread, begun=False) == ""


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_rule_kept_the_plan_from_is_not_covered_once_the_rule_is_gone(begun: bool) -> None:
    """The same action would write a second setting, which whoever approved it saw as ignored."""
    quiet = replace(APPROVED, drift=(*APPROVED.drift, item("bios.NumaNodesPerSocket", "NPS1", DriftClass.IGNORED)))
    now = replace(APPROVED, drift=(*APPROVED.drift, item("bios.NumaNodesPerSocket", "NPS1")))
    why = "bios.NumaNodesPerSocket was ignored by a rule when the plan was made, and is not now"
    assert stale_because(quiet, now, begun=begun) == why
    assert stale_because(quiet, quiet, begun=begun) == ""
    assert stale_because(now, quiet, begun=begun) == "", "what is ignored by now is left out"
