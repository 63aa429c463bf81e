"""Documents of real BMCs: each folder played as a BMC, each file given to every reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconciler.drivers.redfish import (
    RedfishBmc,
    bios,
    boot,
    boot_options,
    devices,
    events,
    failures,
    parts,
    sensors,
    system,
    tasks,
)
from reconciler.drivers.redfish.fields import Document, Unknown
from reconciler.drivers.redfish.hot import of_system
from reconciler.drivers.redfish.quirks import Quirks, packaged, quirks_of
from reconciler.drivers.redfish.tree import Survey
from reconciler.model.observed import Answered, BootOverride, RedfishHot, RedfishInventory, Silent
from reconciler.model.vocab import BootPhase, Health, Power, UnknownReason
from tests.drivers.redfish.bench import ROOT, SESSIONS, Bench, Call, play

MAKES = ["bmclib", "dell-forbidden", "dell-idrac9", "hpe-ilo5", "nvidia-bluefield3", "nvidia-dgx-h100"]
MAKES += ["nvidia-gb200", "nvidia-gh200", "supermicro", "sushy", "sushy-dell"]
Reader = Callable[[Document, Quirks | None], Any]
# Every pure reader, as a function of a document.
READERS: Mapping[str, Reader] = {
    "serial": system.serial,
    "uuid": lambda doc, _: system.uuid(doc),
    "power": lambda doc, _: system.power(doc),
    "boot_phase": system.boot_phase,
    "boot_override": lambda doc, _: system.boot_override(system.boot_section(doc, {})),
    "boot_order": lambda doc, _: system.boot_order(doc),
    "boot_option": lambda doc, _: boot_options.option_of(doc),
    "health": lambda doc, _: system.rollup(doc),
    "hot": lambda doc, quirks: of_system(doc, system.boot_section(doc, {}), quirks, Survey()),
    "bios": lambda doc, _: bios.attributes(doc),
    "staged": lambda doc, _: bios.attributes(doc, strict=True),
    "registry": lambda doc, _: tuple(bios.problems({"A": 1}, bios.limits(doc))),
    "apply_times": lambda doc, _: bios.apply_times(doc),
    "secure_boot": lambda doc, _: boot.secure_boot(doc),
    "task": lambda doc, quirks: tasks.task("/x", doc, quirks or packaged().standard),
    "task_of_reply": lambda doc, _: tasks.task_of_reply(doc, None),
    "messages": lambda doc, _: failures.messages_of(doc),
    "firmware_key": devices.firmware_key,
    "firmware_item": devices.firmware_item,
    "memory": lambda doc, _: devices.memory([doc]),
    "summary_bytes": lambda doc, _: devices.summary_bytes(doc),
    "processors": lambda doc, _: devices.processors(doc),
    "nic": lambda doc, _: devices.nic(doc),
    "drive": lambda doc, _: devices.drive(doc),
    "thermal": lambda doc, _: tuple(sensors.of_thermal(doc)),
    "power_sensors": lambda doc, _: tuple(sensors.of_power(doc)),
    "sensor": lambda doc, _: tuple(sensors.of_resource(doc)),
    "event": lambda doc, _: events.event(doc),
    "events": lambda doc, _: events.in_order(doc["Members"] if isinstance(doc.get("Members"), list) else ()),
    "manager": lambda doc, _: devices.manager(doc),
    "parts": lambda doc, _: tuple(parts.parts("x", "", [doc])),
    "leak": lambda doc, _: parts.leak(doc),
}


def documents(folder: Path) -> dict[str, Any]:
    """Path on the BMC -> parsed document, or the raw text of one that is malformed.

    A folder of documents, or a tree of folders with an index.json each, as DMTF's Redfish Mockup Creator leaves it.
    """
    found: dict[str, Any] = {}
    tree = folder / "redfish/v1"
    for file in sorted(tree.rglob("index.json") if tree.is_dir() else folder.glob("*.json")):
        text = file.read_text()
        path = ROOT + file.name.removesuffix(".json").removesuffix(".custom").replace("__", "/")
        path = ROOT if file.name == "ServiceRoot.json" else path
        if tree.is_dir():
            path = ROOT.rstrip("/") + file.parent.as_posix().removeprefix(tree.as_posix())
        try:
            found[path] = json.loads(text)
        except ValueError:
            found[path] = text
            continue
        if isinstance(found[path], dict) and isinstance(found[path].get("@odata.id"), str):
            found[found[path]["@odata.id"]] = found[path]
    return found


def as_bmc(folder: Path) -> Bench:
    """Serve the folder's documents. A missing root and list of systems are made up."""
    kept = documents(folder)
    bench = Bench({path: body for path, body in kept.items() if isinstance(body, dict) and "status" not in body})
    systems = [path for path in kept if path.startswith(f"{ROOT}Systems/") and path.count("/") == 4]
    root = bench.documents.pop(ROOT.rstrip("/"), None) or {"Systems": {"@odata.id": f"{ROOT}Systems"}}
    bench.documents[ROOT] = {**root, "Links": {"Sessions": {"@odata.id": SESSIONS}}}
    bench.documents.setdefault(f"{ROOT}Systems", {"Members": [{"@odata.id": path} for path in systems]})

    async def odd(call: Call) -> web.Response | None:
        """Without case and final slash, as iLO takes them; answers that are not documents come as they were."""
        body = next((kept[path] for path in kept if path.rstrip("/").lower() == call.path.rstrip("/").lower()), None)
        if isinstance(body, str):
            return web.Response(text=body)
        if isinstance(body, dict) and "status" in body:
            return web.Response(status=body["status"], text=body["body"])
        return None if body is None or call.path in bench.documents else web.json_response(body)

    bench.rules.append(odd)
    return bench


