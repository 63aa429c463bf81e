"""Variants of behaviour among BMCs, and what the standard allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from sushy.connector import Connector

from reconciler.drivers.redfish import RedfishBmc, logs
from reconciler.model.errors import Failure
from reconciler.model.observed import Answered, Drive, RedfishInventory, Sensor, Silent
from reconciler.model.ports import FirmwareFile
from reconciler.model.vocab import BootPhase, Health, UnknownReason
from tests.drivers.redfish.bench import (
    BIOS,
    CD,
    INVENTORY,
    MANAGER,
    ROOT,
    SESSIONS,
    SETTINGS,
    SYSTEM,
    TASKS,
    UPDATE,
    Bench,
    Call,
    machine,
    play,
    refusal,
)
from tests.drivers.redfish.test_reads import hot, inventory
from tests.drivers.redfish.test_writes import ISO, failure

SEL = f"{SYSTEM}/LogServices/SEL/Entries"


def read_inventory(change: Callable[[Bench], None]) -> RedfishInventory:
    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        change(bench)
        return await inventory(bmc)

    return play(machine(), steps)  # type: ignore[no-any-return]  # play returns what its steps return


# --- collections -------------------------------------------------------------------------------------------------


def log(bench: Bench, count: int, *, newest_first: bool) -> None:
    """A log of so many entries, in pages of 50 that hold them."""
    entries = [
        {
            "@odata.id": f"{SEL}/{n}",
            "Id": str(n),
            "Created": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z",
            "Message": "x",
        }
        for n in range(1, count + 1)
    ]
    entries = entries[::-1] if newest_first else entries
    for start in range(0, count, 50):
        page = SEL if start == 0 else f"{SEL}/page{start}"
        bench.documents[page] = {"Members": entries[start : start + 50]}
        if start + 50 < count:
            bench.documents[page]["Members@odata.nextLink"] = f"{SEL}/page{start + 50}"


@pytest.mark.parametrize(("newest_first", "pages"), [(True, 4), (False, 12)])
def test_a_long_log_gives_its_last_two_hundred(newest_first: bool, pages: int) -> None:
    """A log that begins with its newest entries is read no further than needed."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        log(bench, 600, newest_first=newest_first)
        found = await inventory(bmc)
        assert len([path for path in bench.gets() if path.startswith(SEL)]) == pages
        return found

    events = play(machine(), steps).events
    assert (len(events), events[0].id, events[-1].id) == (200, "401", "600")


@pytest.mark.parametrize(
    ("count", "at", "read", "told"),
    [
        (80, "", 80, ""),  # without a time, any may be new
        (80, "2026-01-01T00:00:00Z", 50, ""),
        (201, "", 200, ""),  # and nobody can tell which is
        (201, "2026-11-21T08:00:00Z", 200, "it gives 200 of its 201 entries in 200 requests"),
    ],
    ids=["undated", "old", "undated and many", "new"],
)
def test_a_log_of_links_is_read_back_to_what_is_old(count: int, at: str, read: int, told: str) -> None:
    def change(bench: Bench) -> None:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        bench.documents[SEL] = {"Members": [{"@odata.id": f"{SEL}/{n}"} for n in range(1, count + 1)]}
        for n in range(1, count + 1):
            bench.documents[f"{SEL}/{n}"] = {"Id": str(n), "Message": "x", "Severity": "Odd", "Created": at}

    found = read_inventory(change)
    assert found.events is not None
    assert (len(found.events), found.events[-1].id) == (read, str(count))
    assert told in found.unknown.get("events", "")
    assert bool(told) == ("events" in found.unknown)


def test_a_slow_bmc_with_a_log_of_links_has_told_what_is_new_if_anything_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LONGEST_S", 0.0)

    def change(bench: Bench, at: str) -> None:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        bench.documents[SEL] = {"Members": [{"@odata.id": f"{SEL}/{n}"} for n in range(1, 81)]}
        for n in range(1, 81):
            bench.documents[f"{SEL}/{n}"] = {"Id": str(n), "Message": "x", "Severity": "Odd", "Created": at}

    quiet = read_inventory(lambda bench: change(bench, "2026-01-01T00:00:00Z"))
    assert "events" not in quiet.unknown
    flooded = read_inventory(lambda bench: change(bench, "2026-11-21T08:00:00Z"))
    assert "of its 80 entries in 0 s" in flooded.unknown["events"]


