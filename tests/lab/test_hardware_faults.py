"""Each fault has the effect in its table and ends when it should; unknown faults are refused."""

from __future__ import annotations

import pytest

from reconciler.lab.hardware.faults import FAULTS, parse_fault
from reconciler.lab.hardware.machine import HardwareRejected, Machine
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.model.install import RootDisk
from tests.lab.machines import BOOT_S, HOUR, Time, after, boot_disk, boot_installer, deliver, document

BIOS_URL = "https://firmware.example.com/bios-2.4.bin"


def test_unknown_kinds_and_parameters_are_refused_with_a_hint(gpu_machine: Machine) -> None:
    with pytest.raises(ValueError, match="did you mean 'xid_79'"):
        gpu_machine.inject("xid79")
    with pytest.raises(ValueError, match="did you mean 'persistent'"):
        gpu_machine.inject("xid_79", persistant=True)
    with pytest.raises(ValueError, match="has no GPU 8"):
        gpu_machine.inject("xid_79", gpu=8)
    with pytest.raises(ValueError, match=r"xid_79.gpu must be int, not 'three'"):
        gpu_machine.inject("xid_79", gpu="three")
    with pytest.raises(ValueError, match="unknown fault 'nonsense'; known: bmc_unreachable"):
        gpu_machine.clear("nonsense")
    assert gpu_machine.state.faults == {}


def test_parameters_may_come_as_words_of_a_command_line() -> None:
    given = parse_fault("xid_79", {"gpu": "2", "persistent": "true"})
    assert given == {"times": 0, "heals": "", "gpu": 2, "persistent": True, "logged": True}


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_can_be_injected_shown_and_cleared(gpu_machine: Machine, clock: Time, kind: str) -> None:
    healthy = gpu_machine.dump()
    gpu_machine.inject(kind)
    assert kind in gpu_machine.dump()["faults"]
    gpu_machine.clear()
    found = gpu_machine.dump()
    assert found["faults"] == {}
    assert found["gpus"] == healthy["gpus"]
    assert (found["bmc_up"], found["ssh_up"], found["kubelet_ready"]) == (True, True, True)


def test_transport_faults_of_the_bmc(gpu_machine: Machine) -> None:
    gpu_machine.inject("bmc_503", times=2)
    assert [gpu_machine.bmc_transport() for _ in range(3)] == ["503", "503", None]
    for kind in ("bmc_unreachable", "bmc_wrong_password", "bmc_garbage"):
        gpu_machine.inject(kind)
        assert gpu_machine.bmc_transport() == kind.removeprefix("bmc_")
        assert gpu_machine.bmc_transport() == kind.removeprefix("bmc_")
        gpu_machine.clear(kind)
    assert gpu_machine.bmc_transport() is None


def test_transport_faults_of_ssh(gpu_machine: Machine) -> None:
    gpu_machine.inject("ssh_refused")
    assert gpu_machine.ssh_transport() == "refused"
    gpu_machine.clear()
    gpu_machine.inject("ssh_hang")
    assert gpu_machine.ssh_transport() == "hang"
    assert gpu_machine.kubelet_ready


def test_another_machine_answers(gpu_machine: Machine) -> None:
    gpu_machine.inject("wrong_machine")
    serial, uuid = gpu_machine.shown_identity
    assert serial != gpu_machine.state.serial
    assert uuid != gpu_machine.state.uuid
    gpu_machine.inject("wrong_machine", serial="S-OTHER")
    assert gpu_machine.shown_identity[0] == "S-OTHER"


def test_bios_writes_vanish(gpu_machine: Machine) -> None:
    gpu_machine.inject("bios_write_ignored", times=1)
    gpu_machine.stage_bios({"BootTimeout": 9})
    assert gpu_machine.state.pending_bios == {}
    gpu_machine.stage_bios({"BootTimeout": 9})
    assert gpu_machine.state.pending_bios == {"BootTimeout": 9}


def test_an_override_is_not_stored(gpu_machine: Machine) -> None:
    gpu_machine.inject("boot_override_ignored")
    gpu_machine.set_boot_override("Cd", "Once")
    assert gpu_machine.state.boot_override_enabled == "Disabled"


