"""Systems, chassis and what is in them: all of it is read, and what is not is told."""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.redfish import RedfishBmc, events, inventory_budget
from reconciler.health.bmc import bmc_signals, unread_bmc_signals
from reconciler.model.bmc_log import unread_part
from reconciler.model.desired import DesiredInventory
from reconciler.model.observed import Answered, Observed, Part, RedfishInventory
from reconciler.model.vocab import Health
from tests import builders as b
from tests.drivers.redfish.bench import ROOT, SYSTEM, Bench, machine, play
from tests.drivers.redfish.test_samples import as_bmc

CHASSIS = "/redfish/v1/Chassis"
OK = {"State": "Enabled", "Health": "OK"}
CRITICAL = {"State": "Enabled", "Health": "Critical"}


async def read(_: Bench, bmc: RedfishBmc) -> RedfishInventory:
    found = await bmc.inventory()
    assert isinstance(found, Answered), found
    return found.value


def collection(bench: Bench, path: str, **members: dict[str, Any]) -> None:
    """A collection and its members, on the bench."""
    listed = bench.documents.setdefault(path, {"@odata.id": path, "Name": "x", "Members": []})
    for id_, content in members.items():
        listed["Members"].append({"@odata.id": f"{path}/{id_}"})
        bench.documents[f"{path}/{id_}"] = {"@odata.id": f"{path}/{id_}", "Id": id_, "Name": id_, **content}


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def board() -> Bench:
    """A host with an HGX board, as DGX and GB200 show it: a system and chassis of its own, and NVSwitches."""
    bench = machine()
    root = bench.documents[ROOT]
    root["Fabrics"] = link("/redfish/v1/Fabrics")
    hgx = "/redfish/v1/Systems/HGX_Baseboard_0"
    links = {name: link(f"{hgx}/{name}") for name in ("Processors", "Memory")}
    collection(bench, "/redfish/v1/Systems", HGX_Baseboard_0={"Status": OK, **links})
    collection(bench, f"{hgx}/Processors", GPU_SXM_1={"ProcessorType": "GPU", "Status": OK})
    collection(bench, f"{hgx}/Memory", GPU_SXM_1_DRAM_0={"Status": OK})
    collection(bench, "/redfish/v1/Fabrics", NVLink={"Switches": link("/redfish/v1/Fabrics/NVLink/Switches")})
    collection(bench, "/redfish/v1/Fabrics/NVLink/Switches", NVSwitch_0={"Status": OK})
    at = f"{CHASSIS}/Shelf"
    modern = {name: link(f"{at}/{name}") for name in ("PowerSubsystem", "ThermalSubsystem", "Sensors")}
    collection(bench, CHASSIS, Shelf={"Status": OK, **modern}, HGX_GPU_SXM_1={"Status": OK})
    bench.documents[f"{at}/PowerSubsystem"] = {"PowerSupplies": link(f"{at}/PowerSupplies")}
    bench.documents[f"{at}/ThermalSubsystem"] = {"Fans": link(f"{at}/Fans"), "LeakDetection": link(f"{at}/Leaks")}
    bench.documents[f"{at}/Leaks"] = {"LeakDetectors": link(f"{at}/LeakDetectors")}
    collection(bench, f"{at}/PowerSupplies", PSU0={"Status": OK}, PSU1={"Status": OK})
    collection(bench, f"{at}/Fans", FAN_0={"Status": OK})
    collection(bench, f"{at}/LeakDetectors", Manifold={"DetectorState": "OK", "Status": OK})
    temperature = {"ReadingType": "Temperature", "Reading": 30, "Status": OK}
    collection(bench, f"{at}/Sensors", T0=temperature, T1=temperature)
    return bench


def lies(bench: Bench) -> Bench:
    bench.documents[ROOT]["Chassis"] = link(CHASSIS)
    return bench