async def both(_: Bench, bmc: RedfishBmc) -> tuple[Any, Any, Any]:
    return await bmc.hot(), await bmc.hot(), await bmc.inventory()


@pytest.mark.parametrize("make", MAKES)
def test_every_folder_gives_a_snapshot_or_a_reason(samples: Path, make: str) -> None:
    for found in play(as_bmc(samples / "redfish" / make), both):
        match found:
            case Silent():
                assert found.detail
            case Answered(value=RedfishHot() | RedfishInventory() as value):
                fields = [name for name in value.__slots__ if name not in ("unknown", "etag", "boot_options")]
                for name in fields:
                    assert getattr(value, name) is not None or name in value.unknown, (make, name)
            case _:
                pytest.fail(f"{make}: {found}")


@pytest.mark.parametrize(
    ("make", "serial", "model", "phase", "health", "override"),
    [
        ("dell-idrac9", "F54P1G3", "PowerEdge R750", None, Health.OK, "Disabled"),
        ("hpe-ilo5", "MXQ302099S", "ProLiant DL385 Gen10 Plus v2", None, Health.CRITICAL, "Disabled"),
        ("nvidia-dgx-h100", "1662923610124", "DGXH100", None, Health.OK, "Disabled"),
        ("nvidia-gb200", None, None, BootPhase.OS_RUNNING, Health.OK, "Disabled"),
        (
            "nvidia-bluefield3",
            "MT2423600ANG",
            "BlueField-3 SmartNIC Main Card",
            BootPhase.OS_RUNNING,
            Health.OK,
            "Disabled",
        ),
        ("supermicro", "S889914X3710910", "SYS-821GE-TNHR", None, Health.OK, "Disabled"),
        ("sushy-dell", "8CYCZ23", "PowerEdge R640", None, Health.OK, "Disabled"),
    ],
)
def test_what_real_systems_tell(
    samples: Path, make: str, serial: str, model: str, phase: Any, health: Any, override: str
) -> None:
    first, again, _ = play(as_bmc(samples / "redfish" / make), both)
    assert isinstance(first, Answered)
    found = first.value
    assert (found.serial, found.model, found.boot_phase, found.health) == (serial, model, phase, health)
    assert found.power is Power.ON
    assert isinstance(found.boot_override, BootOverride)
    assert found.boot_override.enabled == override
    assert again == first


