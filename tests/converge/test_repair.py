"""A repair by a person, from the first sign to capacity back: taken out, found in its rack, exchanged, and gated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.health.placed_parts import placed_parts
from reconciler.model.desired import BudgetLimit
from reconciler.model.outcome import Declined, Done, Permanent, Transient
from reconciler.model.plan import BlockCode, Goal
from reconciler.model.repairs import PlacedPart, Repair, RepairPhase
from tests.converge.world import World

Worlds = Callable[..., World]
CRITICAL = {"failed_part": {"part": "dimm", "index": 2, "how": "critical"}}


def order(here: World, node: str = "n0", **changes: Any) -> Repair:
    """Give the order to exchange the third DIMM of a node, as `repair start` does."""
    seen = here.observe().nodes[node]
    before = placed_parts(seen)
    faulty = tuple(part for part in before if (part.kind, part.place) == ("dimm", "3"))
    values: dict[str, Any] = {
        "id": 0, "node": node, "phase": RepairPhase.OUT, "who": "ann", "since": here.clock.now(), "faulty": faulty,
        "before": before,
    }  # fmt: skip
    return here.ledger.save_repair(Repair(**(values | changes)), "begun", here.clock.now())


def return_(here: World, node: str = "n0", **changes: Any) -> None:
    repair = here.ledger.node(node).repair
    assert repair is not None
    returning = replace(repair, phase=RepairPhase.RETURNING, **changes)
    here.ledger.save_repair(returning, "done", here.clock.now())


def test_the_whole_way(world: Worlds) -> None:
    here = world(nodes=2, faults={"n0": CRITICAL})
    here.adopt()
    order(here)
    here.apply()
    machine = here.machine("n0")
    assert (machine.state.power, machine.state.indicator) == ("off", True)
    assert here.did("n0") == ["mark", "drain", "set_indicator:on", "shut_down"]
    plan = here.plan().nodes["n0"]
    assert (plan.goal, plan.actions) == (Goal.REPAIR, ())
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.HELD
    assert "in repair since" in plan.blocked.detail
    assert "by ann: dimm:3 (serial" in plan.blocked.detail

    machine.clear("failed_part")  # a technician swaps the DIMM
    return_(here)
    here.apply()
    assert (machine.state.power, machine.state.indicator) == ("on", False)
    assert here.serves("n0")
    did = here.did("n0")[4:]
    assert did[:3] in (
        ["power_on", "set_indicator:off", "accept_parts"],
        ["set_indicator:off", "power_on", "accept_parts"],
    )
    assert did.index("accept_parts") < did.index("run_gate") < did.index("admit")
    (repair,) = here.ledger.repairs()
    assert repair.phase is RepairPhase.CLOSED
    ((old, new),) = repair.exchanged
    assert old.serial != new.serial
    assert set(here.ledger.retired_parts()) == {old.serial}


def taken_out(world: Worlds, **differences: Any) -> World:
    here = world(**({"nodes": 2, "faults": {"n0": CRITICAL}} | differences))
    here.adopt()
    order(here)
    here.apply()
    assert here.machine("n0").state.power == "off"
    return here


def told(here: World) -> str:
    repair = here.ledger.node("n0").repair
    assert repair is not None
    assert repair.phase is RepairPhase.REFUSED
    return repair.told


def test_the_same_part_is_told_and_may_be_accepted(world: Worlds) -> None:
    """A part that was reseated is the same one: a person says so, and the gate judges."""
    here = taken_out(world)
    del here.machine("n0").state.faults["failed_part"]
    return_(here)
    here.apply()
    assert "dimm:3 still has" in told(here)
    assert "nothing was exchanged" in told(here)
    assert not here.serves("n0")
    plan = here.plan().nodes["n0"]
    assert plan.blocked is not None
    assert "repair start n0" in plan.blocked.detail
    assert "--accept WHY" in plan.blocked.detail
    return_(here, accepted="reseated")
    here.apply()
    assert here.serves("n0")
    assert here.ledger.retired_parts() == {}


def test_the_wrong_part_is_told(world: Worlds) -> None:
    here = taken_out(world)
    here.machine("n0").exchange("dimm", 3)
    return_(here)
    here.apply()
    assert "dimm:3 still has" in told(here)
    assert "the wrong part was exchanged: dimm:4 (serial" in told(here)
    assert not here.serves("n0")


def test_an_empty_slot_is_told(world: Worlds) -> None:
    here = taken_out(world)
    here.machine("n0").inject("failed_part", part="dimm", index=2, how="missing")
    return_(here)
    here.apply()
    assert "dimm:3: nothing is there in place of" in told(here)


def test_a_part_of_another_node_is_told(world: Worlds) -> None:
    here = taken_out(world)
    other = here.machine("n0").state.drives[1].serial
    here.machine("n0").exchange("dimm", 2)
    here.machine("n0").exchange("drive", 1)
    strange = PlacedPart("drive", "1", here.machine("n0").state.drives[1].serial)
    order(here, "n1", faulty=(), before=(strange,))
    return_(here)
    here.apply(selected=("n0",))
    (done, *_) = here.ledger.repairs()
    assert other != strange.serial
    assert f"{strange.serial} was in n1 before" in done.told
    assert done.phase is RepairPhase.CLOSED, done.told


def test_a_part_that_was_taken_out_as_faulty_is_refused(world: Worlds) -> None:
    here = taken_out(world)
    here.machine("n0").exchange("dimm", 2)
    return_(here)
    here.apply()
    assert here.serves("n0")
    (old,) = here.ledger.retired_parts()
    order(here, faulty=tuple(part for part in order(here).before if part.name == "dimm:3"))
    here.apply()
    here.machine("n0").state.swapped.clear()  # the technician puts the old one back
    return_(here)
    here.apply()
    assert f"{old} was taken out of n0 as faulty" in told(here)


def test_another_machine_behind_the_bmc_is_not_touched(world: Worlds) -> None:
    """Invariant 17: identity before any write to a BMC."""
    here = world(nodes=1, faults={"n0": {"wrong_machine": {}}})
    here.adopt()
    order(here)
    here.apply()
    assert (here.machine("n0").state.power, here.machine("n0").state.indicator) == ("on", False)
    assert here.did("n0") == []


def test_a_machine_without_a_locator_led_is_switched_off_all_the_same(world: Worlds) -> None:
    here = world(nodes=1)
    here.machine("n0").state.indicator = None
    here.adopt()
    order(here)
    here.apply()
    assert here.machine("n0").state.power == "off"
    assert here.did("n0") == ["mark", "drain", "shut_down"]


def test_nothing_else_is_done_to_a_node_in_repair(world: Worlds) -> None:
    """Not even what it is ill with, or what drifts: it is the person's."""
    here = taken_out(world)
    before = here.did("n0")
    for _ in range(3):
        here.clock.elapsed += 3600
        here.apply()
    assert here.did("n0") == before
    assert here.machine("n0").state.power == "off"


