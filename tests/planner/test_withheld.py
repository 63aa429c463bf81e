"""Signs of illness that do not count yet: a port that is down for a moment takes nobody out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.health.table import health_table
from reconciler.model.drift import DriftClass
from reconciler.model.plan import BlockCode, NodePlan
from reconciler.planner.fleet.isolation import evidence
from tests import builders as b
from tests.properties.test_domain_incidents import OUTSIDE, PROFILE, UP

PATH = "health.port_missing"


def planned(minutes: float | None, key: str = PATH) -> NodePlan:
    """A node that serves, one of whose ports has been down for so long, as the ledger knows; None: it does not."""
    node = b.node(profile=PROFILE)
    seen = b.observed(host=b.facts(**({"links": (UP,)} | OUTSIDE["port_missing"])))
    since = {} if minutes is None else {key: b.NOW - timedelta(minutes=minutes)}
    return b.planner().plan(node, seen, replace(b.record(node, seen), silent_since=since))


@pytest.mark.parametrize("minutes", [None, 0, 3.9])
def test_a_port_that_is_down_for_a_moment_takes_nobody_out_and_is_told(minutes: float | None) -> None:
    plan = planned(minutes)
    assert plan.actions == ()
    assert evidence(plan, health_table()) == ()
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.UNDER_WAY
    assert plan.blocked.until == b.NOW + timedelta(minutes=4 - (minutes or 0))
    assert "counts when it has lasted 4m" in plan.blocked.detail
    (item,) = [item for item in plan.drift if item.path == PATH]
    assert item.kind is DriftClass.UNKNOWN


@pytest.mark.parametrize("key", [PATH, f"{PATH} after pool pool runs driver 550"])
def test_one_that_stays_down_isolates(key: str) -> None:
    plan = planned(4, key)
    assert [item.path for item in plan.illness] == [PATH]
    assert plan.actions[0].name == "mark"
    assert evidence(plan, health_table()) == (PATH,)


def test_a_node_that_is_out_waits_for_it_and_is_not_admitted() -> None:
    node = b.node(profile=PROFILE)
    host = b.facts(**({"links": (UP,)} | OUTSIDE["port_missing"]))
    plan = b.planner().plan(node, b.observed(host=host, member=b.member(mark=b.our_mark())), b.record(node))
    assert "admit" not in b.actions(plan)
