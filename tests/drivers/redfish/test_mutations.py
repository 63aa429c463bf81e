"""Documents with something missing or of the wrong type: never an exception, never a value that was not there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.redfish import failures
from reconciler.drivers.redfish.fields import Unknown
from reconciler.drivers.redfish.quirks import quirks_of
from reconciler.model.observed import BmcTask, BootOverride, Sensor
from tests.drivers.redfish.bench import BIOS, INVENTORY, MANAGER, SYSTEM, TASKS, machine
from tests.drivers.redfish.test_samples import READERS

_ACTIVE = {
    "BootProgress": {"LastState": "MemoryInitializationStarted"},
    "Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Cd", "BootOrder": ["Boot0001"]},
}
_OFF = {"PowerState": "Off", "BootProgress": {"LastState": "OSRunning"}}
_STUCK = {"BootProgress": {"LastState": "SystemHardwareInitializationComplete"}}
_DELL = {"Manufacturer": "Dell Inc.", "SKU": "F54P1G3", "SerialNumber": "CNIVC0014M0388", "Oem": {"Dell": {}}}
_SICK = {"Status": {"State": "Absent", "Health": "Critical"}}
_FAILED = {"Id": "1", "TaskState": "Completed", "TaskStatus": "Critical", "PercentComplete": 100}
_OK = {"State": "Enabled", "Health": "OK"}
_FANS = {"Fans": [{"Name": "F", "Reading": 35, "ReadingUnits": "Percent", "Status": _OK}]}
_SENSOR = {
    "Id": "GPU_0_Temp",
    "Name": "GPU 0",
    "ReadingType": "Temperature",
    "Reading": -524288,
    "ReadingRangeMin": -128,
    "ReadingRangeMax": 127,
    "Status": _OK,
}


def _cases() -> list[tuple[str, dict[str, Any]]]:
    """A reader, and a document in which it finds something."""
    documents = machine().documents
    system = documents[SYSTEM]
    variants = [system] + [{**system, **change} for change in (_ACTIVE, _OFF, _STUCK, _DELL, _SICK)]
    cases = [(name, variant) for name in ("hot", "boot_order", "processors", "summary_bytes") for variant in variants]
    return [
        *cases,
        ("bios", documents[BIOS]),
        ("secure_boot", documents[f"{SYSTEM}/SecureBoot"]),
        ("memory", documents[f"{SYSTEM}/Memory/A1"]),
        ("memory", {**documents[f"{SYSTEM}/Memory/A1"], "Status": {"State": "Disabled"}}),
        ("nic", documents[f"{SYSTEM}/EthernetInterfaces/eno1"]),
        ("drive", documents[f"{SYSTEM}/Storage/NVMe/Drives/0"]),
        ("thermal", documents["/redfish/v1/Chassis/1/Thermal"]),
        ("thermal", _FANS),
        ("power_sensors", documents["/redfish/v1/Chassis/1/Power"]),
        ("sensor", _SENSOR),
        ("sensor", {**_SENSOR, "Reading": 40}),
        ("firmware_item", documents[f"{INVENTORY}/BIOS"]),
        ("event", documents[f"{SYSTEM}/LogServices/SEL/Entries/2"]),
        ("manager", documents[MANAGER]),
        ("task", documents[f"{TASKS}/1"]),
        ("task", _FAILED),
    ]


CASES = _cases()
JUNK: list[Any] = [None, True, 7, -1.5, float("inf"), float("nan"), 10**400, "", " ", "N/A", [], [None], {}, {"a": []}]


def places(document: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, as the way to it."""
    if not isinstance(document, dict | list):
        return
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        yield (*trail, key)
        yield from places(value, (*trail, key))


def spoiled(document: dict[str, Any], trail: tuple[Any, ...], junk: Any, *, drop: bool) -> dict[str, Any]:
    copy = deepcopy(document)
    holder: Any = copy
    for step in trail[:-1]:
        holder = holder[step]
    if drop:
        del holder[trail[-1]]
    else:
        holder[trail[-1]] = junk
    return copy


