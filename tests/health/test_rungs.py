"""The rungs of a signal, and how often one node is repaired at most."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.health.ladder import REMEDIATION
from reconciler.health.table import health_table
from reconciler.model.desired import Rung
from reconciler.model.observed import Xid
from reconciler.model.plan import Goal, NodePlan
from reconciler.model.records import Attempt
from reconciler.model.signal_changes import SignalChange
from tests import builders as b

LADDER = (Rung("soft_restart", 1), Rung("power_cycle", 1), Rung("reimage", 1))
POLICY = replace(b.REMEDIATION, ladder=LADDER)
COLD = SignalChange("xid_79", "a warm boot leaves it off the bus", rungs=("power_cycle",))
WIPED = SignalChange("xid_119", "our image's driver", rungs=("reimage", "power_cycle"))
WARM = SignalChange("xid_120", "x", rungs=("soft_restart",))


def planned(
    *codes: int, rows: tuple[SignalChange, ...] = (), attempts: tuple[Attempt, ...] = (), most: int | None = None
) -> NodePlan:
    node = b.node(profile=b.profile(health=rows, remediation=replace(POLICY, most=most)))
    seen = b.observed(host=b.facts(xids=tuple(Xid(code, "0000:03:00", 1) for code in codes)))
    return b.planner().plan(node, seen, b.record(node, b.observed(), attempts=attempts))


def tried(action: str, ago: timedelta) -> Attempt:
    return Attempt(action, "", REMEDIATION, b.NOW - ago, "done", ended_at=b.NOW - ago)


@pytest.mark.parametrize(
    ("codes", "rows", "rungs"),
    [
        ((79,), (), ["soft_restart", "power_cycle", "reimage"]),
        ((79,), (COLD,), ["power_cycle"]),
        ((119,), (COLD,), ["soft_restart", "power_cycle", "reimage"]),
        ((119,), (WIPED,), ["power_cycle", "reimage"]),  # in the order of the policy
        ((79, 119), (COLD, WIPED), ["power_cycle"]),  # both must be healed
    ],
)
def test_the_rungs_of_a_signal_are_those_that_may_heal_it(
    codes: tuple[int, ...], rows: tuple[SignalChange, ...], rungs: list[str]
) -> None:
    plan = planned(*codes, rows=rows)
    assert [action.name for action in plan.actions if action.name in {rung.action for rung in LADDER}] == rungs


def test_without_a_rung_that_may_heal_it_a_node_is_isolated_and_says_why() -> None:
    plan = planned(79, 120, rows=(COLD, WARM))
    assert plan.goal is Goal.ISOLATED
    assert "the ladder's attempts are used up, but for those that can't help" in plan.situation
    once = planned(79, rows=(COLD,), attempts=(tried("power_cycle", timedelta(hours=1)),))
    assert once.goal is Goal.ISOLATED, "a warm boot is no next rung after a cold one"


def test_a_node_is_repaired_so_often_and_then_a_person_must_look() -> None:
    """Each rung has attempts left in its own window of a day; the node has none in its week."""
    before = tuple(tried("soft_restart", timedelta(days=day)) for day in (6, 4, 2))
    assert planned(119, attempts=before, most=4).goal is Goal.IN_SERVICE
    plan = planned(119, attempts=before, most=3)
    assert plan.goal is Goal.ISOLATED
    assert "the ladder's attempts are used up within 7d00h: a person must look" in plan.situation
    fewer = planned(119, attempts=before[1:], most=2)
    assert fewer.goal is Goal.ISOLATED
    assert "it was repaired 2 times within 7d00h, the policy's limit: a person must look" in fewer.situation
    older = tuple(replace(one, at=one.at - timedelta(days=2)) for one in before)
    assert planned(119, attempts=older, most=3).goal is Goal.IN_SERVICE


def test_what_was_done_before_a_person_saw_to_the_node_counts_for_no_limit() -> None:
    node = b.node(profile=b.profile(remediation=replace(POLICY, most=2)))
    seen = b.observed(host=b.facts(xids=(Xid(119, "0000:03:00", 1),)))
    before = tuple(tried("soft_restart", timedelta(days=day)) for day in (4, 3))
    record = b.record(node, b.observed(), attempts=before)
    assert b.planner().plan(node, seen, record).goal is Goal.ISOLATED
    looked_at = replace(record, released_at=b.NOW - timedelta(days=2), after_release=0)
    assert b.planner().plan(node, seen, looked_at).goal is Goal.IN_SERVICE


def test_a_class_of_signals_has_its_own_bound_in_the_policys_week() -> None:
    """What was done for other classes counts for the limit of all alone."""
    bounded = replace(POLICY, most=9, most_of_class=(("environment", 1), ("persistent", 2)))
    node = b.node(profile=b.profile(remediation=bounded))
    seen = b.observed(host=b.facts(xids=(Xid(119, "0000:03:00", 1),)))
    days = (6, 4)
    for treated, goal in (("health.xid_48", Goal.ISOLATED), ("health.psu_failed", Goal.IN_SERVICE)):
        before = tuple(replace(tried("soft_restart", timedelta(days=day)), treated=(treated,)) for day in days)
        plan = b.planner().plan(node, seen, b.record(node, b.observed(), attempts=before))
        assert plan.goal is goal
        assert ("repaired 2 times within 7d00h for signals of class persistent" in plan.situation) is (
            goal is Goal.ISOLATED
        )


def test_a_row_of_power_can_have_no_rung_that_wipes() -> None:
    with pytest.raises(ValueError, match="no rung reimage"):
        health_table((SignalChange("pcie_fatal", "x", rungs=("reimage",)),))
    with pytest.raises(ValueError, match="`next: ladder` or `next: power`"):
        health_table((SignalChange("fan_failed", "x", rungs=("power_cycle",)),))
