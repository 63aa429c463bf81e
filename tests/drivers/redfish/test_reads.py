"""Reads of a healthy BMC, and their cost in requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.redfish.bmc_gate import BmcRegistry
from reconciler.model.abilities import Abilities, Ability, BiosLimit, BootOption
from reconciler.model.observed import (
    Answered,
    BmcEvent,
    BmcTask,
    BootOverride,
    Drive,
    FirmwareItem,
    Manager,
    Nic,
    Part,
    RedfishHot,
    RedfishInventory,
    Sensor,
)
from reconciler.model.vocab import BootPhase, Health, Power
from tests.drivers.redfish.bench import BIOS, NOW, SETTINGS, SYSTEM, TASKS, Bench, machine, play, refusal


async def hot(bmc: RedfishBmc) -> RedfishHot:
    found = await bmc.hot()
    assert isinstance(found, Answered), found
    return found.value


async def inventory(bmc: RedfishBmc) -> RedfishInventory:
    found = await bmc.inventory()
    assert isinstance(found, Answered), found
    return found.value


def test_hot() -> None:
    async def steps(_: Bench, bmc: RedfishBmc) -> Answered[RedfishHot]:
        found = await bmc.hot()
        assert isinstance(found, Answered)
        return found

    found = play(machine(), steps)
    assert found.at == NOW
    assert found.value == RedfishHot(
        manufacturer="Supermicro",
        model="SYS-821GE-TNHR",
        serial="S889914X3710910",
        uuid="38947555-7742-3448-3784-823347823834",
        power=Power.ON,
        boot_phase=BootPhase.OS_RUNNING,
        boot_override=BootOverride("Disabled", "None", ("None", "Pxe", "Cd", "UsbCd", "Hdd")),
        pending_bios={},
        tasks=(),
        health=Health.OK,
        etag='"1"',
        unknown={"indicator": "the BMC shows no locator LED"},
    )


def test_a_reading_is_dated_by_the_clock_of_all_other_sources_though_pauses_go_by_one_that_nobody_sets() -> None:
    """Else the loop would take each for one of later once its clock was set back, and read all of it every time."""
    wall = NOW - timedelta(minutes=37)

    async def steps(_bench: Bench, bmc: RedfishBmc) -> None:
        assert (await bmc.hot()).at == (await bmc.inventory()).at == wall

    play(machine(), steps, bmc_registry=BmcRegistry(lambda: NOW, dates=lambda: wall))


def test_inventory() -> None:
    async def steps(_: Bench, bmc: RedfishBmc) -> RedfishInventory:
        return await inventory(bmc)

    assert play(machine(), steps) == RedfishInventory(
        bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1", "BootTimeout": 5, "QuietBoot": True},
        secure_boot=True,
        boot_order=("Pxe", "Hdd", "Pxe"),
        firmware={"BIOS": FirmwareItem("2.4", True, "x"), "BMC": FirmwareItem("01.05.03", True, "x")},
        memory_bytes=128 * 2**30,
        dimms=2,
        processors=2,
        nics=(Nic("eno1", "3c:ec:ef:00:00:01", True, 10000),),
        drives=(
            Drive(
                "0",
                "S6C1NA0TA04209",
                "eui.0025389a21013360",
                "SAMSUNG MZQL2960",
                960197124096,
                Health.OK,
                erasable=False,
            ),
        ),
        sensors=(
            Sensor("Inlet", "temperature", 21.0, "C", Health.OK, "1"),
            Sensor("FAN1", "fan", 4200.0, "RPM", Health.WARNING, "1"),
            Sensor("System", "power", 2161.0, "W", Health.OK, "1"),
            Sensor("12V", "voltage", 12.1, "V", Health.OK, "1"),
        ),
        events=(
            BmcEvent("1", "2026-11-01T00:00:00Z", Health.OK, "Log cleared", age_s=20.375 * 86400),
            BmcEvent("2", "2026-11-02T00:00:00Z", Health.CRITICAL, "PSU lost", age_s=19.375 * 86400),
        ),
        manager=Manager("ASPEED", "01.05.03", datetime(2026, 11, 21, 9, tzinfo=UTC)),
        parts=(
            Part("dimm", "A1", Health.OK),
            Part("dimm", "A2", Health.OK),
            Part("chassis", "1", None),
            Part("fan", "1/FAN1", Health.WARNING),
        ),
        unknown={"firmware.NIC0": "Version is 'n/a'"},
        integrity=(),
        boot_options=tuple(BootOption(f"Boot000{n}", kind, "x") for n, kind in ((1, "Pxe"), (2, "Hdd"), (3, "Pxe"))),
        abilities=Abilities(
            lacks=dict.fromkeys(map(str, Ability), "")
            | {
                "http_boot": "the BMC offers no boot from an HTTP URI",
                "measurements": "the BMC has no ComponentIntegrity, and hands on no measurements of components",
            },
            bios={
                "SriovGlobalEnable": BiosLimit("Enumeration", allowed=("Enabled", "Disabled")),
                "NumaNodesPerSocket": BiosLimit("Enumeration", allowed=("NPS1", "NPS4")),
                "BootTimeout": BiosLimit("Integer", least=1, most=60),
                "QuietBoot": BiosLimit("Boolean"),
            },
            boot_targets=("None", "Pxe", "Cd", "UsbCd", "Hdd"),
            reset_types=("On", "ForceOff", "GracefulShutdown", "GracefulRestart"),
            firmware_ways=("SimpleUpdate",),
        ),
    )


def test_a_steady_pass_needs_at_most_six_gets_and_no_login() -> None:
    """It takes three GETs; five with all settings listed (HPE) and the override in a settings object (AMI)."""
    bench = machine()

    async def steps(bench: Bench, bmc: RedfishBmc) -> tuple[list[str], list[str]]:
        await hot(bmc)
        bench.calls.clear()
        await hot(bmc)
        quiet = bench.gets()
        bench.documents[SETTINGS]["Attributes"] = dict(bench.documents[BIOS]["Attributes"])
        bench.documents[SYSTEM]["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": f"{SYSTEM}/SD"}}
        bench.documents[f"{SYSTEM}/SD"] = {
            "Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Cd"}
        }
        bench.calls.clear()
        found = await hot(bmc)
        assert found.pending_bios == {}
        assert found.boot_override is not None
        assert found.boot_override.enabled == "Once"
        return quiet, bench.gets()

    quiet, busy = play(bench, steps)
    assert quiet == [SYSTEM, SETTINGS, TASKS]
    assert busy == [SYSTEM, f"{SYSTEM}/SD", SETTINGS, BIOS, TASKS]
    assert bench.logins == 1


def test_running_tasks_are_followed_and_finished_ones_are_not_read_again() -> None:
    bench = machine()

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await hot(bmc)
        bench.documents[f"{TASKS}/2"] = {"Id": "2", "TaskState": "Running", "PercentComplete": 40}
        bench.documents[TASKS]["Members"].append({"@odata.id": f"{TASKS}/2"})
        assert (await hot(bmc)).tasks == (BmcTask(f"{TASKS}/2", "Running", done=False, ok=None, percent=40),)
        bench.documents[f"{TASKS}/2"]["TaskState"] = "Completed"
        assert (await hot(bmc)).tasks == ()
        bench.calls.clear()
        await hot(bmc)
        assert bench.gets() == [SYSTEM, SETTINGS, TASKS]

    play(bench, steps)


def test_a_burst_of_tasks_stays_within_six_gets() -> None:
    """Expanded where the BMC can; else a part each pass, and tasks are unknown until all are read."""

    def bench(*, expands: bool) -> Bench:
        made = machine()
        if not expands:
            made.documents["/redfish/v1/"]["ProtocolFeaturesSupported"] = {}
        return made

    async def steps(bench: Bench, bmc: RedfishBmc) -> list[int | None]:
        await hot(bmc)
        for number in range(2, 9):
            link = {"@odata.id": f"{TASKS}/{number}"}
            bench.documents[f"{TASKS}/{number}"] = {**link, "Id": str(number), "TaskState": "Completed"}
            bench.documents[TASKS]["Members"].append(link)
        known: list[int | None] = []
        for _ in range(4):
            bench.calls.clear()
            found = (await hot(bmc)).tasks
            assert len(bench.gets()) <= 6
            known.append(None if found is None else len(found))
        return known

    assert play(bench(expands=True), steps) == [0, 0, 0, 0]
    assert play(bench(expands=False), steps) == [None, None, 0, 0]


def test_pending_attributes() -> None:
    """Dell lists modified ones alone, and shows them as if in force; others may list all (A11)."""

    def bench(maker: str) -> Bench:
        made = machine()
        made.documents[SYSTEM]["Manufacturer"] = maker
        made.documents[SYSTEM]["SKU"] = "F54P1G3"
        made.documents[BIOS]["Attributes"]["SriovGlobalEnable"] = "Enabled"
        made.documents[SETTINGS]["Attributes"] = {"SriovGlobalEnable": "Enabled", "BootTimeout": 9, "Password": None}
        return made

    async def steps(_: Bench, bmc: RedfishBmc) -> tuple[Any, Any, Any]:
        found = await hot(bmc)
        return found.pending_bios, found.serial, (await inventory(bmc)).bios

    pending, serial, bios = play(bench("Dell Inc."), steps)
    assert pending == {"SriovGlobalEnable": "Enabled", "BootTimeout": 9}
    assert serial == "F54P1G3"
    assert bios == {"NumaNodesPerSocket": "NPS1", "QuietBoot": True}  # the others are in force only after a boot

    pending, serial, bios = play(bench("HPE"), steps)
    assert pending == {"BootTimeout": 9}
    assert serial == "S889914X3710910"
    assert bios["SriovGlobalEnable"] == "Enabled"


def test_the_system_of_the_host_is_chosen_not_its_baseboard() -> None:
    bench = machine()
    board = "/redfish/v1/Systems/HGX_Baseboard_0"
    bench.documents["/redfish/v1/Systems"]["Members"].insert(0, {"@odata.id": board})
    bench.documents[board] = {"Id": "HGX_Baseboard_0", "Manufacturer": "NVIDIA", "UUID": "0" * 8, "PowerState": "On"}

    async def steps(bench: Bench, bmc: RedfishBmc) -> str | None:
        bench.answer("GET", SYSTEM, 500)
        silent = await bmc.hot()
        assert not isinstance(silent, Answered)  # rather nothing than the baseboard
        return (await hot(bmc)).model

    assert play(bench, steps) == "SYS-821GE-TNHR"


def test_collections_with_pages_and_without_expand() -> None:
    bench = machine()
    bench.documents["/redfish/v1/"]["ProtocolFeaturesSupported"] = {}
    memory = bench.documents[f"{SYSTEM}/Memory"]
    first, *rest = memory["Members"]
    memory["Members"] = [first]
    memory["Members@odata.nextLink"] = f"{SYSTEM}/MemoryPage2"
    bench.documents[f"{SYSTEM}/MemoryPage2"] = {"Members": rest}

    async def steps(_: Bench, bmc: RedfishBmc) -> int | None:
        return (await inventory(bmc)).dimms

    assert play(bench, steps) == 2


def test_a_collection_that_lacks_a_member_is_unknown() -> None:
    """A DIMM that can't be read makes the count unknown, not one less."""
    bench = machine()
    bench.documents["/redfish/v1/"]["ProtocolFeaturesSupported"] = {}

    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        bench.answer("GET", f"{SYSTEM}/Memory/A2", 500)
        bench.answer("GET", f"{SYSTEM}/EthernetInterfaces/eno1", refusal(404, "ResourceMissingAtURI"))
        return await inventory(bmc)

    found = play(bench, steps)
    assert (found.dimms, found.nics) == (None, None)
    assert f"GET {SYSTEM}/Memory/A2: HTTP 500" in found.unknown["dimms"]
    assert found.memory_bytes == 128 * 2**30  # the system's summary knows it too
    assert found.drives is not None
    assert found.firmware is not None


def test_expand_that_is_claimed_and_fails() -> None:
    bench = machine()

    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        async def rule(call: Any) -> Any:
            return refusal(501, "QueryNotSupported") if "$expand" in call.query else None

        bench.rules.append(rule)
        await inventory(bmc)
        bench.calls.clear()
        found = await inventory(bmc)
        assert not any("$expand" in path for path in bench.gets())
        return found

    assert play(bench, steps).dimms == 2
