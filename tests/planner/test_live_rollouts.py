"""Members of a pool in which nothing is pending are judged when something is, by what was known at the beginning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.desired import Desired
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.observed import Observation
from reconciler.model.plan import NodePlan
from reconciler.model.vocab import Concern
from reconciler.planner.fleet.live_permit import LiveRollouts
from reconciler.planner.fleet.rollout_member import RolloutMember, rollout_member
from tests.properties.test_incremental import NAMES, Passes, silence


def pends(plan: NodePlan) -> NodePlan:
    return replace(
        plan, drift=(DriftItem(plan.node, Concern.IMAGE, "image.version", DriftClass.PENDING, "2", "1", "1"),)
    )


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_what_is_judged_late_is_what_all_would_be(data: st.DataObject) -> None:
    """`see` tells of nodes one by one; a LiveRollouts that begins with what they show says the same."""
    here = Passes()
    for name in NAMES:
        if data.draw(st.booleans()):
            silence(here, data.draw, name)
    plans = dict(here.plan(None).nodes)
    live = LiveRollouts(here.fleet, observed(here), plans, dict(here.records), here.now)
    for _ in range(data.draw(st.integers(0, 4))):
        name = data.draw(st.sampled_from(NAMES))
        if data.draw(st.booleans()):
            silence(here, data.draw, name)
        plans[name] = pends(plans[name]) if data.draw(st.booleans()) else replace(plans[name], drift=())
        live.see(here.seen[name], plans[name], here.records[name], here.now)
        if data.draw(st.booleans()):
            live.now({}, {}, here.now)
    anew = LiveRollouts(here.fleet, observed(here), plans, dict(here.records), here.now)
    assert live.now({}, {}, here.now) == anew.now({}, {}, here.now)


def observed(here: Passes) -> Observation:
    return Observation("1.0", "test", "", here.now, here.now, dict(here.seen))


def test_nobody_is_judged_while_nothing_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    here, judged = Passes(), list[str]()

    def noted(node: Desired, *of: Any) -> RolloutMember:
        judged.append(node.node)
        return rollout_member(node, *of)

    monkeypatch.setattr("reconciler.planner.fleet.live_permit.rollout_member", noted)
    plans = dict(here.plan(None).nodes)
    live = LiveRollouts(here.fleet, observed(here), plans, here.records, here.now)
    assert not live.now({}, {}, here.now).by_pool
    assert judged == []
    live.see(here.seen["n1"], pends(plans["n1"]), here.records["n1"], here.now)
    assert live.now({}, {}, here.now).missing == {"n1"}
    assert sorted(judged) == sorted(NAMES)
