"""Firmware over a whole run: the order of the stages, the time that each component needs, and a BMC that forgot us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit
from reconciler.model.observed import Answered, FirmwareItem, RedfishInventory, Silent
from reconciler.model.outcome import Done, Transient
from reconciler.model.vocab import Activation
from tests import builders as b
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
OLD = {"old_firmware": {"component": "*"}}


@pytest.mark.parametrize("fault", ["bmc_wrong_password", "wrong_machine"])
def test_a_bmc_that_an_update_reset_to_factory_settings_stops_with_the_first_node(world: Worlds, fault: str) -> None:
    """Pitfall B4: it has neither our account nor its name any more. The node stays out, and the next is not flashed."""
    here = world(
        nodes=2,
        profile=replace(PROFILE, digest="bmc alone", firmware=(b.firmware("bmc", 1, Activation.IMMEDIATE),)),
        drift={"*": [OLD]},
        settings={"budgets": (BudgetLimit("fleet", "1"),)},
    )
    here.adopt()
    first, second = here.machine("n0"), here.machine("n1")

    async def resets() -> None:
        work = asyncio.create_task(here.applying())
        while not first.tasks() or any(task.state == "Running" for task in first.tasks()):
            await here.clock.sleep(1.0)
        first.inject(fault)
        report = await work
        assert report.results["n0"].state not in (Ended.DONE, Ended.CONVERGED)

    here.run(resets())
    assert here.tainted("n0")
    assert "n0" not in here.gate.runs, "nobody knows which machine that is"
    assert (first.state.tasks_started, second.state.tasks_started) == (1, 0)
    assert here.serves("n1")


@pytest.mark.parametrize("settle_s", [0.0, 900.0])
def test_a_component_is_given_its_own_time_to_settle(world: Worlds, settle_s: float) -> None:
    """Pitfall F3."""
    item = replace(b.firmware("retimer", 1, Activation.IMMEDIATE), settle_s=settle_s)
    here = world(nodes=1, profile=replace(PROFILE, digest="retimer", firmware=(item,)), drift={"n0": [OLD]})
    began = here.clock.elapsed
    assert here.act("update_firmware", target="retimer") == Done("retimer 1.0 -> 2.0")
    took = here.clock.elapsed - began
    assert item.minutes * 60 + settle_s <= took < item.minutes * 60 + settle_s + 120


def test_what_a_bmc_shows_right_after_an_update_is_read_until_it_is_steady(world: Worlds) -> None:
    """Pitfall F1: it shows the old version once more, and no failure is made of that."""
    item = b.firmware("retimer", 1, Activation.IMMEDIATE)
    here = world(nodes=1, profile=replace(PROFILE, digest="retimer", firmware=(item,)), drift={"n0": [OLD]})
    bmc, machine = here.fabric.bmc(here.fleet.nodes["n0"]), here.machine("n0")
    assert bmc is not None
    read, shown = bmc.inventory, list[str]()

    async def inventory() -> Answered[RedfishInventory] | Silent:
        found = await read()
        if isinstance(found, Silent) or not machine.tasks() or machine.tasks()[-1].state == "Running":
            return found
        version = ("2.0", "1.0", "2.0")[len(shown)] if len(shown) < 3 else "2.0"
        shown.append(version)
        return replace(found, value=replace(found.value, firmware={item.inventory_id: FirmwareItem(version)}))

    bmc.inventory = inventory  # type: ignore[method-assign]
    assert here.act("update_firmware", target="retimer") == Done("retimer 1.0 -> 2.0")
    assert shown == ["2.0", "1.0", "2.0", "2.0", "2.0"], "three equal readings in a row"


def test_firmware_goes_stage_by_stage_and_the_plan_shows_it(world: Worlds) -> None:
    """Pitfalls F3, F4: a stage begins when the one before is in force, whatever the order of the lines."""
    lines = (
        b.firmware("nic0", 3, Activation.POWER_CYCLE),
        b.firmware("bios", 2, Activation.REBOOT),
        b.firmware("bmc", 1, Activation.BMC_RESET),
    )
    here = world(nodes=1, profile=replace(PROFILE, digest="backwards", firmware=lines), drift={"n0": [OLD]})
    here.adopt()
    wanted = [
        "update_firmware:bmc", "reset_bmc", "update_firmware:bios", "soft_restart", "update_firmware:nic0",
        "power_cycle",
    ]  # fmt: skip
    steps = [action.id for action in here.plan().nodes["n0"].actions]
    assert [step for step in steps if step in wanted] == wanted
    served = here.run(served_under_an_update(here))
    wanted.remove("reset_bmc")  # this BMC restarts by itself when it has flashed itself
    assert [step for step in here.did("n0") if step in wanted] == wanted
    assert served == [], "pitfall F10: what is staged or being written may be in force after any boot"
    assert here.serves("n0")


async def served_under_an_update(here: World) -> list[str]:
    """Apply, and return each moment at which n0 took work while an update was running or staged."""
    work, found, machine = asyncio.create_task(here.applying()), list[str](), here.machine("n0")
    under_way = 0
    while not work.done():
        await here.clock.sleep(5.0)
        running = [task.id for task in machine.tasks() if task.state == "Running"]
        staged = [item.component for item in machine.state.firmware.values() if item.staged]
        under_way += bool(running or staged)
        if (running or staged) and here.serves("n0"):
            found.append(f"{here.clock.elapsed:g}: {running} {staged}")
    assert (await work).results["n0"].state is Ended.DONE
    assert under_way > 100
    return found


def test_a_device_that_is_not_listed_while_the_machine_is_off_is_tried_again_and_not_refused(world: Worlds) -> None:
    """The next look sees that the machine is off, and gives it power first."""
    here = world(nodes=1, drift={"n0": [{"old_firmware": {"component": "nic0"}}]})
    here.machine("n0").power("force_off")
    outcome = here.act("update_firmware", target="nic0")
    assert isinstance(outcome, Transient), outcome
    assert outcome.detail == "the BMC lists no firmware 'NIC0' while the machine is off"