def test_the_budget_is_that_of_every_run(world: Worlds) -> None:
    here = world(nodes=2, settings={"budgets": (BudgetLimit("fleet", "1"),)})
    here.adopt()
    order(here, "n0")
    here.apply()
    order(here, "n1")
    here.apply(wait_s=0.0)
    assert here.serves("n1")
    assert here.machine("n1").state.power == "on"


@pytest.mark.parametrize("after_s", [0.0, 2.0, 40.0])
@pytest.mark.parametrize(
    ("phase", "step"),
    [
        *((RepairPhase.OUT, step) for step in ("mark", "drain", "set_indicator", "shut_down")),
        *((RepairPhase.RETURNING, step) for step in ("power_on", "set_indicator", "accept_parts", "run_gate", "admit")),
    ],
)
def test_a_run_that_dies_in_any_step_is_continued(world: Worlds, phase: RepairPhase, step: str, after_s: float) -> None:
    """Whenever the run dies, the next one ends the same way, and switches the machine off and on once."""
    here = world(nodes=1, faults={"n0": CRITICAL})
    machine = here.machine("n0")
    here.adopt()
    order(here)
    if phase is RepairPhase.RETURNING:
        here.apply()
        here.events.clear()
        machine.clear("failed_part")
        return_(here)

    async def dies() -> None:
        work = asyncio.create_task(here.applying())
        waiter = asyncio.create_task(here.started(step))
        await asyncio.wait({work, waiter}, return_when=asyncio.FIRST_COMPLETED)
        await here.clock.sleep(after_s)
        work.cancel()
        waiter.cancel()
        await asyncio.wait({work, waiter})

    here.run(dies())
    here.apply()
    assert machine.state.counters.killed_work == 0
    if phase is RepairPhase.OUT:
        assert (machine.state.power, machine.state.indicator) == ("off", True)
        assert machine.state.counters.boots == 0
        return
    assert here.serves("n0")
    assert (machine.state.power, machine.state.indicator) == ("on", False)
    assert machine.state.counters.boots == 1
    assert [one.phase for one in here.ledger.repairs()] == [RepairPhase.CLOSED]


def test_each_step_by_itself(world: Worlds) -> None:
    here = world(nodes=1)
    assert here.act("set_indicator", target="on") == Declined("no_repair", "no repair of this node is under way")
    order(here)
    assert here.act("set_indicator", target="on") == Done("its locator LED is on")
    assert here.act("set_indicator", target="on") == Done("its locator LED was on", changed=False)
    assert isinstance(here.act("accept_parts"), Declined)
    assert here.act("shut_down") == Done("off: parts can be exchanged")
    assert here.act("shut_down") == Done("it was off", changed=False)
    return_(here)
    assert isinstance(here.act("shut_down"), Declined)
    assert isinstance(here.act("accept_parts"), Permanent)


def test_an_led_that_is_not_switched_is_told(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(nodes=1)
    order(here)
    monkeypatch.setattr(here.machine("n0"), "set_indicator", lambda _: None)
    outcome = here.act("set_indicator", target="on")
    assert outcome == Transient("accepted, but the BMC does not show its locator LED as on")
