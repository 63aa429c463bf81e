"""The plan of a fleet: which nodes may go now, in which order, and verdicts that are made anew each time."""

from __future__ import annotations

from dataclasses import replace

from reconciler.model.desired import BudgetLimit, Desired, Fleet, SpecSource
from reconciler.model.observed import Observation
from reconciler.model.plan import BlockCode
from reconciler.model.records import NodeRecord
from reconciler.planner.fleet.live_permit import LivePermit
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.rollouts import Rollouts
from reconciler.planner.fleet.work_queue import schedule
from reconciler.render.plan import verdict
from tests import builders as b


def fleet_of(*names: str, limit: str = "1", pools: int = 1) -> tuple[Fleet, Observation]:
    nodes: dict[str, Desired] = {name: b.node(name, pool=f"p{at % pools}") for at, name in enumerate(names)}
    settings = replace(b.SETTINGS, budgets=(BudgetLimit("fleet", limit),))
    seen = {name: b.observed(name, host=b.facts(name, driver="550.0")) for name in names}
    return Fleet(settings, SpecSource("spec"), nodes, "d"), Observation("1.0", "test", "", b.NOW, b.NOW, seen)


def plan(fleet: Fleet, seen: Observation):  # type: ignore[no-untyped-def]
    return plan_fleet(fleet, seen, LedgerSnapshot(b.LEDGER), b.NOW, PlanRequest("p", b.CONTEXT.signatures))


def test_one_goes_and_the_others_wait_in_batches() -> None:
    fleet, seen = fleet_of("a1", "a2", "a3", limit="1")
    made = plan(fleet, seen)
    assert {name: node.wave for name, node in made.nodes.items()} == {"a1": 0, "a2": 1, "a3": 2}
    assert made.nodes["a1"].blocked is None
    assert made.nodes["a2"].blocked is not None
    assert made.nodes["a2"].blocked.code is BlockCode.BUDGET
    assert "1 of 1 out (a1)" in made.nodes["a2"].blocked.detail


def test_an_earlier_verdict_of_the_budget_is_judged_again() -> None:
    fleet, seen = fleet_of("a1", "a2", limit="1")
    made = plan(fleet, seen)
    again = schedule({"a2": made.nodes["a2"]}, LivePermit(fleet, seen, {}, {}, b.NOW).now(b.NOW, Rollouts()))
    assert again["a2"].blocked is None
    assert again["a2"].wave == 0


def test_nodes_that_are_out_use_the_budget_up_and_may_be_acted_on() -> None:
    fleet, seen = fleet_of("a1", "a2", "a3", limit="1")
    out = replace(seen.nodes["a3"], member=b.observed("a3", member=b.member("a3", mark=b.our_mark())).member)
    seen = replace(seen, nodes={**seen.nodes, "a3": out})
    made = plan(fleet, seen)
    assert made.nodes["a3"].blocked is None
    assert made.nodes["a3"].actions
    assert made.nodes["a1"].blocked is not None
    assert made.nodes["a2"].blocked is not None


def test_an_unreadable_cluster_has_budget_zero() -> None:
    fleet, seen = fleet_of("a1", "a2", limit="100%")
    dark = {name: replace(node, member=b.silent()) for name, node in seen.nodes.items()}
    made = plan(fleet, replace(seen, nodes=dark))
    assert not any(action.name != "configure_host" for node in made.nodes.values() for action in node.actions)
    budget = LivePermit(fleet, replace(seen, nodes=dark), {}, {}, b.NOW).now(b.NOW, Rollouts()).budget
    assert all(budget.allows(name) is not None for name in dark)


def test_pools_take_turns() -> None:
    fleet, seen = fleet_of("a1", "a2", "a3", "a4", limit="2", pools=2)
    made = plan(fleet, seen)
    going = [name for name, node in made.nodes.items() if node.blocked is None]
    assert {fleet.nodes[name].pool for name in going} == {"p0", "p1"}


def test_nodes_that_nobody_can_read_are_not_said_to_be_out() -> None:
    """They count as out for every limit. The headline may not say so of nodes that the plan does not disrupt."""
    fleet, seen = fleet_of("a1", "a2", "a3", limit="100%")
    facts = b.facts(sysctls={"vm.swappiness": "60"})
    nodes = {
        name: b.observed(name, host=replace(facts, hostname=name, serial=f"SN-{name}"), member=b.silent())
        for name in seen.nodes
    }
    records = {name: NodeRecord(name, certificate=b.certificate(fleet.nodes[name], b.observed(name))) for name in nodes}
    snapshot = LedgerSnapshot(b.LEDGER, records)
    request = PlanRequest("p", b.CONTEXT.signatures)
    made = plan_fleet(fleet, replace(seen, nodes=nodes), snapshot, b.NOW, request)
    assert made.budget[0].out == ("a1", "a2", "a3")
    assert (made.totals.nodes_out_peak, made.totals.nodes_out_before) == (0, 0)
    assert made.totals.nodes_with_changes == 3
    assert "3 nodes to change, 0 of them disrupted; done in" in verdict(made)


def test_a_headline_says_who_is_out_before_anything_is_done() -> None:
    fleet, seen = fleet_of("a1", "a2", "a3", limit="100%")
    away = {name: b.observed(name, member=b.member(name, mark=b.our_mark())) for name in ("a2", "a3")}
    made = plan(fleet, replace(seen, nodes={**seen.nodes, **away}))
    assert (made.totals.nodes_out_peak, made.totals.nodes_out_before) == (3, 2)
    assert "at most 3 out of service at once (2 already)" in verdict(made)
    fleet, seen = fleet_of("a1", "a2", limit="100%")
    away = {name: b.observed(name, member=b.member(name, mark=b.our_mark())) for name in ("a1", "a2")}
    assert "2 out of service already" in verdict(plan(fleet, replace(seen, nodes=away)))
