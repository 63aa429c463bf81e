"""The lab's Redfish service, used by sushy, the library of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sushy
from sushy import auth as sushy_auth

from reconciler.lab.wire.redfish_quirks import EtagStyle
from tests.lab.redfish_bench import BIOS_IMAGE, BMC_IMAGE, INVENTORY, ISO, PASSWORD, SYSTEM, TASKS, USERNAME, Bench

pytestmark = pytest.mark.wire


@pytest.fixture
def root(bench: Bench) -> Iterator[sushy.Sushy]:
    with bench.sushy() as root:
        yield root


def test_system_and_its_parts(bench: Bench, root: sushy.Sushy) -> None:
    system, truth = root.get_system(), bench.machine.state
    assert (system.serial_number, system.uuid) == (truth.serial, truth.uuid)
    assert (system.manufacturer, system.model) == ("Supermicro", "SYS-821GE-TNHR")
    assert system.power_state is sushy.PowerState.ON
    assert system.status.health_rollup is sushy.Health.OK
    assert system.memory_summary.size_gib == 2048
    assert system.boot_progress.last_state is sushy.BootProgressStates.OS_RUNNING
    kinds = [processor.processor_type for processor in system.processors.get_members()]
    assert (kinds.count(sushy.ProcessorType.CPU), kinds.count(sushy.ProcessorType.GPU)) == (2, 8)
    nics = {nic.identity: nic for nic in system.ethernet_interfaces.get_members()}
    assert {nic.mac_address for nic in nics.values()} == {nic.mac for nic in truth.nics}
    assert nics["mlx5_0"].speed_mbps == 400_000
    (storage,) = system.storage.get_members()
    drives = {drive.serial_number: drive for drive in storage.drives}
    assert {drive.serial: drive.capacity_bytes for drive in truth.drives} == {
        serial: drive.capacity_bytes for serial, drive in drives.items()
    }
    assert drives[truth.drives[0].serial].identifiers[0].durable_name == truth.drives[0].wwn.removeprefix("eui.")


def test_chassis_sensors(root: sushy.Sushy) -> None:
    chassis = root.get_chassis()
    assert chassis.power_state is sushy.PowerState.ON
    temperatures = {sensor.name: sensor.reading_celsius for sensor in chassis.thermal.temperatures}
    assert temperatures["Inlet Temp"] == 23
    assert len(chassis.thermal.fans) == 10
    assert len(chassis.power.power_supplies) == 6


@pytest.mark.parametrize(
    ("reset", "wait", "power"),
    [
        (sushy.ResetType.FORCE_OFF, 5, sushy.PowerState.OFF),
        (sushy.ResetType.GRACEFUL_SHUTDOWN, 60, sushy.PowerState.OFF),
        (sushy.ResetType.GRACEFUL_RESTART, 300, sushy.PowerState.ON),
        (sushy.ResetType.FORCE_RESTART, 300, sushy.PowerState.ON),
        (sushy.ResetType.POWER_CYCLE, 300, sushy.PowerState.ON),
    ],
)
def test_resets(bench: Bench, root: sushy.Sushy, reset: sushy.ResetType, wait: float, power: sushy.PowerState) -> None:
    before = bench.machine.system().boot_id
    system = root.get_system()
    system.reset_system(reset)
    bench.pass_time(wait)
    system.refresh()
    assert system.power_state is power
    if power is sushy.PowerState.OFF:
        assert system.boot_progress.last_state is sushy.BootProgressStates.NONE
        system.reset_system(sushy.ResetType.ON)
        bench.pass_time(30)
        system.refresh()
        assert system.boot_progress.last_state is sushy.BootProgressStates.PCI_RESOURCE_CONFIG
        bench.pass_time(300)
    assert bench.machine.system().boot_id != before


def test_power_that_is_there_already_is_a_conflict(bench: Bench, root: sushy.Sushy) -> None:
    system = root.get_system()
    with pytest.raises(sushy.exceptions.HTTPError, match="PSU501") as refused:
        system.reset_system(sushy.ResetType.ON)
    assert refused.value.status_code == 409
    bench.machine.power("force_off")
    bench.pass_time(5)
    with pytest.raises(sushy.exceptions.HTTPError, match="PSU502"):
        system.reset_system(sushy.ResetType.FORCE_OFF)


def test_bios_settings_wait_for_a_reboot(bench: Bench, root: sushy.Sushy) -> None:
    bios = root.get_system().bios
    assert bios.supported_apply_times == [sushy.ApplyTime.ON_RESET]
    assert bios.pending_attributes == {}
    bios.set_attributes({"SriovGlobalEnable": "Enabled", "BootTimeout": 3}, apply_time=sushy.ApplyTime.ON_RESET)
    assert bios.pending_attributes == {"SriovGlobalEnable": "Enabled", "BootTimeout": 3}
    bios.refresh()
    assert bios.attributes["SriovGlobalEnable"] == "Disabled"
    root.get_system().reset_system(sushy.ResetType.FORCE_RESTART)
    bench.pass_time(300)
    bios.refresh()
    assert (bios.attributes["SriovGlobalEnable"], bios.attributes["BootTimeout"]) == ("Enabled", 3)
    assert bios.pending_attributes == {}


def test_bios_settings_are_taken_back_by_asking_for_what_is_in_force(bench: Bench, root: sushy.Sushy) -> None:
    bios = root.get_system().bios
    bios.set_attribute("SriovGlobalEnable", "Enabled")
    bios.set_attribute("SriovGlobalEnable", "Disabled")
    assert bios.pending_attributes == {}


def test_bios_reset_stages_the_factory_defaults(bench: Bench, root: sushy.Sushy) -> None:
    bench.machine.state.bios["PowerProfile"] = "Efficiency"
    bios = root.get_system().bios
    bios.reset_bios()
    assert bios.pending_attributes == {"PowerProfile": "Balanced"}


@pytest.mark.parametrize("attributes", [{"SriovGlobalEnable": "Perhaps"}, {"NoSuchThing": 1}, {"BootTimeout": "3"}])
def test_bios_refuses_what_it_does_not_know(bench: Bench, root: sushy.Sushy, attributes: dict[str, object]) -> None:
    """One invalid attribute fails the whole request, which names it (pitfall G1)."""
    with pytest.raises(sushy.exceptions.BadRequestError) as refused:
        root.get_system().bios.set_attributes({"SriovGlobalEnable": "Enabled"} | attributes)
    assert refused.value.related_properties == [f"#/Attributes/{name}" for name in attributes]
    assert bench.machine.state.pending_bios == {}


def test_bios_registry_says_what_is_allowed(root: sushy.Sushy) -> None:
    registry = root.get_system().bios.get_attribute_registry()
    entries = {entry.name: entry for entry in registry.registry_entries.attributes}
    sriov = entries["SriovGlobalEnable"]
    assert sriov.attribute_type == "Enumeration"
    assert [value["ValueName"] for value in sriov.allowable_values] == ["Enabled", "Disabled"]
    assert (entries["BootTimeout"].attribute_type, entries["BootTimeout"].lower_bound) == ("Integer", 0)
    assert entries["QuietBoot"].attribute_type == "Boolean"
    assert entries["AssetTag"].attribute_type == "String"


def test_secure_boot_changes_with_the_next_boot(bench: Bench, root: sushy.Sushy) -> None:
    secure_boot = root.get_system().secure_boot
    secure_boot.set_enabled(False)
    secure_boot.refresh()
    assert secure_boot.enabled is False
    assert secure_boot.current_boot is sushy.SecureBootCurrentBoot.ENABLED
    bench.machine.power("force_restart")
    bench.pass_time(300)
    secure_boot.refresh()
    assert secure_boot.current_boot is sushy.SecureBootCurrentBoot.DISABLED


def test_boot_override_is_for_one_boot(bench: Bench, root: sushy.Sushy) -> None:
    system = root.get_system()
    assert sushy.BootSource.CD in system.get_allowed_system_boot_source_values()
    assert sushy.BootSource.USB_CD not in system.get_allowed_system_boot_source_values()
    system.set_system_boot_options(
        target=sushy.BootSource.PXE,
        enabled=sushy.BootSourceOverrideEnabled.ONCE,
        mode=sushy.BootSourceOverrideMode.UEFI,
    )
    system.refresh()
    assert (system.boot.target, system.boot.enabled) == (sushy.BootSource.PXE, sushy.BootSourceOverrideEnabled.ONCE)
    system.reset_system(sushy.ResetType.FORCE_RESTART)
    bench.pass_time(300)
    system.refresh()
    assert system.boot.enabled is sushy.BootSourceOverrideEnabled.DISABLED


def test_boot_order_is_a_permutation_of_the_options(bench: Bench, root: sushy.Sushy) -> None:
    options = {option["Alias"]: option["Id"] for option in bench.get(f"{SYSTEM}/BootOptions?$expand=.")["Members"]}
    assert list(options) == bench.machine.state.boot_order == ["Hdd", "Pxe"]
    order = root.get_system().json["Boot"]["BootOrder"]
    assert order == [options["Hdd"], options["Pxe"]]
    for wrong in (order[:1], [order[0], order[0]], [*order, "Boot0003"], ["Hdd", "Pxe"], "Boot0001"):
        refused = bench.call("PATCH", SYSTEM, {"Boot": {"BootOrder": wrong}})
        assert refused.message_id == "PropertyValueNotInList"
    assert bench.call("PATCH", SYSTEM, {"Boot": {"BootOrder": order[::-1]}}).status == 200
    assert bench.machine.state.boot_order == ["Pxe", "Hdd"]


def test_boot_entries_may_have_any_name(bench: Bench) -> None:
    bench.machine.state.boot_order = ["Hdd", "Slot7", "Slot8"]
    options = {option["Id"]: option["Alias"] for option in bench.get(f"{SYSTEM}/BootOptions?$expand=.")["Members"]}
    assert list(options.values()) == ["Hdd", "Slot7", "Slot8"]
    assert bench.get(SYSTEM)["Boot"]["BootOrder"] == list(options)
    assert bench.call("PATCH", SYSTEM, {"Boot": {"BootOrder": list(options)[::-1]}}).status == 200
    assert bench.machine.state.boot_order == ["Slot8", "Slot7", "Hdd"]


def test_virtual_media_boots_the_installer(bench: Bench, root: sushy.Sushy) -> None:
    (slot,) = root.get_manager().virtual_media.get_members()
    assert not slot.inserted
    slot.insert_media(ISO)
    slot.refresh()
    assert (slot.image, slot.image_name, slot.inserted) == (ISO, "boot.iso", True)
    system = root.get_system()
    system.set_system_boot_options(target=sushy.BootSource.CD, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    system.reset_system(sushy.ResetType.FORCE_RESTART)
    bench.pass_time(250)
    assert bench.machine.state.installer is not None
    assert bench.machine.state.installer.medium == ISO
    system.refresh()
    assert system.boot_progress.last_state is sushy.BootProgressStates.OS_BOOT_STARTED
    slot.eject_media()
    slot.refresh()
    assert (slot.image, slot.inserted) == (None, False)


def test_virtual_media_refuses_a_second_medium_and_odd_urls(bench: Bench, root: sushy.Sushy) -> None:
    (slot,) = root.get_manager().virtual_media.get_members()
    with pytest.raises(sushy.exceptions.BadRequestError, match="different format"):
        slot.insert_media("http://10.20.0.2:8089/boot.iso?token=1")
    slot.insert_media(ISO)
    with pytest.raises(sushy.exceptions.HTTPError) as refused:
        slot.insert_media(ISO)
    assert refused.value.status_code == 409


def test_firmware_update_runs_as_a_task(bench: Bench, root: sushy.Sushy) -> None:
    service = root.get_update_service()
    monitor = service.simple_update(BIOS_IMAGE, targets=[f"{INVENTORY}/BIOS"], transfer_protocol="HTTPS")
    assert monitor.task_monitor_uri == f"{TASKS}/1"
    assert monitor.check_is_processing
    assert monitor.get_task().task_state is sushy.TaskState.RUNNING
    bench.pass_time(300)
    assert monitor.get_task().percent_complete == 50
    tasks = root.get_task_service().tasks
    assert tasks.summary == {"1": sushy.TaskState.RUNNING}
    with pytest.raises(sushy.exceptions.ServerSideError) as busy:
        service.simple_update(BMC_IMAGE)
    assert busy.value.status_code == 503
    bench.pass_time(300)
    assert not monitor.check_is_processing
    task = monitor.get_task()
    assert (task.task_state, task.task_status) == (sushy.TaskState.COMPLETED, sushy.Health.OK)
    assert bench.get(f"{INVENTORY}/BIOS")["Version"] == "2.3"
    bench.machine.power("force_restart")
    bench.pass_time(300)
    versions = {item.identity: item.version for item in service.firmware_inventory.get_members()}
    assert versions == {"BMC": "01.04.00", "BIOS": "2.4", "NIC0": "28.42.1000"}


def test_image_of_another_component_fails_the_task(bench: Bench, root: sushy.Sushy) -> None:
    monitor = root.get_update_service().simple_update(BMC_IMAGE, targets=[f"{INVENTORY}/BIOS"])
    bench.pass_time(10)
    task = monitor.get_task()
    assert (task.task_state, task.task_status) == (sushy.TaskState.EXCEPTION, sushy.Health.CRITICAL)
    assert task.messages[0].severity is sushy.Severity.CRITICAL


@pytest.mark.parametrize(
    ("uri", "targets"),
    [
        ("ftp://firmware.example.com/x.bin", None),
        ("https://firmware.example.com/unknown.bin", None),
        (BIOS_IMAGE, [f"{INVENTORY}/CPLD"]),
        (BIOS_IMAGE, [f"{INVENTORY}/BIOS", f"{INVENTORY}/BMC"]),
        (BIOS_IMAGE, ["BIOS"]),
    ],
)
def test_updates_that_name_no_component_are_refused(
    bench: Bench, root: sushy.Sushy, uri: str, targets: list[str] | None
) -> None:
    with pytest.raises(sushy.exceptions.BadRequestError):
        root.get_update_service().simple_update(uri, targets=targets)
    assert bench.machine.state.tasks == {}


def test_manager_resets_and_takes_its_sessions_with_it(bench: Bench) -> None:
    with bench.sushy() as root:
        manager = root.get_manager()
        assert manager.firmware_version == "01.04.00"
        assert manager.datetime == "2026-11-01T12:16:40+00:00"
        manager.reset_manager(sushy.ResetType.GRACEFUL_RESTART)
        with pytest.raises(sushy.exceptions.ConnectionError):
            root.get_manager()
        bench.pass_time(100)
        assert bench.server.open_sessions == 0
        assert bench.get(SYSTEM)["PowerState"] == "On"
        root.get_manager()  # sushy logs in again
        assert bench.server.open_sessions == 1
    assert bench.server.open_sessions == 0


def test_wrong_password_is_an_access_error(bench: Bench) -> None:
    with pytest.raises(sushy.exceptions.AccessError):
        sushy.Sushy(bench.url, verify=str(bench.trust.ca), auth=sushy_auth.SessionAuth(USERNAME, PASSWORD + "!"))


@pytest.mark.parametrize(
    ("style", "patches"),
    [
        (EtagStyle.STRONG, 1),
        (EtagStyle.WEAK, 2),
        (EtagStyle.MISSING, 1),
        (EtagStyle.EMPTY, 1),
        (EtagStyle.REFUSED, 2),
    ],
)
def test_sushy_copes_with_every_etag_style(make_bench: Callable[..., Bench], style: EtagStyle, patches: int) -> None:
    """Pitfall A1: sushy uses the strong form of a weak ETag, or no If-Match."""
    bench = make_bench(etags=style)
    with bench.sushy() as root:
        system = root.get_system()
        system.set_system_boot_options(target=sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    assert bench.machine.state.boot_override == "Pxe"
    assert bench.server.requests["PATCH", SYSTEM] == patches
