"""BIOS, boot settings, firmware: read back, because 200 proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.actions.settings import shows
from reconciler.converge.run import Ended
from reconciler.lab.inprocess.bmc import TASKS
from reconciler.model.abilities import BootOption
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.ports import FirmwareFile
from reconciler.model.vocab import Activation, VerifiedBy
from tests import builders as b
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]


# --- BIOS ------------------------------------------------------------------------------------------------------------


def test_bios_attributes_are_staged_once(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["bios_off"]})
    outcome = here.act("set_bios")
    assert isinstance(outcome, Done)
    assert dict(here.machine("n0").state.pending_bios) == dict(PROFILE.bios)
    assert here.act("set_bios") == Done("already staged", changed=False)
    assert here.machine("n0").state.counters.bios_writes == 1


def test_bios_attributes_that_apply_at_once_are_no_failure(world: Worlds) -> None:
    """As of a BIOS without a settings object. The certificate binds the settings, so that the gate runs again."""
    here = world(nodes=1, drift={"n0": ["bios_off"]})
    here.adopt()
    machine = here.machine("n0")
    machine.stage_bios = machine.state.bios.update  # type: ignore[method-assign, assignment]
    assert isinstance(here.act("set_bios"), Done)
    assert machine.state.pending_bios == {}
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE
    assert here.gate.runs == ["n0"]
    assert machine.state.counters.power_cycles == 0


def test_a_bmc_that_accepts_and_forgets_is_found_out(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["bios_off"]}, faults={"n0": {"bios_write_ignored": {}}})
    outcome = here.act("set_bios")
    assert isinstance(outcome, Transient)
    assert "shows neither as pending nor in force: NumaNodesPerSocket, SriovGlobalEnable" in outcome.detail


def test_an_attribute_that_the_bios_refuses_is_a_permanent_failure(world: Worlds) -> None:
    bios = {"NumaNodesPerSocket": "NPS7"}
    here = world(nodes=1, profile=replace(PROFILE, digest="bad bios", bios=bios))
    here.machine("n0").state.bios["NumaNodesPerSocket"] = "NPS1"
    outcome = here.act("set_bios")
    assert isinstance(outcome, Permanent)
    assert "NumaNodesPerSocket" in outcome.detail


# --- boot ------------------------------------------------------------------------------------------------------------


def test_boot_settings(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["wrong_boot_order", "secure_boot_off"]})
    assert isinstance(here.act("set_boot"), Done)
    state = here.machine("n0").state
    assert state.boot_order == ["Hdd", "Pxe"]
    assert state.pending_secure_boot is True
    here.act("soft_restart")
    assert state.secure_boot is True
    assert here.act("set_boot") == Done("nothing to set", changed=False)


def test_a_boot_entry_that_is_not_there_is_refused_before_anything_is_set(world: Worlds) -> None:
    here = world(nodes=1, profile=replace(PROFILE, digest="no entry", boot_order=("Usb", "Hdd"), secure_boot=None))
    here.machine("n0").state.boot_order = ["Hdd", "Pxe"]
    outcome = here.act("set_boot")
    assert isinstance(outcome, Declined)
    assert "no boot entry 'Usb'; there are: Hdd, Pxe" in outcome.detail


def test_a_boot_order_that_waits_for_the_next_boot_is_set() -> None:
    """iDRAC, OpenBMC, AMI and Lenovo show the old order until then."""
    options = tuple(BootOption(f"Boot000{n}", kind) for n, kind in enumerate(("Pxe", "Hdd", "Hdd")))
    shown = b.inventory(boot_options=options)
    assert not shows(shown, ("Hdd", "Pxe"))
    assert not shows(replace(shown, staged_boot_order=("Boot0001", "Boot0000", "Boot0002")), ("Hdd", "Pxe"))
    assert shows(replace(shown, staged_boot_order=("Boot0001", "Boot0002", "Boot0000")), ("Hdd", "Pxe"))
    assert not shows(shown, ("Usb",))


# --- firmware --------------------------------------------------------------------------------------------------------


def old(component: str) -> dict[str, Any]:
    return {"n0": [{"old_firmware": {"component": component}}]}


def version(here: World, component: str) -> str:
    return next(item.version for item in here.machine("n0").state.firmware.values() if item.component == component)


def test_firmware_that_waits_for_a_restart_is_staged_then_brought_in(world: Worlds) -> None:
    here = world(nodes=1, drift=old("nic0"))
    outcome = here.act("update_firmware", target="nic0")
    assert outcome == Done("nic0 2.0 is staged; power_cycle brings it in")
    assert version(here, "nic0") == "1.0"
    assert isinstance(here.act("power_cycle"), Done)
    assert version(here, "nic0") == "2.0"
    assert here.machine("n0").state.counters.flashes == 1


def test_a_bmc_that_flashes_itself_is_silent_and_comes_back(world: Worlds) -> None:
    here = world(nodes=1, drift=old("bmc"))
    assert here.act("update_firmware", target="bmc") == Done("bmc 1.0 -> 2.0")
    assert here.act("update_firmware", target="bmc") == Done("bmc runs 2.0 already", changed=False)
    assert here.machine("n0").state.counters.flashes == 1


def test_immediate_firmware_must_show_its_version(world: Worlds) -> None:
    item = b.firmware("retimer", 1, Activation.IMMEDIATE)
    here = world(nodes=1, profile=replace(PROFILE, digest="retimer", firmware=(item,)), drift=old("retimer"))
    assert here.act("update_firmware", target="retimer") == Done("retimer 1.0 -> 2.0")


@pytest.mark.parametrize("flashed", [True, False])
def test_a_lost_task_is_judged_by_its_effect(world: Worlds, flashed: bool) -> None:
    """A5."""
    item = b.firmware("retimer", 1, Activation.IMMEDIATE)
    here = world(
        nodes=1,
        profile=replace(PROFILE, digest="retimer", firmware=(item,)),
        drift=old("retimer"),
        faults={"n0": {"firmware_task_lost": {"flashed": flashed}}},
    )
    outcome = here.act("update_firmware", target="retimer")
    assert isinstance(outcome, Done if flashed else Transient), outcome


def test_a_failed_update_says_what_the_bmc_said(world: Worlds) -> None:
    here = world(nodes=1, drift=old("bios"), faults={"n0": {"firmware_fails": {}}})
    outcome = here.act("update_firmware", target="bios")
    assert isinstance(outcome, Transient)
    assert "The image does not fit this component" in outcome.detail


@pytest.mark.parametrize("in_service", [True, False])
def test_a_file_with_another_digest_drains_nobody_and_is_not_flashed(world: Worlds, in_service: bool) -> None:
    """F11. A node that is out of service already is served as far as possible: only the flash is refused."""
    here = world(nodes=1, drift=old("nic0"))
    here.adopt()
    served = "0" * 64
    here.fabric.firmware_files().served["https://fw/nic0"] = served
    if in_service:
        report = here.apply()
        assert report.results["n0"].state is Ended.NOT_STARTED
        assert not any(attempt.action == "drain" for attempt in here.ledger.node("n0").attempts)
        detail = report.results["n0"].detail
    else:
        outcome = here.act("update_firmware", target="nic0")
        assert isinstance(outcome, Permanent)
        detail = outcome.detail
    assert served in detail
    assert b.SHA in detail
    assert here.machine("n0").state.counters.flashes == 0
    assert version(here, "nic0") == "1.0"


def test_a_file_that_the_bmc_verifies_is_not_fetched(world: Worlds) -> None:
    items = tuple(replace(item, verified_by=VerifiedBy.BMC) for item in PROFILE.firmware)
    here = world(nodes=1, profile=replace(PROFILE, digest="by the BMC", firmware=items), drift=old("nic0"))
    here.fabric.firmware_files().served["https://fw/nic0"] = "0" * 64
    assert isinstance(here.act("update_firmware", target="nic0"), Done)


def test_an_update_whose_run_died_is_adopted_not_repeated(world: Worlds) -> None:
    """F8: the task URI is in the journal."""
    here = world(nodes=1, drift=old("nic0"))

    async def dies() -> None:
        action = asyncio.create_task(here.acting("update_firmware", target="nic0"))
        await asyncio.sleep(120)
        action.cancel()
        await asyncio.wait([action])

    here.run(dies())
    [(_, _, _, _, intent)] = here.ledger.unfinished()
    assert intent["task"]
    assert isinstance(here.act("update_firmware", target="nic0", resumed=intent), Done)
    assert len(here.machine("n0").state.tasks) == 1


@pytest.mark.parametrize("meanwhile", [0.0, 3 * 86400.0])
def test_an_update_whose_run_died_before_it_got_an_answer_is_adopted(world: Worlds, meanwhile: float) -> None:
    """The BMC has the request, and ends the flash long before somebody looks again."""
    here = world(nodes=1, drift=old("nic0"))
    here.adopt()
    bmc = here.fabric.bmc(here.fleet.nodes["n0"])
    assert bmc is not None
    started = bmc.update_firmware

    async def dies(inventory_id: str, file: FirmwareFile) -> str:
        await started(inventory_id, file)
        raise SystemExit

    bmc.update_firmware = dies  # type: ignore[method-assign]  # the process ends there
    with pytest.raises(SystemExit):
        here.apply()
    bmc.update_firmware = started  # type: ignore[method-assign]
    here.clock.elapsed += meanwhile
    here.apply(wait_s=7200.0)
    machine = here.machine("n0").state
    assert (machine.counters.flashes, machine.counters.power_cycles) == (1, 1)
    assert here.serves("n0")


def test_the_task_of_another_version_is_not_adopted(world: Worlds) -> None:
    here = world(nodes=1, drift=old("nic0"))
    task = here.machine("n0").start_update("NIC0", "https://fw/older")
    here.clock.elapsed += 3600.0
    intent = {"task": f"{TASKS}{task}", "tasks": [], "version": "0.1"}
    assert isinstance(here.act("update_firmware", target="nic0", resumed=intent), Done)
    assert len(here.machine("n0").state.tasks) == 2


def test_another_task_on_the_bmc_is_not_disturbed(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": [{"old_firmware": {}}]})
    here.machine("n0").start_update("BIOS", "https://fw/bios")
    outcome = here.act("update_firmware", target="nic0")
    assert isinstance(outcome, Transient)
    assert "another task is running" in outcome.detail


def test_firmware_that_the_bmc_does_not_list_is_not_flashed(world: Worlds) -> None:
    here = world(nodes=1, drift=old("nic0"))
    del here.machine("n0").state.firmware["NIC0"]
    assert isinstance(here.act("update_firmware", target="nic0"), Declined)


def test_bios_firmware_that_resets_settings_is_no_failed_restart(world: Worlds) -> None:
    """G6: what it reset is drift again, and is staged again by the next plan."""
    here = world(nodes=1, drift=old("bios"), faults={"n0": {"bios_flash_resets": {}}})
    here.act("update_firmware", target="bios")
    assert isinstance(here.act("soft_restart"), Done)
    assert version(here, "bios") == "2.0"
    assert here.machine("n0").state.bios["NumaNodesPerSocket"] != "NPS1"


def test_staged_settings_that_a_bios_flash_swallowed_are_drift_and_no_failed_restart(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["bios_off", {"old_firmware": {"component": "bios"}}]})
    here.act("set_bios")
    here.act("update_firmware", target="bios")

    async def swallowed() -> Outcome:
        action = asyncio.create_task(here.acting("soft_restart"))
        await asyncio.sleep(10)
        here.machine("n0").clear_pending_bios()
        return await action

    assert isinstance(here.run(swallowed()), Done)
    assert here.machine("n0").state.bios["NumaNodesPerSocket"] != "NPS1"


def test_a_bmc_reset_waits_until_the_bmc_is_steady(world: Worlds) -> None:
    here = world(nodes=1)
    assert here.act("reset_bmc") == Done("the BMC restarted")
    assert here.machine("n0").state.bmc_boots == 1
    assert here.machine("n0").bmc_up
    assert here.machine("n0").state.counters.boots == 0


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("bmc_unreachable", Transient), ("bmc_wrong_password", Permanent), ("bmc_garbage", Transient)],
)
@pytest.mark.parametrize("action", ["set_bios", "set_boot", "reset_bmc", "power_cycle", "power_on"])
def test_a_bmc_that_does_not_answer_is_told_apart(
    world: Worlds, action: str, fault: str, expected: type[Outcome]
) -> None:
    here = world(nodes=1, drift={"n0": ["bios_off", "secure_boot_off"]}, faults={"n0": {fault: {}}})
    assert isinstance(here.act(action, drift=_drift(here)), expected)


def _drift(here: World) -> Any:
    """Return the drift from when the BMC still answered."""
    from reconciler.model.drift import DriftClass, DriftItem
    from reconciler.model.vocab import Concern

    del here
    return (
        DriftItem("n0", Concern.BIOS, "bios.NumaNodesPerSocket", DriftClass.DRIFTED, "NPS1", "NPS4"),
        DriftItem("n0", Concern.BOOT, "boot.secure_boot", DriftClass.DRIFTED, True, False),
    )