def outcome(reader: str, document: dict[str, Any]) -> Any:
    try:
        return READERS[reader](document, quirks_of(document, {}))
    except Unknown:
        return None


def no_more(found: Any, known: Any) -> bool:
    """Check that `found` claims nothing beyond `known`."""
    if found in (None, (), "") or found == {}:
        return True
    match found, known:
        case BootOverride(enabled="Disabled"), BootOverride(enabled="Disabled"):
            return True  # whatever target is not used
        case BmcTask(done=False), BmcTask():
            return True  # goes on waiting, until the deadline (A6)
        case Sensor(), Sensor():  # its name may be another of its names
            parts = ("reading", "unit", "health")
            of_kind = found.kind == known.kind or (found.kind == "unknown" and found.reading is None)
            return of_kind and all(no_more(getattr(found, x), getattr(known, x)) for x in parts)
        case tuple(), tuple():
            return all(quiet(row) or any(no_more(row, other) for other in known) for row in found)
        case Mapping(), Mapping():
            return all(key in known and no_more(value, known[key]) for key, value in found.items())
        case _ if dataclasses.is_dataclass(found) and type(found) is type(known):
            names = [field.name for field in dataclasses.fields(found) if field.name != "unknown"]
            return all(no_more(getattr(found, name), getattr(known, name)) for name in names)
    return bool(found == known)


def quiet(row: Any) -> bool:
    """A sensor that tells its name and nothing else."""
    return isinstance(row, Sensor) and row.reading is None and row.health is None


def kind(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


@pytest.mark.parametrize(("reader", "document"), CASES)
def test_one_thing_spoiled_never_makes_a_value(reader: str, document: dict[str, Any]) -> None:
    """Every place of the document, dropped, and replaced by everything that is not of its type."""
    known = outcome(reader, document)
    for trail in places(document):
        original: Any = document
        for step in trail:
            original = original[step]
        assert no_more(outcome(reader, spoiled(document, trail, None, drop=True)), known), trail
        for junk in JUNK:
            free = reader == "bios" and len(trail) > 1 and trail[0] == "Attributes"  # any scalar is a value there
            if kind(junk) == kind(original) or (free and not isinstance(junk, list | dict | None)):
                continue
            found = outcome(reader, spoiled(document, trail, junk, drop=False))
            assert no_more(found, known), (trail, junk, found)


@given(st.data())
def test_many_things_spoiled_never_raise(data: st.DataObject) -> None:
    _, document = data.draw(st.sampled_from(CASES))
    for _ in range(data.draw(st.integers(1, 5))):
        trails = list(places(document))
        if not trails:
            break
        trail = data.draw(st.sampled_from(trails))
        document = spoiled(document, trail, data.draw(st.sampled_from(JUNK)), drop=data.draw(st.booleans()))
    for reader in READERS:
        outcome(reader, document)


SCALARS = st.none() | st.booleans() | st.floats() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
def test_anything_that_json_can_say(value: Any) -> None:
    try:
        document = failures.decode(json.dumps(value).encode())
    except Unknown:
        return
    for reader in READERS:
        outcome(reader, dict(document))


@given(st.binary())
def test_any_bytes_are_a_document_or_unknown(raw: bytes) -> None:
    with suppress(Unknown):
        failures.decode(raw)
    failures.http_error("GET", "/x", 400, raw, {})


def test_real_documents_cut_anywhere(samples: Path) -> None:
    """Cut-off answers are unknown, and so are fields of real systems that one by one go missing."""
    for file in sorted((samples / "redfish").glob("*/Systems__*.json")):
        raw = file.read_bytes()
        for end in range(0, len(raw) - 2, max(1, len(raw) // 50)):
            with pytest.raises(Unknown):
                failures.decode(raw[:end])
    for name in ("dell-idrac9/Systems__System.Embedded.1", "hpe-ilo5/Systems__1", "supermicro/Systems__1"):
        document = json.loads((samples / "redfish" / f"{name}.json").read_text())
        known = outcome("hot", document)
        for key in document:
            assert no_more(outcome("hot", spoiled(document, (key,), None, drop=True)), known), key
