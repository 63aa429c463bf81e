"""Conditions that detectors set on node objects, as signals and as the planner takes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.health.ladder import REMEDIATION
from reconciler.health.signals import signals, unread_signals
from reconciler.health.table import Effect
from reconciler.model.desired import IgnoreRule, NodeCondition, Rung
from reconciler.model.drift import DriftClass
from reconciler.model.observed import Observed
from reconciler.model.plan import BlockCode, Goal, NodePlan
from reconciler.model.records import Attempt
from reconciler.model.vocab import Source
from tests import builders as b

POLICY = replace(
    b.REMEDIATION,
    ladder=(Rung("soft_restart", 1), Rung("power_cycle", 1)),
    node_conditions=(NodeCondition("GpuUnhealthy"), NodeCondition("GpuHealthy", "False")),
)
NODE = b.node(profile=b.profile(remediation=POLICY))
RULE = IgnoreRule("health.condition_GpuUnhealthy", "on trial")


def seen(conditions: dict[str, str], ready: str = "True", *, mark: bool = False, **sources: Any) -> Observed:
    found = {"Ready": ready} | conditions
    own = b.member(mark=b.our_mark() if mark else None, ready=ready == "True", conditions=found, pods=())
    return b.observed(member=replace(own, reasons=dict.fromkeys(conditions, "XidError: GPU 3")), **sources)


def plan(found: Observed, *attempts: Attempt, rules: tuple[IgnoreRule, ...] = ()) -> NodePlan:
    record = b.record(NODE, attempts=attempts)
    assert record.certificate is not None
    older = replace(record.certificate, issued_at=b.NOW - timedelta(days=1))
    return b.planner(rules).plan(NODE, found, replace(record, certificate=older))


def treated(action: str, minutes: float, ended: float | None = None) -> Attempt:
    at = b.NOW - timedelta(minutes=minutes)
    return Attempt(action, "", REMEDIATION, at, "done", "", at if ended is None else b.NOW - timedelta(minutes=ended))


def names(conditions: dict[str, str], ready: str = "True") -> list[str]:
    return [signal.name for signal in signals(NODE.profile, seen(conditions, ready))]


def test_a_named_condition_with_its_bad_status_is_a_signal() -> None:
    assert names({"GpuUnhealthy": "True"}) == ["condition_GpuUnhealthy"]
    assert names({"GpuHealthy": "False", "GpuUnhealthy": "True"}) == ["condition_GpuUnhealthy", "condition_GpuHealthy"]
    [signal] = signals(NODE.profile, seen({"GpuUnhealthy": "True"}))
    assert (signal.detail, signal.source) == ("GpuUnhealthy is True (XidError: GPU 3)", Source.KUBERNETES)


@pytest.mark.parametrize(
    "conditions", [{"GpuUnhealthy": "False"}, {"GpuUnhealthy": "Unknown"}, {"GpuHealthy": "True"}, {"Other": "True"}]
)
def test_any_other_status_or_condition_is_none(conditions: dict[str, str]) -> None:
    assert names(conditions) == []


@pytest.mark.parametrize("pressure", ["MemoryPressure", "DiskPressure", "PIDPressure"])
def test_a_pressure_is_its_works_and_reported(pressure: str) -> None:
    [signal] = signals(b.profile(), seen({pressure: "True"}))
    assert (signal.name, signal.detail, signal.effect) == (
        "node_pressure", f"{pressure}: XidError: GPU 3", Effect.REPORTS,
    )  # fmt: skip
    assert signals(b.profile(), seen({pressure: "False"})) == ()
    assert "health.node_pressure" in unread_signals(b.profile(), seen({pressure: "True"}, "Unknown"))


def test_of_a_node_whose_kubelet_is_silent_conditions_say_nothing() -> None:
    assert names({"GpuUnhealthy": "True"}, "Unknown") == []
    assert names({"GpuUnhealthy": "True"}, "False") == ["condition_GpuUnhealthy"], "it speaks, and is not ready"
    assert signals(NODE.profile, b.observed(member=b.silent())) == ()
    assert signals(NODE.profile, b.observed(member=None)) == ()


def test_what_nobody_can_tell_of_now_is_unread_and_not_gone() -> None:
    both = ("health.node_pressure", "health.condition_GpuUnhealthy", "health.condition_GpuHealthy")
    assert unread_signals(NODE.profile, seen({})) == ()
    assert (
        unread_signals(NODE.profile, seen({}, "Unknown"))
        == unread_signals(NODE.profile, b.observed(member=b.silent()))
        == both
    )
    assert unread_signals(NODE.profile, b.observed(member=None)) == (), "it is known to be in no cluster"
    assert unread_signals(b.profile(), b.observed(member=b.silent())) == ("health.node_pressure",), "it names none"


def test_it_leads_through_the_ladder_back_into_service() -> None:
    made = plan(seen({"GpuUnhealthy": "True"}))
    assert [action.name for action in made.actions][:4] == ["mark", "drain", "soft_restart", "power_cycle"]
    assert [action.name for action in made.actions][-2:] == ["run_gate", "admit"]
    [item] = made.drift
    assert (item.path, item.kind, item.source) == (
        "health.condition_GpuUnhealthy", DriftClass.DRIFTED, Source.KUBERNETES,
    )  # fmt: skip


def test_a_host_that_is_silent_is_marked_and_no_more() -> None:
    """The cluster knows that it is ill; whether SSH is silent for the same reason nobody knows."""
    made = plan(seen({"GpuUnhealthy": "True"}, host=b.silent()))
    assert made.goal is Goal.ISOLATED
    assert [action.name for action in made.actions] == ["mark"]


def test_after_a_treatment_the_detector_has_time_to_take_it_back() -> None:
    unhealthy = seen({"GpuUnhealthy": "True"}, mark=True)
    made = plan(unhealthy, treated("soft_restart", 12, ended=9))
    assert not made.actions
    assert made.blocked is not None
    assert (made.blocked.code, made.blocked.until) == (BlockCode.UNDER_WAY, b.NOW + timedelta(minutes=1))
    assert [(item.path, item.kind) for item in made.illness] == [("health.condition_GpuUnhealthy", DriftClass.UNKNOWN)]

    cleared = plan(seen({"GpuUnhealthy": "False"}, mark=True), treated("soft_restart", 12, ended=9))
    assert [action.name for action in cleared.actions] == ["run_gate", "admit"]

    next_rung = plan(unhealthy, treated("soft_restart", 14, ended=10))
    assert next_rung.actions[0].name == "power_cycle"
    over = plan(unhealthy, treated("soft_restart", 40), treated("power_cycle", 11))
    assert (over.goal, over.blocked and over.blocked.code) == (Goal.ISOLATED, BlockCode.ATTEMPTS)


def test_what_the_host_says_waits_for_no_detector() -> None:
    sick = b.facts(gpus=(b.gpu(0), b.gpu(1, ecc_uncorrectable=2)))
    made = plan(seen({"GpuUnhealthy": "True"}, mark=True, host=sick), treated("soft_restart", 5))
    assert made.actions[0].name == "power_cycle"


def test_once_admitted_a_condition_is_of_now() -> None:
    admitted = replace(treated("admit", 2), cause="drift")
    assert plan(seen({"GpuUnhealthy": "True"}), treated("soft_restart", 5), admitted).actions[0].name == "mark"


def test_a_rule_ignores_it_in_drift_and_plan() -> None:
    made = plan(seen({"GpuUnhealthy": "True"}), rules=(RULE,))
    assert not made.actions
    assert made.goal is Goal.IN_SERVICE
    assert not made.illness
    assert [(item.kind, item.detail) for item in made.drift] == [(DriftClass.IGNORED, "on trial")]
    both = plan(seen({"GpuUnhealthy": "True", "GpuHealthy": "False"}), rules=(RULE,))
    assert [item.path for item in both.illness] == ["health.condition_GpuHealthy"]
