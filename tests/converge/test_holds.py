"""Holds that the spec declares: they hold at once, and for as long as nobody releases them (invariant 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.remember import remember_holds
from reconciler.converge.run import Ended
from reconciler.model.desired import SpecHold
from reconciler.model.plan import BlockCode
from tests.converge.world import World

BIOS = {"n*": ["bios_off"]}
HOLD = SpecHold("n0", "a cable is out", "ops", None, "pools/a.yaml:12:5")


@pytest.fixture
def adopted(world: Callable[..., World]) -> Callable[..., World]:
    def build(**differences: Any) -> World:
        here = world(drift=BIOS, **differences)
        here.adopt()
        return here

    return build


def declaring(here: World, *holds: SpecHold) -> Any:
    return replace(here.fleet, holds=holds)


def ends(report: ApplyReport) -> dict[str, Ended]:
    return {name: result.state for name, result in report.results.items()}


def test_a_plan_honours_a_hold_that_no_ledger_has(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=2)
    here.fleet = declaring(here, HOLD)
    plan = here.plan()
    assert [name for name, node in plan.nodes.items() if node.changes] == ["n1"]
    blocked = plan.nodes["n0"].blocked
    assert blocked is not None
    assert (blocked.code, blocked.detail) == (BlockCode.HELD, "held by ops: a cable is out (by pools/a.yaml:12:5)")
    assert list(here.ledger.holds()) == [], "a plan writes nothing"


@pytest.mark.parametrize("subject", ["n0", "pool/train"])
def test_a_hold_outlives_its_line_in_the_spec_until_it_is_released(adopted: Callable[..., World], subject: str) -> None:
    here = adopted(nodes=1)
    bare, fleet = here.fleet, declaring(here, replace(HOLD, subject=subject))
    assert here.apply(fleet=fleet).executed == ()
    [kept] = here.ledger.holds()
    assert (kept.subject, kept.position) == (subject, HOLD.position)
    here.apply(fleet=fleet)
    moved = declaring(here, replace(HOLD, subject=subject, position="pools/a.yaml:40:5"))
    assert here.apply(fleet=moved).executed == ()
    assert list(here.ledger.holds()) == [kept], "copied once, wherever its line stands"
    without = here.apply(fleet=bare)
    assert without.executed == ()
    told = without.results["n0"].detail
    assert told == (
        f"held by ops: a cable is out (since {kept.since:%Y-%m-%d %H:%M} UTC, once by pools/a.yaml:12:5; "
        f"`reconciler release {subject}` lifts it)"
    )
    assert here.ledger.release(subject, "ops", here.clock.now()) == 1
    assert ends(here.apply(fleet=bare)) == {"n0": Ended.DONE}


def test_a_released_hold_that_is_still_in_the_spec_holds_again(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1)
    fleet = declaring(here, HOLD)
    here.apply(fleet=fleet)
    here.ledger.release("n0", "ops", here.clock.now())
    assert here.apply(fleet=fleet).executed == ()
    assert [hold.reason for hold in here.ledger.holds()] == ["a cable is out"]


def test_releasing_it_in_the_middle_frees_nothing_that_the_spec_holds(adopted: Callable[..., World]) -> None:
    """The copy is gone, and the next action is decided from the spec all the same."""
    here = adopted(nodes=1)
    fleet = declaring(here, HOLD)

    async def released() -> ApplyReport:
        work = asyncio.create_task(here.applying(fleet=fleet))
        await here.clock.sleep(1)
        here.ledger.release("n0", "ops", here.clock.now())
        return await work

    assert here.run(released()).executed == ()


def test_a_hold_ends_when_it_says_and_then_the_plan_asks_for_it_to_be_taken_out(
    adopted: Callable[..., World],
) -> None:
    here = adopted(nodes=1)
    until = here.clock.now() + timedelta(hours=1)
    here.fleet = declaring(here, replace(HOLD, until=until.isoformat()))
    assert here.apply(wait_s=0.0).executed == ()
    blocked = here.plan().nodes["n0"].blocked
    assert blocked is not None
    assert blocked.until == until
    assert f"until {until:%Y-%m-%d %H:%M} UTC, by pools/a.yaml:12:5" in blocked.detail
    here.clock.elapsed += 3700
    plan = here.plan()
    assert plan.nodes["n0"].changes
    [note] = plan.notes
    assert note.startswith("hold of n0 by ops ended at ")
    assert note.endswith(": take it out of pools/a.yaml:12:5")
    assert ends(here.apply()) == {"n0": Ended.DONE}


def test_what_has_ended_is_not_copied(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1)
    over = here.clock.now() - timedelta(seconds=1)
    remember_holds(here.ledger, declaring(here, replace(HOLD, until=over.isoformat())), here.clock.now())
    assert list(here.ledger.holds()) == []


def test_a_changed_hold_is_kept_beside_the_former_one(adopted: Callable[..., World]) -> None:
    """A shorter one would otherwise lift the longer one by an edit of the spec alone."""
    here = adopted(nodes=1)
    here.apply(fleet=declaring(here, HOLD))
    soon = (here.clock.now() + timedelta(minutes=1)).isoformat()
    fleet = declaring(here, replace(HOLD, until=soon))
    here.apply(fleet=fleet, wait_s=0.0)
    here.clock.elapsed += 120
    assert here.apply(fleet=fleet).executed == ()
    assert here.ledger.release("n0", "ops", here.clock.now()) == 2
    assert ends(here.apply(fleet=fleet)) == {"n0": Ended.DONE}