def test_the_log_of_the_manager_where_the_system_has_none() -> None:
    def change(bench: Bench) -> None:
        del bench.documents[SYSTEM]["LogServices"]
        services = f"{MANAGER}/LogServices"
        bench.documents[MANAGER]["LogServices"] = {"@odata.id": services}
        bench.documents[services] = {"Members": [{"@odata.id": f"{services}/Lclog"}, {"@odata.id": f"{services}/Sel"}]}
        bench.documents[f"{services}/Sel"] = {"Id": "Sel", "Entries": {"@odata.id": SEL}}

    events = read_inventory(change).events
    assert events is not None
    assert [event.id for event in events] == ["1", "2"]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"Members": None}, "has no Members"),
        ({"Members": [{"Id": "1"}]}, "without @odata.id"),
        ({"Members": [], "Members@odata.nextLink": "https://192.0.2.9/next"}, "names a next page that is no path"),
        ({"Members": [], "Members@odata.nextLink": f"{SYSTEM}/Memory"}, "nothing new"),
    ],
)
def test_lists_that_can_not_be_read_to_their_end(broken: dict[str, Any], why: str) -> None:
    def change(bench: Bench) -> None:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        bench.documents[f"{SYSTEM}/Memory"] = broken

    found = read_inventory(change)
    assert found.dimms is None
    assert why in found.unknown["dimms"]


# --- parts of the inventory --------------------------------------------------------------------------------------


def test_simple_storage() -> None:
    def change(bench: Bench) -> None:
        del bench.documents[SYSTEM]["Storage"]
        bench.documents[SYSTEM]["SimpleStorage"] = {"@odata.id": f"{SYSTEM}/SimpleStorage"}
        bench.documents[f"{SYSTEM}/SimpleStorage"] = {"Members": [{"@odata.id": f"{SYSTEM}/SimpleStorage/1"}]}
        bench.documents[f"{SYSTEM}/SimpleStorage/1"] = {
            "@odata.id": f"{SYSTEM}/SimpleStorage/1",
            "Id": "1",
            "Devices": [{"Name": "SATA 0", "Model": "X"}, {"Name": "SATA 1", "Status": {"State": "Absent"}}],
        }

    assert read_inventory(change).drives == (Drive("SATA 0", model="X", erasable=False),)


def test_sensors_as_resources_of_their_own() -> None:
    sensors = "/redfish/v1/Chassis/1/Sensors"
    ok = {"State": "Enabled", "Health": "OK"}
    rows = [
        {"Id": "t", "Name": "GPU", "ReadingType": "Temperature", "Reading": 40.5, "Status": ok},
        {"Id": "u", "Name": "lost", "ReadingType": "Temperature", "Reading": -524288, "Status": ok},
        {"Id": "f", "Name": "Fan", "ReadingType": "Percent", "PhysicalContext": "Fan", "Reading": 35, "Status": ok},
        {"Id": "e", "Name": "Energy", "ReadingType": "EnergykWh", "Reading": 1, "Status": ok},
        {"Id": "v", "Name": "12V", "ReadingType": "Voltage", "Reading": 99, "ReadingRangeMin": 0, "ReadingRangeMax": 20}
        | {"Status": ok},
    ]

    def change(bench: Bench) -> None:
        chassis = bench.documents["/redfish/v1/Chassis/1"]
        del chassis["Thermal"], chassis["Power"]
        chassis["Sensors"] = {"@odata.id": sensors}
        bench.documents[sensors] = {"Members": [{"@odata.id": f"{sensors}/{row['Id']}"} for row in rows]}
        for row in rows:
            bench.documents[f"{sensors}/{row['Id']}"] = {"@odata.id": f"{sensors}/{row['Id']}", **row}

    assert read_inventory(change).sensors == (
        Sensor("GPU", "temperature", 40.5, "C", Health.OK, "1"),
        Sensor("lost", "temperature", None, "C", Health.OK, "1"),
        Sensor("Fan", "fan", 35.0, "%", Health.OK, "1"),
        Sensor("Energy", "energykwh", 1.0, "", Health.OK, "1"),
        Sensor("12V", "voltage", None, "V", Health.OK, "1"),
    )


