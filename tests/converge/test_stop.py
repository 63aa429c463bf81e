"""A stop of the whole fleet: nothing begins, what runs ends its action and is left as it is (pitfall J9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit
from reconciler.model.errors import Refused
from reconciler.model.plan import BlockCode, Goal
from reconciler.model.records import FLEET
from tests.converge.world import World

BIOS = {"n*": ["bios_off"]}
ONE = (BudgetLimit("fleet", "1"),)
TWO = (BudgetLimit("fleet", "2"),)


@pytest.fixture
def adopted(world: Callable[..., World]) -> Callable[..., World]:
    def build(**differences: Any) -> World:
        here = world(**{"drift": BIOS, **differences})
        here.adopt()
        return here

    return build


def stop(here: World, reason: str = "smoke in hall 2") -> None:
    here.ledger.hold(FLEET, reason, "ops", None, here.clock.now())


def resume(here: World) -> None:
    here.ledger.release(FLEET, "ops", here.clock.now())


def stopped_while(here: World, action: str, **changes: Any) -> ApplyReport:
    """Somebody stops the fleet while some node is at `action`."""

    async def both() -> ApplyReport:
        work = asyncio.create_task(here.applying(**changes))
        await here.started(action)
        stop(here)
        return await work

    return here.run(both())


def test_a_plan_says_who_stopped_the_fleet_and_why_and_since_when(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=2)
    stop(here)
    since = here.clock.now()
    plan = here.plan()
    said = f"stopped by ops: smoke in hall 2 (since {since:%Y-%m-%d %H:%M} UTC, `reconciler resume` lifts it)"
    assert plan.stopped == said
    for node in plan.nodes.values():
        assert node.blocked is not None
        assert (node.blocked.code, node.blocked.detail) == (BlockCode.STOPPED, said)
        assert (node.goal, node.actions) == (Goal.NOTHING, ())
    resume(here)
    plan = here.plan()
    assert plan.stopped == ""
    assert all(node.changes for node in plan.nodes.values())


def test_apply_contacts_nothing_while_the_fleet_is_stopped(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1)
    plan = here.plan()
    stop(here)
    with pytest.raises(Refused, match=r"nothing is done: stopped by ops: smoke in hall 2 .*reconciler resume"):
        here.apply(approved=plan)
    assert here.did("n0") == []
    assert here.serves("n0")
    resume(here)
    assert here.apply(approved=plan).results["n0"].state is Ended.DONE


def test_what_runs_ends_its_action_and_is_left_as_it_is(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=2, settings={"budgets": ONE})
    report = stopped_while(here, "soft_restart")
    [begun] = [name for name in report.results if here.did(name)]
    [other] = set(report.results) - {begun}
    assert here.did(begun)[-1] == "soft_restart", "it ended, and nothing came after it"
    assert here.tainted(begun), "its mark stays"
    assert report.results[begun].state is Ended.POSTPONED
    assert "smoke in hall 2" in report.results[begun].detail
    assert report.results[begun].detail.endswith("; it is left as it is, out of service")
    assert report.results[other].state is Ended.NOT_STARTED
    assert "stopped by ops" in report.results[other].detail
    assert "stopped by ops" in report.plan.stopped
    resume(here)
    assert {end.state for end in here.apply().results.values()} == {Ended.DONE}
    assert here.did(begun).count("soft_restart") == 1


@pytest.mark.parametrize("action", ["mark", "drain", "set_bios", "soft_restart", "run_gate", "admit"])
def test_nothing_begins_after_the_stop_and_nothing_is_done_twice(adopted: Callable[..., World], action: str) -> None:
    here = adopted(nodes=3, settings={"budgets": TWO})
    stopped_while(here, action)
    events = [entry.event for _, entry in here.ledger.journal(None, 1000)]
    assert "intent" in events
    assert "intent" not in events[events.index("hold") :]
    assert here.ledger.unfinished() == [], "what ran has ended"
    resume(here)
    assert {end.state for end in here.apply().results.values()} <= {Ended.DONE, Ended.CONVERGED}
    for name in here.fleet.nodes:
        assert here.did(name).count("soft_restart") == 1
        assert here.serves(name)
    assert here.ledger.audit().problem == ""


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.3, 5.0, 40.0, 200.0, 500.0])
def test_a_stop_may_come_at_any_moment(adopted: Callable[..., World], after_s: float) -> None:
    """Also between the look at a node and its first action, while it asks for its place in the budget."""
    here = adopted(nodes=3, settings={"budgets": TWO})

    async def both() -> ApplyReport | None:
        work = asyncio.create_task(here.applying())
        await here.clock.sleep(after_s)
        stop(here)
        try:
            return await work
        except Refused:
            return None

    report = here.run(both())
    events = [entry.event for _, entry in here.ledger.journal(None, 1000)]
    assert "intent" not in events[events.index("hold") :]
    assert report is None or "stopped by ops" in report.plan.stopped
    assert report is not None or "intent" not in events, "nobody is told that nothing is done when something was"


def test_a_node_that_was_only_marked_stays_marked(adopted: Callable[..., World]) -> None:
    """Putting it back into service would be something new."""
    here = adopted(nodes=1)
    stopped_while(here, "mark")
    assert here.did("n0") == ["mark"]
    assert here.tainted("n0")


def test_a_run_that_waits_does_not_wait_for_the_stop_to_be_lifted(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=2, drift={"n0": ["bios_off"], "n1": ["foreign_cordon"]}, settings={"budgets": ONE})

    async def both() -> ApplyReport:
        work = asyncio.create_task(here.applying(wait_s=7200.0))
        await here.clock.sleep(600)
        stop(here)
        return await work

    began = here.clock.now()
    report = here.run(both())
    assert (here.clock.now() - began).total_seconds() < 1200
    assert report.results["n0"].state is Ended.NOT_STARTED
    assert "stopped by ops" in report.results["n0"].detail


def test_a_stop_leaves_nobody_out_of_a_rollout(adopted: Callable[..., World]) -> None:
    """It is no statement about nodes: their waves are what they were."""
    here = adopted(nodes=3)
    here.apply(wait_s=0.0)
    before = here.plan().rollouts
    stop(here)
    assert [(r.waves, r.left_out) for r in here.plan().rollouts] == [(r.waves, r.left_out) for r in before]


def test_a_hold_that_is_active_too_is_reported_once_the_stop_is_lifted(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1)
    here.ledger.hold("n0", "a cable is out", "ops", None, here.clock.now())
    stop(here)
    resume(here)
    blocked = here.plan().nodes["n0"].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.HELD
