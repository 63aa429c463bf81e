"""Power, POST, boot and installer: the events of a machine as time passes."""

from __future__ import annotations

import pytest

from reconciler.lab.hardware.machine import HardwareRejected, Machine, Rejection
from reconciler.lab.hardware.state import InstallerCall
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.model.install import InstallImage, MachineIdentity, RootDisk
from tests.lab.machines import BOOT_S, HOUR, Time, after, boot_disk, boot_installer, deliver, document


def test_a_graceful_restart_goes_through_shutdown_post_and_boot(gpu_machine: Machine, clock: Time) -> None:
    first = gpu_machine.system().boot_id
    gpu_machine.power("graceful_restart")
    assert not gpu_machine.ssh_up
    assert after(gpu_machine, clock, TYPICAL.shutdown_s).state.phase == "post"
    assert after(gpu_machine, clock, TYPICAL.post_s).state.phase == "os_booting"
    assert after(gpu_machine, clock, TYPICAL.os_boot_s).state.phase == "os_running"
    assert gpu_machine.system().boot_id != first
    assert (gpu_machine.state.counters.boots, gpu_machine.state.counters.power_cycles) == (1, 0)


def test_time_is_made_up_for_in_one_go_each_event_at_its_own_instant(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.reboot()
    after(gpu_machine, clock, 10 * HOUR)
    assert gpu_machine.system().booted_at == TYPICAL.shutdown_s + BOOT_S
    assert gpu_machine.next_due() is None


def test_kubelet_is_ready_a_while_after_the_boot(gpu_machine: Machine, clock: Time) -> None:
    assert gpu_machine.kubelet_ready
    gpu_machine.reboot()
    after(gpu_machine, clock, TYPICAL.shutdown_s + BOOT_S)
    assert gpu_machine.ssh_up
    assert not gpu_machine.kubelet_ready
    clock.pass_by(TYPICAL.kubelet_ready_s)
    assert gpu_machine.kubelet_ready


def test_power_orders_conflict_with_the_state_that_is_there(gpu_machine: Machine, clock: Time) -> None:
    with pytest.raises(HardwareRejected, match="already on") as refused:
        gpu_machine.power("on")
    assert refused.value.reason is Rejection.CONFLICT
    gpu_machine.power("force_off")
    with pytest.raises(HardwareRejected, match="already on"):  # still powering off (A7)
        gpu_machine.power("on")
    assert after(gpu_machine, clock, TYPICAL.power_off_s).state.power == "off"
    with pytest.raises(HardwareRejected, match="already off"):
        gpu_machine.power("graceful_off")
    gpu_machine.power("on")
    assert after(gpu_machine, clock, BOOT_S).ssh_up
    assert gpu_machine.state.counters.power_cycles == 1


def test_a_hung_system_never_shuts_down_but_can_be_forced(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.inject("host_hung")
    gpu_machine.power("graceful_off")
    assert after(gpu_machine, clock, HOUR).state.power == "on"  # C3
    gpu_machine.power("force_off")
    assert after(gpu_machine, clock, TYPICAL.power_off_s).state.power == "off"


def test_runtime_settings_end_with_the_boot_and_persisted_ones_do_not(gpu_machine: Machine, clock: Time) -> None:
    gpu_machine.sysctl_write("vm.swappiness", "77")
    gpu_machine.service_set("containerd", active=False)
    gpu_machine.write_file("/etc/sysctl.d/99-x.conf", "# ours\nkernel.numa_balancing = 0\n")
    gpu_machine.set_hostname("other")
    gpu_machine.reboot()
    system = after(gpu_machine, clock, TYPICAL.shutdown_s + BOOT_S).system()
    assert system.sysctls["vm.swappiness"] == "1"
    assert system.sysctls["kernel.numa_balancing"] == "0"
    assert system.services_active["containerd"]
    assert system.hostname == "other"


# --- installer ---


def test_an_installer_asks_for_its_document_until_it_gets_one(clock: Time, wire_machine: Machine) -> None:
    boot_installer(wire_machine, clock)
    run = wire_machine.state.installer
    assert run is not None
    assert run.wants == InstallerCall("http://installer/tok/install.json")
    wire_machine.answer(None)
    assert run.wants is None
    after(wire_machine, clock, TYPICAL.document_retry_s)
    assert run.wants == InstallerCall("http://installer/tok/install.json")
    deliver(wire_machine, document(wire_machine))
    after(wire_machine, clock, TYPICAL.install_s)
    assert wire_machine.state.power == "off"
    boot_disk(wire_machine, clock)
    disk = wire_machine.disk()
    assert (disk.image, disk.version, disk.kernel, disk.driver, disk.nonce) == (
        "ubuntu-gpu", "2027.01.0", "6.11.0-1", "575.10.01", "n-1",
    )  # fmt: skip
    assert wire_machine.system().hostname == "fresh"
    assert wire_machine.system().sysctls["vm.swappiness"] == "60"  # the new image lacks the old host configuration
    assert not wire_machine.kubelet_running  # and the membership
    assert wire_machine.state.media is None
    assert wire_machine.state.counters.installs == 1


def test_an_installer_reports_each_phase_and_ends_with_the_power_off(clock: Time, wire_machine: Machine) -> None:
    boot_installer(wire_machine, clock)
    reports = deliver(wire_machine, document(wire_machine))
    assert [report.phase for report in reports] == ["started", "writing"]
    after(wire_machine, clock, TYPICAL.install_s)
    assert [(report.phase, report.percent) for report in reports] == [
        ("started", None), *(("writing", percent) for percent in range(0, 100, 10)), ("written", None),
        ("installed", None),
    ]  # fmt: skip
    assert reports[2].detail == "33 MB/s"
    assert (wire_machine.state.power, wire_machine.state.installer) == ("off", None)


def test_an_installer_repeats_its_last_word_for_half_an_hour(clock: Time, wire_machine: Machine) -> None:
    """Contract v1: `installed` is told again until the server has it, and the machine is off then in any case."""
    boot_installer(wire_machine, clock)
    deliver(wire_machine, document(wire_machine))
    wire_machine.serve = lambda _url, body, _at: None if '"installed"' in (body or "") else ""
    after(wire_machine, clock, TYPICAL.install_s + 1790)
    assert wire_machine.state.power == "on"
    assert after(wire_machine, clock, 20).state.power == "off"
    boot_disk(wire_machine, clock)
    assert wire_machine.disk().nonce == "n-1"


def test_an_installer_that_nobody_heard_end_its_write_lets_nothing_boot(clock: Time, wire_machine: Machine) -> None:
    """Contract v1: without an answer to `written` there is no host key, and so no system."""
    boot_installer(wire_machine, clock)
    deliver(wire_machine, document(wire_machine))
    wire_machine.serve = lambda _url, _body, _at: None
    after(wire_machine, clock, TYPICAL.install_s + 2 * HOUR - 10)
    assert wire_machine.state.power == "on"
    assert after(wire_machine, clock, 1820).state.power == "off"  # `failed` is said for half an hour
    assert wire_machine.state.counters.installs == 0


def test_the_nonce_of_an_image_that_is_there_writes_nothing(clock: Time, wire_machine: Machine) -> None:
    for _ in range(2):
        boot_installer(wire_machine, clock)
        reports = deliver(wire_machine, document(wire_machine))
        after(wire_machine, clock, TYPICAL.install_s)
        wire_machine.serve = None
        wire_machine.eject_media()
    assert [report.phase for report in reports] == ["started", "installed"]
    assert (wire_machine.state.counters.writes, wire_machine.state.counters.installs) == (1, 1)
    assert wire_machine.state.power == "off"


def test_an_installer_without_a_document_gives_up_and_powers_off(clock: Time, wire_machine: Machine) -> None:
    boot_installer(wire_machine, clock)
    for _ in range(TYPICAL.document_tries):
        assert wire_machine.state.power == "on"
        wire_machine.answer(None)
        after(wire_machine, clock, TYPICAL.document_retry_s)
    assert wire_machine.state.power == "off"
    assert wire_machine.state.events[-2]["message"] == "Installer: got no document"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"root_disk": RootDisk(serial="NOT-HERE")}, "no disk matches serial NOT-HERE"),
        ({"root_disk": RootDisk(serial=None)}, "disks match serial None"),
        ({"machine": MachineIdentity(serial="OTHER", uuid=None)}, "the document is for serial OTHER"),
        ({"machine": MachineIdentity(serial=None, uuid="OTHER")}, "the document is for UUID OTHER"),
        ({"image": InstallImage(name="x", version="1", url="https://x/1", sha256="00")}, "https://x/1 answers 404"),
    ],
)
def test_a_document_that_does_not_fit_writes_nothing(
    clock: Time, wire_machine: Machine, change: dict[str, object], error: str
) -> None:
    before = dict(wire_machine.state.disks)
    boot_installer(wire_machine, clock)
    reports = deliver(wire_machine, document(wire_machine, **change))
    after(wire_machine, clock, HOUR)
    assert reports[-1].phase == "failed"
    assert error in reports[-1].detail
    assert wire_machine.state.disks == before
    assert (wire_machine.state.counters.writes, wire_machine.state.counters.installs) == (0, 0)
    boot_disk(wire_machine, clock)
    assert wire_machine.ssh_up  # the old image still boots