@pytest.mark.parametrize(
    ("listed", "count"), [([("CPU", "Enabled"), ("CPU", "Absent"), ("GPU", "Enabled")], 1), ([], None)]
)
def test_processors_that_are_only_listed(listed: list[tuple[str, str]], count: int | None) -> None:
    where = f"{SYSTEM}/Processors"

    def change(bench: Bench) -> None:
        bench.documents[SYSTEM].update(ProcessorSummary={"Count": 0}, Processors={"@odata.id": where})
        bench.documents[where] = {"Members": [{"@odata.id": f"{where}/{n}"} for n in range(len(listed))]}
        for n, (kind, state) in enumerate(listed):
            bench.documents[f"{where}/{n}"] = {
                "@odata.id": f"{where}/{n}", "Id": str(n), "ProcessorType": kind, "Status": {"State": state},
            }  # fmt: skip

    assert read_inventory(change).processors == count


def test_boot_order_by_alias() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        boot = bench.documents[SYSTEM]["Boot"]
        boot.update(BootOrderPropertySelection="AliasBootOrder", AliasBootOrder=["Hdd", "Pxe"])
        assert (await inventory(bmc)).boot_order == ("Hdd", "Pxe")
        await bmc.set_boot_order(["pxe"])
        assert boot["AliasBootOrder"] == ["Pxe", "Hdd"]

    play(machine(), steps)


def test_boot_options_without_alias_keep_their_references() -> None:
    def change(bench: Bench) -> None:
        for n in (1, 2, 3):
            bench.documents[f"{SYSTEM}/BootOptions/Boot000{n}"]["Alias"] = None

    assert read_inventory(change).boot_order == ("Boot0001", "Boot0002", "Boot0003")


def test_boot_options_that_can_not_be_read_leave_the_order_unknown() -> None:
    """References would look like another order than the aliases of the spec."""

    def change(bench: Bench) -> None:
        del bench.documents[f"{SYSTEM}/BootOptions"]

    assert read_inventory(change).boot_order is None


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("Not Present", "Enabled"), ("-*", "Disabled"), ("42S-*", "Enabled"), ("version not available", "Enabled"),
        (None, "Disabled"),
    ],
)  # fmt: skip
def test_firmware_that_is_not_installed_is_no_component(version: str | None, state: str) -> None:
    """Supermicro, Lenovo and BlueField list it, as Enabled or Disabled (NVIDIA/libredfish, tests/mockups)."""

    def change(bench: Bench) -> None:
        where = f"{INVENTORY}/Backup_BIOS"
        bench.documents[INVENTORY]["Members"].append({"@odata.id": where})
        status = {"State": state, "Health": "OK"}
        bench.documents[where] = {"@odata.id": where, "Id": "Backup_BIOS", "Version": version, "Status": status}

    found = read_inventory(change)
    assert found.firmware is not None
    assert "Backup_BIOS" not in found.firmware
    assert "firmware.Backup_BIOS" not in found.unknown


@pytest.mark.parametrize(("make", "id_"), [("Lenovo", "ToManager"), ("Supermicro", "usb0")])
def test_the_hosts_link_to_its_own_bmc_is_no_interface_of_the_host(make: str, id_: str) -> None:
    """Of NVIDIA/libredfish, tests/mockups/lenovo; on any make the link to a HostInterface says so."""
    where = f"{SYSTEM}/EthernetInterfaces/{id_}"

    def change(bench: Bench) -> None:
        bench.documents[SYSTEM].update(Manufacturer=make)
        listed = [f"{SYSTEM}/EthernetInterfaces/eno1", where]
        bench.documents[f"{SYSTEM}/EthernetInterfaces"]["Members"] = [{"@odata.id": uri} for uri in listed]
        bench.documents[where] = {
            "@odata.id": where, "Id": id_, "Name": "Host Ethernet Interface", "MACAddress": "0a:8f:c3:a5:8a:71",
            "Status": {"Health": "OK", "State": "Disabled"}, "InterfaceEnabled": False, "LinkStatus": "LinkDown",
            "Links": {"HostInterface": {"@odata.id": f"{MANAGER}/HostInterfaces/1"}},
        }  # fmt: skip

    nics = read_inventory(change).nics
    assert nics is not None
    assert [nic.id for nic in nics] == ["eno1"]


