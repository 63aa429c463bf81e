"""The effects of BMC requests on a machine."""

from __future__ import annotations

import pytest

from reconciler.lab.hardware.machine import HardwareRejected, Machine, Rejection
from reconciler.lab.hardware.timings import TYPICAL
from tests.lab.machines import BOOT_S, HOUR, Time, after

BMC_URL = "https://firmware.example.com/bmc-01.05.03.bin"
BIOS_URL = "https://firmware.example.com/bios-2.4.bin"
NIC_URL = "https://firmware.example.com/nic-28.43.1014.bin"


def flash(machine: Machine, clock: Time, inventory_id: str, url: str) -> str:
    """Start an update and wait until its task ends."""
    machine.state.firmware[inventory_id].version = "0.9"
    number = machine.start_update(inventory_id, url)
    after(machine, clock, machine.state.firmware[inventory_id].minutes * 60)
    return number


# --- BIOS ---


def test_bios_settings_wait_for_the_next_post(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.stage_bios({"SriovGlobalEnable": "Disabled", "BootTimeout": 5})
    assert gpu_machine.state.bios["SriovGlobalEnable"] == "Enabled"
    assert gpu_machine.state.pending_bios == {"SriovGlobalEnable": "Disabled"}  # the other one already has its value
    gpu_machine.reboot()
    after(gpu_machine, clock, TYPICAL.shutdown_s + TYPICAL.post_s - 1)
    assert gpu_machine.state.bios["SriovGlobalEnable"] == "Enabled"
    after(gpu_machine, clock, 1)
    assert gpu_machine.state.bios["SriovGlobalEnable"] == "Disabled"
    assert gpu_machine.state.pending_bios == {}


@pytest.mark.parametrize(
    "attributes", [{"SriovGlobalEnabel": "Enabled"}, {"SriovGlobalEnable": "On"}, {"BootTimeout": "5"}]
)
def test_values_that_the_bios_does_not_know_are_refused_as_a_whole(
    gpu_machine: Machine, attributes: dict[str, str]
) -> None:
    with pytest.raises(HardwareRejected) as refused:
        gpu_machine.stage_bios({"NumaNodesPerSocket": "NPS2", **attributes})
    assert refused.value.reason is Rejection.INVALID
    assert refused.value.about == tuple(attributes)
    assert gpu_machine.state.pending_bios == {}


def test_pending_settings_can_be_dropped(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.stage_bios({"SriovGlobalEnable": "Disabled"})
    gpu_machine.set_secure_boot(False)
    gpu_machine.set_secure_boot(True)
    gpu_machine.clear_pending_bios()
    gpu_machine.reboot()
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.state.bios["SriovGlobalEnable"] == "Enabled"
    assert gpu_machine.state.secure_boot


def test_secure_boot_changes_at_post(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.set_secure_boot(False)
    assert gpu_machine.state.secure_boot
    gpu_machine.reboot()
    after(gpu_machine, clock, HOUR)
    assert not gpu_machine.state.secure_boot


# --- boot ---


def test_an_override_is_used_once(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.insert_media("http://installer/tok/boot.iso")
    gpu_machine.set_boot_override("Cd", "Once")
    gpu_machine.reboot()
    after(gpu_machine, clock, TYPICAL.shutdown_s + TYPICAL.post_s)
    assert gpu_machine.state.phase == "installer"
    assert (gpu_machine.state.boot_override, gpu_machine.state.boot_override_enabled) == ("None", "Disabled")


def test_an_override_to_an_empty_drive_boots_the_disk(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.set_boot_override("Cd", "Once")
    gpu_machine.reboot()
    assert after(gpu_machine, clock, TYPICAL.shutdown_s + BOOT_S).ssh_up


def test_the_boot_device_can_not_be_changed_during_post(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.power("force_restart")
    with pytest.raises(HardwareRejected) as refused:  # A8
        gpu_machine.set_boot_override("Cd", "Once")
    assert refused.value.reason is Rejection.IN_POST
    after(gpu_machine, clock, TYPICAL.post_s)
    gpu_machine.set_boot_override("Cd", "Once")


def test_a_boot_order_is_a_permutation(gpu_machine: Machine) -> None:
    gpu_machine.set_boot_order(["Pxe", "Hdd"])
    assert gpu_machine.state.boot_order == ["Pxe", "Hdd"]
    with pytest.raises(HardwareRejected):
        gpu_machine.set_boot_order(["Pxe"])


def test_media_are_inserted_into_an_empty_drive_only(gpu_machine: Machine) -> None:
    gpu_machine.insert_media("http://installer/a/boot.iso")
    with pytest.raises(HardwareRejected) as refused:
        gpu_machine.insert_media("http://installer/b/boot.iso")
    assert refused.value.reason is Rejection.CONFLICT
    gpu_machine.eject_media()
    gpu_machine.eject_media()
    with pytest.raises(HardwareRejected, match="can't mount"):
        gpu_machine.insert_media("http://installer/boot.iso?token=b")  # E3
    gpu_machine.insert_media("http://installer/b/boot.iso")
    assert gpu_machine.shown_media == "http://installer/b/boot.iso"


# --- firmware ---


def test_a_bmc_goes_away_to_run_its_new_firmware(gpu_machine: Machine, clock: Time) -> None:
    number = flash(gpu_machine, clock, "BMC", BMC_URL)
    assert not gpu_machine.bmc_up
    assert gpu_machine.bmc_transport() == "unreachable"
    assert gpu_machine.ssh_up  # the host is not affected
    after(gpu_machine, clock, TYPICAL.bmc_restart_s)
    assert gpu_machine.bmc_transport() is None
    assert gpu_machine.state.firmware["BMC"].version == "01.05.03"
    task = gpu_machine.task(number)
    assert task is not None
    assert task.state == "Completed"
    assert gpu_machine.state.bmc_boots == 1


def test_bios_firmware_waits_for_a_boot_of_any_kind(gpu_machine: Machine, clock: Time) -> None:
    flash(gpu_machine, clock, "BIOS", BIOS_URL)
    assert (gpu_machine.state.firmware["BIOS"].version, gpu_machine.state.firmware["BIOS"].staged) == ("0.9", "2.4")
    gpu_machine.reboot()
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.state.firmware["BIOS"].version == "2.4"


def test_device_firmware_waits_for_power_to_go(gpu_machine: Machine, clock: Time) -> None:
    flash(gpu_machine, clock, "NIC0", NIC_URL)
    gpu_machine.reboot()
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.state.firmware["NIC0"].version == "0.9"
    gpu_machine.power("power_cycle")
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.state.firmware["NIC0"].version == "28.43.1014"
    assert gpu_machine.state.counters.flashes == 1


def test_one_update_at_a_time(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.start_update("BIOS", BIOS_URL)
    with pytest.raises(HardwareRejected) as refused:
        gpu_machine.start_update("NIC0", NIC_URL)
    assert refused.value.reason is Rejection.BUSY
    after(gpu_machine, clock, HOUR)
    gpu_machine.start_update("NIC0", NIC_URL)


@pytest.mark.parametrize(
    ("inventory_id", "disturb"),
    [("BIOS", "force_off"), ("NIC0", "force_restart"), ("BIOS", "bmc"), ("BMC", "bmc")],
)
def test_an_interrupted_update_changes_nothing(
    gpu_machine: Machine, clock: Time, inventory_id: str, disturb: str
) -> None:
    number = gpu_machine.start_update(inventory_id, {"BIOS": BIOS_URL, "NIC0": NIC_URL, "BMC": BMC_URL}[inventory_id])
    after(gpu_machine, clock, 60)
    gpu_machine.reset_bmc() if disturb == "bmc" else gpu_machine.power(disturb)
    after(gpu_machine, clock, HOUR)
    task = gpu_machine.task(number)
    assert task is not None
    assert task.state == "Exception"
    assert gpu_machine.state.firmware[inventory_id].staged is None
    assert gpu_machine.state.counters.flashes == 0


def test_an_image_for_another_component_fails(gpu_machine: Machine, clock: Time) -> None:
    number = gpu_machine.start_update("BIOS", NIC_URL)
    after(gpu_machine, clock, HOUR)
    task = gpu_machine.task(number)
    assert task is not None
    assert (task.state, gpu_machine.state.firmware["BIOS"].version) == ("Exception", "2.4")
    with pytest.raises(HardwareRejected) as refused:
        gpu_machine.start_update("CPLD", NIC_URL)
    assert refused.value.reason is Rejection.ABSENT


def test_a_reset_of_the_bmc_takes_its_media_along(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.insert_media("http://installer/tok/boot.iso")
    gpu_machine.reset_bmc()
    after(gpu_machine, clock, TYPICAL.bmc_restart_s)
    assert gpu_machine.shown_media is None
    assert gpu_machine.ssh_up


def test_an_ac_cycle_brings_in_everything_that_was_staged(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.state.firmware["NIC0"].activation = "ac_cycle"
    flash(gpu_machine, clock, "NIC0", NIC_URL)
    gpu_machine.power("power_cycle")
    assert after(gpu_machine, clock, HOUR).state.firmware["NIC0"].version == "0.9"  # C4
    gpu_machine.ac_cycle()
    assert not gpu_machine.bmc_up
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.state.firmware["NIC0"].version == "28.43.1014"
    assert gpu_machine.ssh_up


def test_every_change_that_redfish_shows_moves_the_etag(gpu_machine: Machine, clock: Time) -> None:
    seen = [gpu_machine.state.etag]
    for change in (
        lambda: gpu_machine.stage_bios({"BootTimeout": 9}),
        gpu_machine.clear_pending_bios,
        lambda: gpu_machine.set_boot_override("Pxe", "Once"),
        lambda: gpu_machine.insert_media("http://x/boot.iso"),
        gpu_machine.eject_media,
        lambda: gpu_machine.power("force_restart"),
        lambda: after(gpu_machine, clock, HOUR),
    ):
        change()
        seen.append(gpu_machine.state.etag)
    assert seen == sorted(set(seen))