@pytest.mark.parametrize("expands", [True, False])
def test_every_chassis_and_every_system_is_read(expands: bool) -> None:
    bench = lies(board())
    if not expands:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
    found = play(bench, read)
    assert {(part.kind, part.id) for part in found.parts} == {
        ("dimm", "A1"), ("dimm", "A2"),
        ("system", "HGX_Baseboard_0"), ("processor", "HGX_Baseboard_0/GPU_SXM_1"),
        ("memory", "HGX_Baseboard_0/GPU_SXM_1_DRAM_0"), ("switch", "NVLink/NVSwitch_0"),
        ("chassis", "1"), ("chassis", "Shelf"), ("chassis", "HGX_GPU_SXM_1"), ("fan", "1/FAN1"),
        ("power_supply", "Shelf/PSU0"), ("power_supply", "Shelf/PSU1"), ("fan", "Shelf/FAN_0"),
        ("leak_detector", "Shelf/Manifold"),
    }  # fmt: skip
    assert {(s.chassis, s.name) for s in found.sensors} >= {("Shelf", "T0"), ("Shelf", "T1"), ("1", "Inlet")}
    assert not {name for name in found.unknown if name.startswith(("parts", "sensors"))}


@pytest.mark.parametrize("expands", [True, False])
def test_a_pass_stays_within_its_budget_and_says_what_it_did_not_read(expands: bool) -> None:
    """Build twice the chassis and sensors of a GB200 (42 and 236): too many to read one by one (A12)."""
    bench = lies(machine())
    if not expands:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
    for number in range(42):
        at = f"{CHASSIS}/C{number}"
        collection(bench, CHASSIS, **{f"C{number}": {"Status": OK, "Sensors": link(f"{at}/Sensors")}})
        for sensor in range(12):
            collection(bench, f"{at}/Sensors", **{f"T{sensor}": {"ReadingType": "Temperature", "Status": OK}})
    found = play(bench, read)
    assert len(bench.gets()) < inventory_budget._MOST_GETS + 40
    assert sum(part.kind == "chassis" for part in found.parts) == 43
    told = found.unknown.get("sensors")
    if expands:
        assert (len(found.sensors), told) == (4 + 42 * 12, None)
        return
    assert told is not None
    counts = re.match(r"read (\d+) of at least (\d+); (\d+) lists? could not be read: ", told)
    assert counts is not None, told
    assert int(counts[1]) == len(found.sensors) - 4 < 42 * 12
    assert "sensor_critical" in unread_bmc_signals(seen(found))


def seen(found: RedfishInventory) -> Observed:
    return b.observed(inventory=found)


# --- documents of real BMCs ----------------------------------------------------------------------------------------

MAKES = (
    "dell-idrac9",
    "hpe-ilo5",
    "nvidia-bluefield3",
    "nvidia-dgx-h100",
    "nvidia-gb200",
    "nvidia-gh200",
    "supermicro",
)
# Type of a resource -> the kind of part that it is, and the collection that it is in.
KINDS = {"Chassis": "chassis", "LeakDetector": "leak_detector", "Memory": "dimm", "Processor": "processor"}
KINDS |= {"ComputerSystem": "system"}


def whole(folder: Path) -> Bench:
    """The folder as a BMC, of which every resource that was kept can be reached: collections are made of what is below
    them, since most were not kept, and list nothing that was not.
    """
    bench = as_bmc(folder)
    resources = {path.rstrip("/"): body for path, body in bench.documents.items() if body.get("@odata.id")}
    for path, body in list(resources.items()):
        parent = path.rsplit("/", 1)[0]
        if kind_of(body) in (*KINDS, "Sensor", "Drive", "Storage"):
            bench.documents[parent] = {"@odata.id": parent, "Members": []}
    for path, body in resources.items():
        parent = path.rpartition("/")[0]
        holder, _, name = parent.rpartition("/")
        if kind_of(body) not in (*KINDS, "Sensor", "Drive", "Storage"):
            continue
        bench.documents[parent]["Members"].append(link(path))
        bench.documents[path] = bench.documents.get(path, body)
        if holder == ROOT.rstrip("/"):
            bench.documents[ROOT].setdefault(name, link(parent))
            bench.documents[ROOT][name] = link(parent)
        else:
            bench.documents.setdefault(holder, {"@odata.id": holder, "Id": holder.rsplit("/", 1)[1]})
            drives = [link(other) for other, item in resources.items() if kind_of(item) == "Drive"]
            bench.documents[holder][name] = drives if name == "Drives" else link(parent)
    _hang_up(bench)
    return bench