def test_a_log_without_entries_gives_way_to_one_that_has_them() -> None:
    """Of NVIDIA/libredfish, tests/mockups/lenovo: its SEL can only be cleared; its events are in the platform log."""
    logs = f"{SYSTEM}/LogServices"

    def change(bench: Bench) -> None:
        bench.documents[logs] = {
            "Members": [{"@odata.id": f"{logs}/{name}"} for name in ("PlatformLog", "AuditLog", "ActiveLog", "SEL")]
        }
        bench.documents[f"{logs}/SEL"] = {"Id": "SEL", "MaxNumberOfRecords": 511, "OverWritePolicy": "NeverOverWrites"}
        for name in ("PlatformLog", "AuditLog"):
            entries = f"{logs}/{name}/Entries"
            bench.documents[f"{logs}/{name}"] = {"Id": name, "Entries": {"@odata.id": entries}}
            bench.documents[entries] = {
                "Members": [
                    {
                        "@odata.id": f"{entries}/1", "Id": "1", "EntryType": "Oem", "OemRecordFormat": "Lenovo",
                        "Created": "2024-07-18T22:00:55.851+00:00", "EventId": "0x806f001b1f02ffff", "Severity": "OK",
                        "Message": f"{name}: Front USB Detect has been detected.",
                        "Oem": {"Lenovo": {"LenovoMessageID": "DMTF0264", "Serviceable": "Not Serviceable"}},
                    }
                ]
            }  # fmt: skip

    events = read_inventory(change).events
    assert events is not None
    assert [event.message for event in events] == ["PlatformLog: Front USB Detect has been detected."]