def test_a_forbidden_bmc_is_an_account_to_look_after(samples: Path) -> None:
    first, _, _ = play(as_bmc(samples / "redfish" / "dell-forbidden"), both)
    assert isinstance(first, Silent)
    assert first.reason is UnknownReason.AUTH


def test_single_documents_of_real_bmcs(samples: Path) -> None:
    """Facts that are easy to get wrong, each from the file that shows it."""
    folder = samples / "redfish"

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text())

    dell = quirks_of({"Manufacturer": "Dell Inc."}, {})
    supermicro = quirks_of({"Manufacturer": "Supermicro"}, {})
    absent = read("nvidia-gb200/Chassis__IO_Board_0__Sensors__IO_Board_0_CX7_0_Port_0_Temp.json")
    assert list(sensors.of_resource(absent)) == []  # Absent, and Critical all the same
    drive = devices.drive(read("hpe-ilo5/Systems__1__Storage__DA00001C__Drives__DA00001C.json"))
    assert (drive.serial, drive.wwn, drive.health) == ("S6C1NA0TA04209", "eui.0025389a21013360", Health.CRITICAL)
    assert devices.drive(read("sushy/drive.json")).wwn == "0x32adf365c6c1b7bd"
    listed = read("dell-idrac9/UpdateService__FirmwareInventory.json")["Members"]
    keys = [devices.firmware_key({"Id": item["@odata.id"].rsplit("/", 1)[1]}, dell) for item in listed]
    assert "BIOS.Setup.1-1" in keys
    assert keys.count(None) == 2  # Previous-...: images to roll back to
    smc = read("supermicro/UpdateService__FirmwareInventory__BIOS.json")
    assert devices.firmware_item(smc, supermicro).version == "1.4"
    listed_events = events.in_order(
        read("dell-idrac9/Managers__iDRAC.Embedded.1__LogServices__Sel__Entries.json")["Members"]
    )
    assert [event.id for event in listed_events] == ["1020", "1021", "1022", "1023", "1024"]
    assert len(events.in_order(read("supermicro/Systems__1__LogServices__Log1__Entries.json")["Members"])) == 82
    states = {
        name: tasks.task("/x", read(f"bmclib/tasks__tasks_1_{name}.json"), packaged().standard)
        for name in ("completed", "failed", "pending", "running", "scheduled", "starting", "unknown")
    }
    assert {name: (task.done, task.ok) for name, task in states.items()} == {
        "completed": (True, True),
        "failed": (True, False),
        **dict.fromkeys(("pending", "running", "scheduled", "starting", "unknown"), (False, None)),
    }
    assert tasks.task_of_reply(read("bmclib/updateservice_ok_response.json"), None) == (
        "/redfish/v1/TaskService/Tasks/1234"
    )
    assert tasks.task_of_reply(read("bmclib/updateservice_unexpected_response.json"), None) is None
    thermal = list(sensors.of_thermal(read("supermicro/Chassis__1__Thermal.json")))
    assert all(sensor.reading is not None for sensor in thermal)
    raw = (folder / "sushy-dell/error_running_job.json").read_bytes()
    assert failures.http_error("POST", "/x", 400, raw, {}).kind.value == "busy"


def test_every_reader_takes_every_document(samples: Path) -> None:
    """A reader gives a value or Unknown, of whatever document; nothing else comes out."""
    count = 0
    for file in sorted((samples / "redfish").glob("*/*.json")):
        try:
            document = failures.decode(file.read_bytes())
        except Unknown:
            continue
        for quirks in (quirks_of(document, {}), None):
            for reader in READERS.values():
                count += 1
                with suppress(Unknown):
                    reader(document, quirks)
    assert count > 5000