def _hang_up(bench: Bench) -> None:
    """Chassis of which nothing but a part was kept are listed, too; subsystems hang on their chassis."""
    for path in list(bench.documents):
        system = re.fullmatch(r"(/redfish/v1/Systems)/[^/]+", path)
        if system is not None and link(path) not in bench.documents[system[1]]["Members"]:
            bench.documents[system[1]]["Members"].append(link(path))
        match = re.fullmatch(rf"({CHASSIS}/[^/]+)/(\w+)(?:/.*)?", path.rstrip("/"))
        if match is None:
            continue
        body = bench.documents.setdefault(match[1], {"@odata.id": match[1], "Id": match[1].rsplit("/", 1)[1]})
        body.setdefault(match[2], link(f"{match[1]}/{match[2]}"))
        listed = bench.documents.setdefault(CHASSIS, {"@odata.id": CHASSIS, "Members": []})["Members"]
        if link(match[1]) not in listed:
            listed.append(link(match[1]))
        bench.documents[ROOT]["Chassis"] = link(CHASSIS)
        at = f"{match[1]}/ThermalSubsystem"
        if f"{at}/LeakDetection" in bench.documents:
            bench.documents.setdefault(at, {"LeakDetection": link(f"{at}/LeakDetection")})


def kind_of(body: Any) -> str:
    return str(body.get("@odata.type", "")).removeprefix("#").split(".")[0]


def resources_of(bench: Bench) -> list[dict[str, Any]]:
    found = {body["@odata.id"].rstrip("/"): body for body in bench.documents.values() if body.get("@odata.id")}
    return [body for body in found.values() if (body.get("Status") or {}).get("State") != "Absent"]


@pytest.mark.parametrize("make", MAKES)
def test_what_is_in_the_tree_of_a_real_bmc_is_read(samples: Path, make: str) -> None:
    """A count of the resources by their type against what the inventory has of them."""
    bench = whole(samples / "redfish" / make)
    there = Counter(kind_of(body) for body in resources_of(bench))
    found = play(bench, read)
    read_ = Counter(part.kind for part in found.parts)
    listed = bench.documents.get(CHASSIS, {"Members": []})["Members"]
    assert read_["chassis"] == len(listed)
    assert read_["leak_detector"] == there["LeakDetector"]
    assert read_["processor"] == there["Processor"]
    assert read_["dimm"] + read_["memory"] == there["Memory"]
    systems = bench.documents["/redfish/v1/Systems"]["Members"]
    assert read_["system"] == len(systems) - 1  # the host's own is in the hot tier
    arrays = [item for body in resources_of(bench) for item in _arrays(body)]
    names = {(kind, item.get("Name") or item.get("FanName")) for kind, item in arrays if not _absent(item)}
    assert len(found.sensors or ()) >= len(names)
    assert len(found.sensors or ()) >= there["Sensor"]
    supplies = [item for kind, item in arrays if kind == "PowerSupplies" and not _absent(item)]
    fans = [item for kind, item in arrays if kind == "Fans" and not _absent(item)]
    assert (read_["power_supply"], read_["fan"]) == (len(supplies), len(fans))
    assert len({(sensor.chassis, sensor.name) for sensor in found.sensors or ()}) == len(found.sensors or ())
    assert len({(part.kind, part.id) for part in found.parts}) == len(found.parts)
    for kind, many in there.items():
        if kind == "Drive":
            assert found.drives is None or len(found.drives) == many


