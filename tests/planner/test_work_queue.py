"""One queue decides who goes: in a plan, and in the run that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import BudgetLimit, Fleet, Floor, Revalidation, SpecSource
from reconciler.model.observed import Observation, Observed, Xid
from reconciler.model.plan import NodePlan
from reconciler.planner.fleet.live_permit import LivePermit
from reconciler.planner.fleet.permit import Permit
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.rollouts import Rollouts
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.fleet.work_queue import WorkQueue, in_order, schedule
from tests import builders as b
from tests.planner.test_timeline import planned
from tests.properties.test_permit import fleets, limits, shares, windows


@given(st.data())
def test_queues_let_those_go_that_go_one_by_one(data: Any) -> None:
    """Nodes that ask for the same share a queue, and its first speaks for all of them."""
    truth = data.draw(fleets())
    declared = tuple(data.draw(st.lists(limits(), max_size=3)))
    floors = tuple(data.draw(st.lists(st.builds(Floor, st.sampled_from(["t", "i"]), shares), max_size=1)))
    told = data.draw(st.one_of(st.just(()), windows(st.just("Asia/Kolkata"))))
    isolated = data.draw(st.sets(st.sampled_from(sorted(truth.nodes))))
    plans = [
        replace(plan, isolated=("health.xid_79",)) if plan.in_service is False and plan.node in isolated else plan
        for plan in data.draw(planned(truth))
    ]

    def permit() -> Permit:
        budget = b.budget(
            declared, truth.nodes, now=b.NOW, out=truth.out, floors=floors, control_plane=truth.control_plane(),
            isolated=[plan.node for plan in plans if plan.isolated],
        )  # fmt: skip
        return Permit(budget, Windows(told, None, b.NOW), b.NOW)

    one_by_one = permit()
    refused = {plan.node: blocked for plan in in_order(plans) if (blocked := one_by_one.admit(plan)) is not None}
    made = schedule({plan.node: plan for plan in plans}, permit())
    assert made.keys() - refused.keys() == {name for name, plan in made.items() if plan.wave == 0 and not plan.blocked}
    assert {n: one.code for n, one in refused.items()} == {n: p.blocked.code for n, p in made.items() if p.blocked}


def test_a_node_is_queued_once_and_the_ill_go_before_drift() -> None:
    """Pitfall H10: a newer plan of a node replaces the older one, however often it joins."""
    nodes = {name: b.node(name) for name in ("a0", "a1", "a2")}
    fleet = Fleet(replace(b.SETTINGS, budgets=(BudgetLimit("fleet", "1"),)), SpecSource("spec"), nodes, "d")
    drifted = {name: b.observed(name, host=b.facts(name, driver="550.0")) for name in nodes}
    ill = {**drifted, "a2": b.observed("a2", host=b.facts("a2", xids=(Xid(79, "0", 1),)))}
    records = {name: b.record(node, b.observed(name)) for name, node in nodes.items()}

    def plans(seen: dict[str, Observed]) -> Mapping[str, NodePlan]:
        observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
        request = PlanRequest("p", b.CONTEXT.signatures)
        return plan_fleet(fleet, observation, LedgerSnapshot(b.LEDGER, records), b.NOW, request).nodes

    before, after = plans(drifted), plans(ill)
    queue = WorkQueue(before.values())
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, ill)
    permit = LivePermit(fleet, observation, {}, {}, b.NOW).now(b.NOW, Rollouts())
    for made in (before, before, after, after):
        for plan in made.values():
            queue.join(plan)
        asked = list[str]()
        queue.ask(permit, lambda: True, asked.append)
        assert asked == (["a0", "a1", "a2"] if made is before else ["a2", "a0", "a1"])
    assert queue.in_order() == ["a2", "a0", "a1"]


@pytest.mark.parametrize("why", ["expires", "idle"])
def test_what_is_tested_while_it_is_idle_goes_last(why: str) -> None:
    """Idle re-validation waits for all other work, whatever the order of the spec is."""
    wish = Revalidation(7 * 86400.0) if why == "expires" else None
    profile = replace(b.PROFILE, acceptance=replace(b.ACCEPTANCE, revalidate=wish))
    nodes = {name: b.node(name, profile=profile) for name in ("a0", "a1", "a2")}
    fleet = Fleet(replace(b.SETTINGS, budgets=(BudgetLimit("fleet", "1"),)), SpecSource("spec"), nodes, "d")
    records = {name: b.record(node, b.observed(name)) for name, node in nodes.items()}
    for name in ("a0", "a1"):  # of these, the results end within a week, or they had no work for as long
        certificate = records[name].certificate
        assert certificate is not None
        aged = replace(certificate, issued_at=b.NOW - timedelta(days=85))
        idle_since = aged.issued_at if why == "idle" else None
        records[name] = replace(records[name], certificate=aged, idle_since=idle_since)
    idle = {name: b.observed(name, member=b.member(name, pods=())) for name in ("a0", "a1")}
    seen = {**idle, "a2": b.observed("a2", host=b.facts("a2", driver="550.0"))}
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
    request = PlanRequest("p", b.CONTEXT.signatures)
    made = plan_fleet(fleet, observation, LedgerSnapshot(b.LEDGER, records), b.NOW, request).nodes
    assert [(name, plan.wave) for name, plan in made.items()] == [("a0", 1), ("a1", 2), ("a2", 0)]
    queue, asked = WorkQueue(made.values()), list[str]()
    for plan in made.values():
        queue.join(plan)
    queue.ask(LivePermit(fleet, observation, {}, {}, b.NOW).now(b.NOW, Rollouts()), lambda: True, asked.append)
    assert asked == ["a2", "a0", "a1"]


def test_a_run_lets_the_same_node_go_first_as_its_plan() -> None:
    """Pools take turns, and a pool's nodes that have nothing to do don't count."""
    names = {"a0": "a", "a1": "a", "b0": "b"}
    nodes = {name: b.node(name, pool=pool) for name, pool in names.items()}
    settings = replace(b.SETTINGS, budgets=(BudgetLimit("fleet", "1"),))
    fleet = Fleet(settings, SpecSource("spec"), nodes, "d")
    seen = {name: b.observed(name, host=b.facts(name, driver="550.0")) for name in ("a1", "b0")}
    seen["a0"] = b.observed("a0")
    records = {name: b.record(node, b.observed(name)) for name, node in nodes.items()}
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
    request = PlanRequest("p", b.CONTEXT.signatures)
    made = plan_fleet(fleet, observation, LedgerSnapshot(b.LEDGER, records), b.NOW, request)
    assert not made.nodes["a0"].actions
    assert [name for name, plan in made.nodes.items() if plan.actions and plan.blocked is None] == ["a1"]

    queue, asked = WorkQueue(made.nodes.values()), list[str]()
    for name in ("b0", "a1"):
        queue.join(made.nodes[name])
    queue.ask(LivePermit(fleet, observation, {}, {}, b.NOW).now(b.NOW, Rollouts()), lambda: True, asked.append)
    assert asked == ["a1", "b0"]