def test_an_override_is_shown_and_not_used(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("boot_override_ignored", when="boot", times=1)
    gpu_machine.insert_media("http://installer/tok/boot.iso")
    gpu_machine.set_boot_override("Cd", "Once")
    assert gpu_machine.state.boot_override_enabled == "Once"
    gpu_machine.reboot()
    assert after(gpu_machine, clock, TYPICAL.shutdown_s + BOOT_S).ssh_up
    assert gpu_machine.state.faults == {}


def test_a_stale_medium_blocks_and_boots_nothing(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("stale_media")
    assert gpu_machine.shown_media == "http://192.0.2.1/forgotten/boot.iso"
    with pytest.raises(HardwareRejected):
        gpu_machine.insert_media("http://installer/tok/boot.iso")
    gpu_machine.set_boot_override("Cd", "Once")
    gpu_machine.reboot()
    assert after(gpu_machine, clock, TYPICAL.shutdown_s + BOOT_S).ssh_up
    gpu_machine.eject_media()
    assert gpu_machine.shown_media is None


@pytest.mark.parametrize("flashed", [True, False])
def test_a_task_is_lost(gpu_machine: Machine, clock: Time, flashed: bool) -> None:
    gpu_machine.state.firmware["BIOS"].version = "0.9"
    gpu_machine.inject("firmware_task_lost", flashed=flashed)
    number = gpu_machine.start_update("BIOS", BIOS_URL)
    assert gpu_machine.task(number) is None
    assert gpu_machine.tasks() == []
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.task(number) is None
    assert gpu_machine.state.firmware["BIOS"].staged == ("2.4" if flashed else None)
    assert gpu_machine.start_update("BIOS", BIOS_URL) != number


def test_an_update_fails(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("firmware_fails", times=1)
    first = gpu_machine.start_update("BIOS", BIOS_URL)
    after(gpu_machine, clock, HOUR)
    second = gpu_machine.start_update("BIOS", BIOS_URL)
    after(gpu_machine, clock, HOUR)
    assert [gpu_machine.state.tasks[number].state for number in (first, second)] == ["Exception", "Completed"]


def test_power_on_conflicts_for_a_while(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("power_on_conflict", seconds=30)
    gpu_machine.power("force_off")
    after(gpu_machine, clock, TYPICAL.power_off_s)
    with pytest.raises(HardwareRejected, match="still powering off"):
        gpu_machine.power("on")
    clock.pass_by(30)
    gpu_machine.power("on")
    assert after(gpu_machine, clock, BOOT_S).ssh_up


def test_flashing_the_bios_resets_it_and_later_settings_survive(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("bios_flash_resets")
    gpu_machine.start_update("BIOS", BIOS_URL)
    after(gpu_machine, clock, HOUR)
    gpu_machine.stage_bios({"PowerProfile": "MaximumPerformance"})
    gpu_machine.reboot()
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.state.bios["SriovGlobalEnable"] == "Disabled"
    assert gpu_machine.state.bios["PowerProfile"] == "MaximumPerformance"


def test_post_hangs_until_the_power_goes(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("post_hang")
    gpu_machine.reboot()
    assert after(gpu_machine, clock, HOUR).state.phase == "post"
    gpu_machine.power("power_cycle")
    assert after(gpu_machine, clock, BOOT_S).ssh_up


@pytest.mark.parametrize(("order", "persistent", "back"), [
    ("graceful_restart", False, False), ("power_cycle", False, True), ("power_cycle", True, False),
])  # fmt: skip
def test_a_lost_gpu(gpu_machine: Machine, clock: Time, order: str, persistent: bool, back: bool) -> None:
    gpu_machine.inject("xid_79", gpu=2, persistent=persistent)
    assert gpu_machine.state.gpus[2].lost
    assert any("NVRM: Xid (PCI:0000:52:00): 79" in line for line in gpu_machine.system().kernel_log)
    gpu_machine.power(order)
    after(gpu_machine, clock, HOUR)
    assert gpu_machine.state.gpus[2].lost is not back
    assert any(": 79, " in line for line in gpu_machine.system().kernel_log) is not back
    assert ("xid_79" in gpu_machine.state.faults) is not back


@pytest.mark.parametrize("persistent", [True, False])
def test_ecc_errors_go_with_a_boot_unless_they_persist(gpu_machine: Machine, clock: Time, persistent: bool) -> None:
    gpu_machine.inject("ecc_errors", gpu=1, count=4, persistent=persistent)
    gpu = gpu_machine.state.gpus[1]
    assert (gpu.ecc_uncorrectable, gpu.remap_pending) == (4, True)
    gpu_machine.reboot()
    after(gpu_machine, clock, HOUR)
    assert (gpu.ecc_uncorrectable, gpu.remap_pending) == ((4, True) if persistent else (0, False))


def test_links_train_again_after_a_power_cycle(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("nvlink_down", gpu=0, links=2, persistent=False)
    assert gpu_machine.state.gpus[0].nvlinks_down == 2
    gpu_machine.power("power_cycle")
    assert after(gpu_machine, clock, HOUR).state.gpus[0].nvlinks_down == 0


def test_mig_is_lost_on_boot(clock: Time, mig_machine: Machine) -> None:
    assert len(mig_machine.state.gpus[0].mig_instances) == 2
    mig_machine.reboot()
    after(mig_machine, clock, HOUR)
    assert len(mig_machine.state.gpus[0].mig_instances) == 2
    mig_machine.inject("mig_lost_on_boot")
    mig_machine.reboot()
    after(mig_machine, clock, HOUR)
    assert mig_machine.state.gpus[0].mig_instances == []
    assert mig_machine.state.gpus[0].mig_enabled


def test_a_hung_host_comes_back_after_a_cold_boot_unless_it_persists(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("host_hung")
    assert (gpu_machine.ssh_transport(), gpu_machine.kubelet_running) == ("hang", False)
    gpu_machine.power("power_cycle")
    assert after(gpu_machine, clock, HOUR).kubelet_ready
    gpu_machine.inject("host_hung", persistent=True)
    gpu_machine.power("power_cycle")
    assert after(gpu_machine, clock, HOUR).ssh_transport() == "hang"


def test_a_kubelet_that_runs_and_is_not_ready(gpu_machine: Machine) -> None:
    gpu_machine.inject("kubelet_not_ready")
    assert (gpu_machine.kubelet_running, gpu_machine.kubelet_ready) == (True, False)


def test_an_installer_that_fails_once(clock: Time, wire_machine: Machine) -> None:
    wire_machine.inject("installer_fails")
    boot_installer(wire_machine, clock)
    reports = deliver(wire_machine, document(wire_machine))
    after(wire_machine, clock, TYPICAL.install_s)
    assert (reports[-1].phase, reports[-1].detail) == ("failed", "can't write the disk: Input/output error")
    assert [report.percent for report in reports[1:-1]] == [0, 10, 20, 30]
    assert wire_machine.state.power == "off"
    wire_machine.serve = None
    boot_disk(wire_machine, clock)
    assert wire_machine.state.os is None, "a half-written disk never boots"
    boot_installer(wire_machine, clock)
    deliver(wire_machine, document(wire_machine))
    after(wire_machine, clock, HOUR)
    boot_disk(wire_machine, clock)
    assert wire_machine.disk().version == "2027.01.0"


@pytest.mark.parametrize(("phase", "writes"), [("started", 0), ("writing", 1), ("written", 1)])
def test_an_installer_fails_in_each_phase(clock: Time, wire_machine: Machine, phase: str, writes: int) -> None:
    wire_machine.inject("installer_fails", phase=phase, why="because")
    boot_installer(wire_machine, clock)
    reports = deliver(wire_machine, document(wire_machine))
    after(wire_machine, clock, HOUR)
    assert (reports[-1].phase, reports[-1].detail) == ("failed", "because")
    assert (wire_machine.state.counters.writes, wire_machine.state.counters.installs) == (writes, 0)
    assert bool(wire_machine.state.disks) is (writes == 0)


def test_an_installer_that_dies_stays_on_and_says_nothing(clock: Time, wire_machine: Machine) -> None:
    wire_machine.inject("installer_dies", percent=60)
    boot_installer(wire_machine, clock)
    reports = deliver(wire_machine, document(wire_machine))
    after(wire_machine, clock, HOUR)
    assert reports[-1].percent == 60
    assert (wire_machine.state.power, wire_machine.state.phase) == ("on", "installer")


def test_an_installer_whose_reports_get_lost_installs_all_the_same(clock: Time, wire_machine: Machine) -> None:
    wire_machine.inject("installer_silent")
    boot_installer(wire_machine, clock)
    assert deliver(wire_machine, document(wire_machine)) == []
    after(wire_machine, clock, HOUR)
    assert wire_machine.state.power == "off"
    boot_disk(wire_machine, clock)
    assert wire_machine.disk().nonce == "n-1"


def test_the_wrong_disk_boots(clock: Time, wire_machine: Machine) -> None:
    wire_machine.inject("wrong_boot_disk")
    boot_installer(wire_machine, clock)
    other = wire_machine.state.drives[1].serial
    deliver(wire_machine, document(wire_machine, root_disk=RootDisk(serial=other)))
    after(wire_machine, clock, HOUR)
    boot_disk(wire_machine, clock)
    assert wire_machine.state.booted_disk == wire_machine.state.drives[0].serial  # L1
    assert wire_machine.state.disks[other].version == "2027.01.0"


def test_a_fault_on_a_machine_that_is_off_shows_when_it_runs(clock: Time, gpu_machine: Machine) -> None:
    gpu_machine.power("force_off")
    after(gpu_machine, clock, TYPICAL.power_off_s)
    gpu_machine.inject("xid_79", persistent=True)
    assert not gpu_machine.state.gpus[3].lost
    gpu_machine.power("on")
    assert after(gpu_machine, clock, HOUR).state.gpus[3].lost


def test_a_power_order_is_ignored(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("power_ignored")
    gpu_machine.power("force_restart")  # A9
    assert after(gpu_machine, clock, HOUR).state.counters.boots == 0
    gpu_machine.power("force_restart")
    assert after(gpu_machine, clock, HOUR).state.counters.boots == 1


def test_the_power_state_is_stale_for_a_reading_or_two(gpu_machine: Machine, clock: Time) -> None:
    assert gpu_machine.shown_power() == "on"
    gpu_machine.inject("stale_power", times=2)
    assert gpu_machine.shown_power() == "on"  # without a change no occurrence is used up
    gpu_machine.power("force_off")
    after(gpu_machine, clock, TYPICAL.power_off_s)
    assert [gpu_machine.shown_power() for _ in range(3)] == ["on", "on", "off"]