def _arrays(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    if kind_of(body) not in ("Thermal", "Power"):
        return []
    names = ("Temperatures", "Fans", "Voltages", "PowerSupplies", "PowerControl")
    return [(name, item) for name in names for item in body.get(name) or ()]


def _absent(item: dict[str, Any]) -> bool:
    return (item.get("Status") or {}).get("State") == "Absent"


def signals_of(bench: Bench, inventory: DesiredInventory | None = None) -> dict[str, str]:
    found = play(bench, read)
    return dict(bmc_signals(b.profile(inventory=inventory or DesiredInventory()), seen(found)))


def test_what_real_bmcs_found_themselves(samples: Path) -> None:
    """A GB200 that reports a leak with a detector that is Degraded, and an iLO's drive that predicts its failure."""
    gb200 = signals_of(whole(samples / "redfish" / "nvidia-gb200"))
    assert gb200["leak"] == "1 of 2 leak detectors report a leak: Chassis_0/Chassis_0_LeakDetector_1_ColdPlate"
    assert "HGX_CPU_0" in gb200["subsystem_health"]
    assert "sensor_critical" not in gb200, "IO_Board_0's sensor is absent and critical: acceptance 7"
    hpe = signals_of(whole(samples / "redfish" / "hpe-ilo5"))
    assert hpe["drive_failed"] == "1 of 1 drives are critical: DA00001C"


def _part(bench: Bench, which: str) -> dict[str, Any]:
    """Find a document by path, or the first of a type, or of an array in the first of a type."""
    if which in bench.documents:
        named: dict[str, Any] = bench.documents[which]
        return named
    type_, _, array = which.partition(".")
    found: dict[str, Any] = next(body for body in bench.documents.values() if kind_of(body) == type_)
    return next(iter(found[array])) if array else found


@pytest.mark.parametrize(
    ("make", "part", "signal"),
    [
        ("supermicro", "Power.PowerSupplies", "psu_failed"),
        ("supermicro", "Thermal.Fans", "fan_failed"),
        ("supermicro", "Thermal.Temperatures", "sensor_critical"),
        ("supermicro", "Memory", "dimm_failed"),
        ("dell-idrac9", "Power.PowerSupplies", "psu_failed"),
        ("dell-idrac9", "Memory", "dimm_failed"),
        ("dell-idrac9", f"{CHASSIS}/System.Embedded.1", "subsystem_health"),
        ("hpe-ilo5", "Power.PowerSupplies", "psu_failed"),
        ("hpe-ilo5", "Thermal.Fans", "fan_failed"),
        ("hpe-ilo5", "Memory", "dimm_failed"),
        ("hpe-ilo5", "Drive", "drive_failed"),
        ("nvidia-dgx-h100", "/redfish/v1/Systems/HGX_Baseboard_0", "subsystem_health"),
        ("nvidia-dgx-h100", f"{CHASSIS}/HGX_GPU_SXM_1", "subsystem_health"),
        ("nvidia-gb200", "LeakDetector", "leak"),
    ],
)
def test_a_part_of_a_real_tree_that_turns_critical_is_told(samples: Path, make: str, part: str, signal: str) -> None:
    bench = whole(samples / "redfish" / make)
    body = _part(bench, part)

    def told(state: str, health: str) -> str:
        body["Status"] = {"State": state, "Health": health}
        body.update({"DetectorState": health} if signal == "leak" and state != "Absent" else {})
        return re.sub(r"\d+ of \d+ ", "", signals_of(bench).get(signal, ""))

    well = told("Enabled", "OK")
    assert told("Enabled", "Critical") != well
    assert told("Absent", "Critical") == well, "acceptance 7"


# --- nothing that was not read is well -----------------------------------------------------------------------------

GARBLED: list[Any] = [None, {}, {"Id": "x"}, {"Members": "many"}, []]
PARTS = {
    f"{SYSTEM}/Memory/A1": ("dimms", "dimm_missing"),
    f"{SYSTEM}/Storage/NVMe/Drives/0": ("drives", "drive_missing"),
    f"{CHASSIS}/Shelf/PowerSupplies/PSU0": ("parts.power_supply", "psu_failed"),
    f"{CHASSIS}/Shelf/Fans/FAN_0": ("parts.fan", "fan_failed"),
    f"{CHASSIS}/Shelf/LeakDetectors/Manifold": ("parts.leak_detector", "leak"),
    f"{CHASSIS}/Shelf/Sensors/T0": ("sensors", "sensor_critical"),
    "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_1": ("parts.processor", "subsystem_health"),
    f"{CHASSIS}/Shelf/PowerSubsystem": ("parts.power_supply", "psu_failed"),
    f"{CHASSIS}/Shelf/Leaks": ("parts.leak_detector", "leak"),
    f"{CHASSIS}/Shelf": ("parts.leak_detector", "leak"),
    CHASSIS: ("sensors", "sensor_critical"),
}


@pytest.mark.parametrize("path", PARTS)
@pytest.mark.parametrize("body", [*GARBLED, "gone"])
@pytest.mark.parametrize("expands", [True, False])
def test_a_part_that_can_not_be_read_is_never_there_and_well(path: str, body: Any, expands: bool) -> None:
    """not_evidence_is_not_pass: it is unknown, or incomplete, or missing, or there without a health."""
    bench = lies(board())
    if not expands:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
    bench.documents[path] = body
    if body == "gone" or not isinstance(body, dict):
        bench.answer("GET", path, 404, forever=True)
        del bench.documents[path]
        parent = bench.documents.get(path.rsplit("/", 1)[0], {})
        if expands and "Members" in parent:  # a BMC that expands shows what it has
            parent["Members"] = [
                item if item["@odata.id"] != path else {"@odata.id": path} for item in parent["Members"]
            ]
    found = play(bench, read)
    field, signal = PARTS[path]
    wanted = DesiredInventory(dimms=2, drives=1)
    told = dict(bmc_signals(b.profile(inventory=wanted), seen(found)))
    unseen = field in found.unknown or signal in unread_bmc_signals(seen(found)) or signal in told
    id_ = path.rsplit("/", 1)[1]
    named = [part for part in found.parts if part.id.rsplit("/", 1)[-1] in (id_, "x") and part.health is not None]
    drives = [drive for drive in found.drives or () if drive.health is not None]
    assert unseen or not (named or (field == "drives" and drives)), (found.parts, found.unknown)


def test_a_part_that_is_absent_is_not_ill() -> None:
    """Acceptance 7: what is left of an absent part is Critical on GB200 and BlueField."""
    bench = lies(board())
    for path in PARTS:
        if path.count("/") > 5:
            bench.documents[path] = {**bench.documents[path], "Status": {"State": "Absent", "Health": "Critical"}}
    bench.documents[f"{CHASSIS}/Shelf/LeakDetectors/Manifold"]["DetectorState"] = "Absent"
    assert signals_of(bench) == {}


# --- the log ------------------------------------------------------------------------------------------------------

UE: list[dict[str, Any]] = [
    {"Message": "Uncorrectable Memory Error (Processor 1, DIMM 3)"},  # HPE IML
    {"MessageId": "IDRAC.2.8.MEM0001", "Message": "Multi-bit memory errors detected on a memory device at DIMM_A1."},
    {"SensorType": "Memory", "EntryCode": "Assert", "MessageId": "6fa1c001", "Message": ""},  # Dell's raw SEL
    {"SensorType": "Memory", "EntryCode": "Assert", "MessageId": "0xA1FF03", "Message": "Event_Data_1 : 161"},  # AMI
    {"MessageId": "OpenBMC.0.1.MemoryECCUncorrectable", "Message": "Memory ECC uncorrectable error. Socket=0 ..."},
    {"SensorType": "Memory", "Message": "Memory #0x31 | Uncorrectable ECC | Asserted"},
    {"Message": "Uncorrectable ECC @ DIMMA1(CPU1)"},
]
NOT_UE: list[dict[str, Any]] = [
    {"Message": "Correctable ECC @ DIMMA1", "SensorType": "Memory", "MessageId": "0xA0FF03"},
    {"Message": "Corrected Memory Error threshold exceeded (Processor 1, DIMM 3)"},
    {"MessageId": "OpenBMC.0.1.MemoryECCCorrectable", "Message": "Memory ECC correctable error. Socket=0 ..."},
    {"Message": "GPU_SXM_1 DRAM uncorrectable ECC error"},  # the driver's row remapping answers it
    {"Message": "PCIe Fatal Uncorrectable Internal Error. Bus=1"},
    {"Message": "Uncorrectable Machine Check Exception (Processor 1)"},
    {"SensorType": "Drive Slot/Bay", "MessageId": "0x01FFFF", "Message": "Event_Data_1 : 1"},
    {"Message": "Memory test found no uncorrectable errors", "SensorType": "Memory"},
    {"Message": "Reading=-524288 UncorrectableECCErrorCount is 0"},
]


@pytest.mark.parametrize("entry", UE)
def test_an_uncorrectable_error_of_memory_in_the_words_of_each_vendor(entry: dict[str, Any]) -> None:
    assert events.event({"Id": "1", **entry}).kind == "memory_ue"


@pytest.mark.parametrize("entry", NOT_UE)
def test_what_only_sounds_like_one(entry: dict[str, Any]) -> None:
    assert events.event({"Id": "1", **entry}).kind == ""


def test_no_entry_of_a_healthy_bmc_is_one(samples: Path) -> None:
    count = 0
    for file in sorted((samples / "redfish").glob("*/*LogServices*.json")):
        body = json.loads(file.read_text())
        of_xids = "LogServices__XID" in file.name  # of a baseboard, which lists old ones: the age decides
        for entry in body.get("Members", [body]):
            if isinstance(entry, dict) and entry.get("Id") and not of_xids:
                count += 1
                assert events.event(entry).kind == "", (file.name, entry)
    assert count > 200


@pytest.mark.parametrize(
    ("at", "clock", "age"),
    [
        ("2026-11-21T08:00:00Z", "2026-11-21T09:00:00Z", 3600.0),
        ("2026-11-21T08:00:00", "2026-11-21T10:00:00+01:00", 7200.0),  # no offset of its own: the BMC's
        ("2026-11-21T09:03:00Z", "2026-11-21T09:00:00Z", 0.0),  # written while we read
        ("2027-11-21T09:00:00Z", "2026-11-21T09:00:00Z", None),  # the clock was set back (B6)
        ("1970-01-01T00:04:28+00:00", "2026-11-21T09:00:00Z", None),  # before the BMC had a time (DGX)
        ("1970-01-01T00:04:28+00:00", "1970-01-01T00:05:28+00:00", None),
        ("9999-12-31T23:59:59+00:00", "2026-11-21T09:00:00Z", None),  # GB200
        ("0000-00-00T00:00:00Z", "2026-11-21T09:00:00Z", None),  # iLO 5
        ("2026-11-21T08:00:00Z", "yesterday", None),
    ],
)
def test_the_age_of_an_event_is_told_by_the_bmc_s_own_clock(at: str, clock: str, age: float | None) -> None:
    bench = machine()
    bench.documents["/redfish/v1/Managers/1"] |= {"DateTime": clock, "DateTimeLocalOffset": "+01:00"}
    bench.documents[f"{SYSTEM}/LogServices/SEL/Entries/2"]["Created"] = at
    (found,) = [event for event in play(bench, read).events if event.id == "2"]
    assert found.age_s == age


@pytest.mark.parametrize("entry", [{"Resolved": True}, {"Oem": {"Hpe": {"Repaired": True}}}, {"EntryCode": "Deassert"}])
def test_what_was_taken_back_or_repaired_is_settled(entry: dict[str, Any]) -> None:
    assert events.event({"Id": "1", **UE[0], **entry}).settled


def test_a_power_supply_without_a_status_is_no_healthy_one() -> None:
    """DGX H100 lists its six in PowerSubsystem without any."""
    bench = lies(board())
    for id_ in ("PSU0", "PSU1"):
        del bench.documents[f"{CHASSIS}/Shelf/PowerSupplies/{id_}"]["Status"]
    found = play(bench, read)
    assert [part for part in found.parts if part.kind == "power_supply"] == [
        Part("power_supply", "Shelf/PSU0", None),
        Part("power_supply", "Shelf/PSU1", None),
    ]
    shelf = bench.documents[f"{CHASSIS}/Shelf"]
    shelf["Power"] = link(f"{CHASSIS}/Shelf/Power")
    old = [{"Name": "PSU0", "Status": OK}, {"Name": "PSU1", "Status": deepcopy(CRITICAL)}]
    bench.documents[f"{CHASSIS}/Shelf/Power"] = {"PowerSupplies": old}
    found = play(bench, read)
    assert [part.health for part in found.parts if part.kind == "power_supply"] == [Health.OK, Health.CRITICAL]


def logs_of_board(entries: dict[str, dict[str, Any]]) -> Bench:
    """The board with a log, and a manager whose clock is years behind, as it is on DGX."""
    bench = board()
    hgx = "/redfish/v1/Systems/HGX_Baseboard_0"
    manager = "/redfish/v1/Managers/HGX_BMC_0"
    bench.documents[hgx] |= {"LogServices": link(f"{hgx}/LogServices"), "Links": {"ManagedBy": [link(manager)]}}
    collection(bench, "/redfish/v1/Managers", HGX_BMC_0={"DateTime": "2020-12-11T16:22:59+00:00"})
    collection(bench, f"{hgx}/LogServices", EventLog={"Entries": link(f"{hgx}/LogServices/EventLog/Entries")})
    collection(bench, f"{hgx}/LogServices/EventLog/Entries", **entries)
    return bench


def test_xids_in_the_log_of_a_board_are_events_with_an_age_by_its_own_clock() -> None:
    said = (
        "GPU_SXM_1 Driver Event Message has detected errors of type '[Mon Jan 15 03:31:23 UTC 2024][2][00] XID 79 x'."
    )
    common = {"Severity": "Critical", "Resolved": False}
    bench = logs_of_board({
        "857": common | {"Created": "2020-12-11T15:22:59+00:00", "Message": "PSU of the board was lost"},
        "858": common | {"Created": "2020-12-11T16:12:59+00:00", "Message": said},
    })  # fmt: skip
    found = play(bench, read)
    (event,) = [one for one in found.events or () if one.kind]
    assert (event.id, event.kind, event.age_s) == ("HGX_Baseboard_0/858", "xid_79", 600.0)
    assert {one.id for one in found.events or ()} == {"1", "2", "HGX_Baseboard_0/858"}


def test_sxids_in_the_log_of_a_board_are_events_too() -> None:
    said = (
        "NVSwitch_0 Driver Event Message has detected errors of type '[Wed Jun 24 19:06:47 UTC 1970][181][00] SXID {}'."
    )
    texts = {"1": "12028 Non-fatal, Link 32 egress", "2": "0 dNVSWITCH SMBPBI server is online.st", "3": "1 dNon-fatal"}
    bench = logs_of_board({
        id_: {"Severity": "Critical", "Created": "2020-12-11T16:12:59+00:00", "Message": said.format(words)}
        for id_, words in texts.items()
    })  # fmt: skip
    found = play(bench, read)
    assert [(one.id, one.kind) for one in found.events or () if one.kind] == [("HGX_Baseboard_0/1", "sxid_12028")]


def test_what_nvswitches_of_a_dgx_logged_in_peace_is_no_sign(samples: Path) -> None:
    """A recording of a DGX H100 (NVIDIA/libredfish): their server came online, again and again, as Critical."""
    log = json.loads(
        (samples / "redfish/nvidia-dgx-h100/Chassis__HGX_NVSwitch_0__LogServices__XID__Entries.json").read_text()
    )
    assert len(log["Members"]) > 10
    assert {events.event(entry).kind for entry in log["Members"]} == {""}


def test_a_log_of_a_board_that_can_t_be_read_hides_its_own_signal_and_not_the_hosts_log() -> None:
    bench = logs_of_board({})
    bench.answer("GET", "/redfish/v1/Systems/HGX_Baseboard_0/LogServices/EventLog/Entries", 500, forever=True)
    found = play(bench, read)
    assert {one.id for one in found.events or ()} == {"1", "2"}
    assert "events.boards" in found.unknown
    assert unread_part(b.observed(inventory=found).inventory).startswith("the log of a board could not be read: ")