def test_a_settings_object_without_attributes_has_nothing_pending() -> None:
    """Supermicro's /Bios/SD (NVIDIA/libredfish, tests/mockups/supermicro)."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        del bench.documents[SETTINGS]["Attributes"]
        assert (await hot(bmc)).pending_bios == {}
        await bmc.stage_bios({"QuietBoot": False})
        assert (await hot(bmc)).pending_bios == {"QuietBoot": False}
        bench.documents[SETTINGS]["Attributes"] = "broken"
        assert (await hot(bmc)).pending_bios is None

    play(machine(), steps)


def test_a_bios_without_a_settings_object_takes_values_itself() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        del bench.documents[BIOS]["@Redfish.Settings"]
        assert (await hot(bmc)).pending_bios == {}
        await bmc.stage_bios({"QuietBoot": False})
        assert bench.sent("PATCH")[0].path == BIOS
        assert bench.documents[BIOS]["Attributes"]["QuietBoot"] is False
        assert (await hot(bmc)).pending_bios == {}
        await bmc.clear_bios()

    play(machine(), steps)


def test_firmware_listed_twice_with_two_versions_is_unknown() -> None:
    def change(bench: Bench) -> None:
        bench.documents[SYSTEM].update(Manufacturer="Dell Inc.", SKU="F54P1G3")
        ids = {"Installed-1-2.0__BIOS": "2.0", "Current-1-1.9__BIOS": "1.9", "Installed-2-7__iDRAC": "7"}
        bench.documents[INVENTORY]["Members"] = [{"@odata.id": f"{INVENTORY}/{id_}"} for id_ in ids]
        for id_, version in ids.items():
            bench.documents[f"{INVENTORY}/{id_}"] = {"@odata.id": f"{INVENTORY}/{id_}", "Id": id_, "Version": version}

    found = read_inventory(change)
    assert found.firmware is not None
    assert set(found.firmware) == {"iDRAC"}
    assert found.unknown["firmware.BIOS"] == "listed as both 2.0 and 1.9"


@pytest.mark.parametrize(
    ("change", "phase"),
    [
        ({"BootProgress": {"LastState": "SystemHardwareInitializationComplete"}}, None),  # Supermicro stays there
        ({"BootProgress": {"LastState": "OEM", "OemLastState": "OsIsRunning"}}, BootPhase.OS_RUNNING),
        ({"BootProgress": {"LastState": "OEM", "OemLastState": "Brewing"}}, None),
        ({"BootProgress": {"LastState": "None"}}, None),
        ({"BootProgress": {"LastState": "SetupEntered"}}, BootPhase.POST),
        ({"BootProgress": {"LastState": "OSRunning"}, "PowerState": "Off"}, BootPhase.OFF),
        ({"BootProgress": {"LastState": "OSRunning"}, "PowerState": None}, None),
        ({"BootProgress": {}, "Manufacturer": "HPE", "Oem": {"Hpe": {"PostState": "InPost"}}}, BootPhase.POST),
        ({"BootProgress": {}, "Manufacturer": "HPE", "Oem": {"Hpe": {"PostState": "FinishedPost"}}}, None),
        ({"BootProgress": {"LastState": "OSRunning"}, "Manufacturer": None}, None),
    ],
)
def test_boot_phases(change: dict[str, Any], phase: BootPhase | None) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> BootPhase | None:
        bench.documents[SYSTEM].update(change)
        found = await hot(bmc)
        assert (found.boot_phase is None) is ("boot_phase" in found.unknown)
        return found.boot_phase

    assert play(machine(), steps) is phase


# --- login and URIs ----------------------------------------------------------------------------------------------


def test_a_root_that_wants_a_login() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        async def guard(call: Call) -> web.Response | None:
            anonymous = call.path == ROOT and "X-Auth-Token" not in call.headers
            return refusal(401, "NoValidSession") if anonymous else None

        bench.rules.append(guard)
        await hot(bmc)
        assert bench.logins == 1

    play(machine(), steps)


def test_a_session_that_is_named_in_the_body() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.tokens.add("t")
        body = web.json_response({"@odata.id": f"{SESSIONS}/t"}, status=201, headers={"X-Auth-Token": "t"})
        bench.answer("POST", SESSIONS, body)
        await hot(bmc)
        await bmc.close()
        assert not bench.tokens

    play(machine(), steps)


def test_a_login_without_a_token_is_malformed() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", SESSIONS, 201)
        found = await bmc.hot()
        assert isinstance(found, Silent)
        assert found.reason is UnknownReason.MALFORMED

    play(machine(), steps)


def test_a_login_that_times_out_is_a_timeout_and_may_be_tried_again() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        async def hang(call: Call) -> None:
            if call.path == SESSIONS and bench.logins == 0:
                bench.logins += 1
                await asyncio.sleep(5)

        bench.rules.append(hang)
        found = await bmc.hot()
        assert isinstance(found, Silent)
        assert found.reason is UnknownReason.TIMEOUT
        await hot(bmc)

    play(machine(), steps, read_timeout=0.4)


def test_other_uris_after_an_update_of_the_bmc() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await hot(bmc)
        bench.documents["/redfish/v1/Systems/Self"] = bench.documents.pop(SYSTEM)
        bench.documents["/redfish/v1/Systems"]["Members"] = [{"@odata.id": "/redfish/v1/Systems/Self"}]
        bench.documents[f"{BIOS}/SD"] = bench.documents.pop(SETTINGS)
        bench.documents[BIOS]["@Redfish.Settings"]["SettingsObject"] = {"@odata.id": f"{BIOS}/SD"}
        assert (await hot(bmc)).pending_bios == {}

    play(machine(), steps)


@pytest.mark.parametrize("change", [{"Systems": None}, {"Systems": {"@odata.id": "/redfish/v1/empty"}}])
def test_a_service_without_systems_is_malformed(change: dict[str, Any]) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents[ROOT].update(change)
        bench.documents["/redfish/v1/empty"] = {"Members": []}
        found = await bmc.hot()
        assert isinstance(found, Silent)
        assert found.reason is UnknownReason.MALFORMED

    play(machine(), steps)


def test_the_manager_where_the_system_does_not_name_it() -> None:
    def change(bench: Bench) -> None:
        del bench.documents[SYSTEM]["Links"]["ManagedBy"]

    manager = read_inventory(change).manager
    assert manager is not None
    assert manager.firmware == "01.05.03"


def test_reads_take_the_short_way_with_the_headers_of_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    by_sushy: list[str] = []
    get = Connector.get

    def noted(self: Connector, path: str = "", **options: Any) -> Any:
        by_sushy.append(path)
        return get(self, path, **options)

    monkeypatch.setattr(Connector, "get", noted)

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await hot(bmc)
        assert not by_sushy
        read = next(call for call in bench.calls if call.path == SYSTEM)
        told = {name: read.headers.get(name) for name in ("X-Auth-Token", "OData-Version", "Accept-Encoding", "Cookie")}
        assert told == {
            "X-Auth-Token": "token-1", "OData-Version": "4.0", "Accept-Encoding": "identity", "Cookie": None,
        }  # fmt: skip

    play(machine(), steps)


def test_what_is_served_compressed_or_not_at_all() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        async def picky(call: Call) -> web.Response | None:
            if call.path != "/redfish/v1/registry.json":
                return None
            if call.headers.get("Accept-Encoding") == "identity":
                return web.Response(status=406)
            answer = web.json_response(bench.documents[call.path])
            answer.enable_compression(web.ContentCoding.gzip)
            return answer

        bench.rules.append(picky)
        error = await failure(bmc.stage_bios({"BootTimeout": 99}))
        assert "99 is above 60" in error.detail

    play(machine(), steps)


# --- writes ------------------------------------------------------------------------------------------------------


def test_a_registry_that_is_listed_without_its_version() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        listed = "/redfish/v1/Registries/BiosAttributeRegistry"
        bench.documents[listed] = bench.documents.pop("/redfish/v1/Registries/BiosAttributeRegistry.v1_0_0")
        bench.documents["/redfish/v1/Registries"]["Members"] = [{"@odata.id": listed}]
        error = await failure(bmc.stage_bios({"BootTimeout": 99}))
        assert "99 is above 60" in error.detail

    play(machine(), steps)


@pytest.mark.parametrize("registry", [b"<html>", b'{"RegistryEntries": {"Attributes": []}}'])
def test_a_registry_that_says_nothing_leaves_it_to_the_bmc(registry: bytes) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("GET", "/redfish/v1/registry.json", web.Response(body=registry))
        await bmc.stage_bios({"BootTimeout": 99})
        assert bench.documents[SETTINGS]["Attributes"] == {"BootTimeout": 99}

    play(machine(), steps)


def test_numbers_that_a_bios_wants_as_text() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents["/redfish/v1/registry.json"]["RegistryEntries"]["Attributes"].append(
            {
                "AttributeName": "BaudRate",
                "Type": "Enumeration",
                "Value": [{"ValueName": "9600"}, {"ValueName": "115200"}],
            }
        )
        error = await failure(bmc.stage_bios({"BaudRate": 115200}))
        assert "BaudRate must be given as text" in error.detail

    play(machine(), steps)


def test_settings_that_can_not_be_compared_are_left_alone() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents[SETTINGS]["Attributes"] = {"NotAmongCurrent": 1}
        found = await hot(bmc)
        assert found.pending_bios is None
        assert "NotAmongCurrent" in found.unknown["pending_bios"]
        assert (await failure(bmc.stage_bios({"QuietBoot": False}))).kind is Failure.UNSUPPORTED
        bench.documents[SETTINGS]["Attributes"] = {"QuietBoot": ["odd"]}
        assert (await hot(bmc)).pending_bios is None

    play(machine(), steps)


def test_media_slots_that_moved_are_found_again() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.insert_media(ISO)
        moved = f"{MANAGER}/VirtualMedia/CD1"
        bench.documents[moved] = {**bench.documents.pop(CD), "@odata.id": moved, "Id": "CD1"}
        bench.documents[f"{MANAGER}/VirtualMedia"]["Members"] = [{"@odata.id": moved}]
        assert await bmc.media() == ISO
        bench.documents[moved].pop("Inserted")
        assert await bmc.media() == ISO
        bench.documents[moved].update(Inserted=True, Image=None)
        assert await bmc.media() == "unnamed"

    play(machine(), steps)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"Actions": {}}, "SimpleUpdate"),
        ({"ServiceEnabled": False}, "disabled"),
        ({"FirmwareInventory": None}, "FirmwareInventory"),
    ],
)
def test_updates_that_a_bmc_can_not_do(change: dict[str, Any], why: str) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents[UPDATE].update(change)
        error = await failure(bmc.update_firmware("BIOS", FirmwareFile("http://x/y")))
        assert error.kind is Failure.UNSUPPORTED
        assert why in error.detail

    play(machine(), steps)


def test_a_reset_type_that_nobody_describes() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        reset = bench.documents[MANAGER]["Actions"]["#Manager.Reset"]
        del reset["ResetType@Redfish.AllowableValues"]
        reset["@Redfish.ActionInfo"] = f"{MANAGER}/ResetActionInfo"
        await bmc.reset()
        assert bench.sent("POST")[0].body == {"ResetType": "GracefulRestart"}

    play(machine(), steps)


def test_a_job_of_dell() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        job = f"{TASKS}/JID_1"
        for state, verdict in (("Completed", True), ("CompletedWithErrors", False), ("Downloading", None)):
            bench.documents[job] = {"Id": "JID_1", "JobState": state, "Message": "words", "PercentComplete": 250}
            found = await bmc.task(job)
            assert found is not None
            assert (found.ok, found.done, found.messages) == (verdict, verdict is not None, ("words",))
            assert found.percent is None

    play(machine(), steps)


def test_hot_and_inventory_are_frozen_snapshots_of_plain_values() -> None:
    async def steps(_: Bench, bmc: RedfishBmc) -> None:
        for found in (await bmc.hot(), await bmc.inventory()):
            assert isinstance(found, Answered)
            assert "sushy" not in repr(found)

    play(machine(), steps)