def test_what_is_no_document_fails_the_install(clock: Time, wire_machine: Machine) -> None:
    boot_installer(wire_machine, clock)
    wire_machine.serve = lambda _url, _body, _at: ""
    wire_machine.answer('{"node": "n0"}')
    assert wire_machine.state.power == "off"
    assert "Installer: hostname: Field required" in str(wire_machine.state.events)


def test_a_power_cut_during_the_install_leaves_nothing_that_boots(clock: Time, wire_machine: Machine) -> None:
    boot_installer(wire_machine, clock)
    deliver(wire_machine, document(wire_machine))
    after(wire_machine, clock, TYPICAL.install_s / 2)
    wire_machine.power("power_cycle")
    assert after(wire_machine, clock, HOUR).state.phase == "os_booting"
    assert not wire_machine.state.disks
    assert (wire_machine.state.counters.writes, wire_machine.state.counters.installs) == (1, 0)


def test_ejecting_under_an_installer_breaks_it(clock: Time, wire_machine: Machine) -> None:
    boot_installer(wire_machine, clock)
    wire_machine.eject_media()  # E1
    assert wire_machine.state.installer is not None
    assert wire_machine.state.installer.error == "the medium went away"
    assert after(wire_machine, clock, HOUR).state.power == "on"


def test_a_machine_without_an_image_finds_no_bootable_device(clock: Time, blank_machine: Machine) -> None:
    blank_machine.power("on")
    after(blank_machine, clock, HOUR)
    assert (blank_machine.state.phase, blank_machine.ssh_transport()) == ("os_booting", "down")
    assert blank_machine.state.events[-1]["message"] == "No bootable device"
    blank_machine.set_boot_override("Cd", "Once")  # after POST the override may be set
