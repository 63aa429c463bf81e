"""Pure: documents of devices -> rows of the inventory. Readers raise Unknown for a row that can't be told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    absent,
    boolean,
    health,
    integer,
    member,
    need,
    number,
    objects,
    quote,
    state,
    stated,
    text,
)
from reconciler.drivers.redfish.quirks import Quirks
from reconciler.model.observed import BmcEvent, Drive, FirmwareItem, Manager, Nic, Sensor
from reconciler.model.vocab import Health

MOST_EVENTS = 200
_ABSOLUTE_ZERO = -273.15
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")
_LINK_UP = {"LinkUp": True, "LinkDown": False, "NoLink": False}
_SEVERITY = {"OK": Health.OK, "Warning": Health.WARNING, "Critical": Health.CRITICAL}
_KINDS = {
    "Temperature": ("temperature", "C"),
    "Rotational": ("fan", "RPM"),
    "Power": ("power", "W"),
    "Voltage": ("voltage", "V"),
}
_FAN_UNITS = {"RPM": "RPM", "Percent": "%"}
_UNREADABLE = -524288.0  # what NVIDIA's boards show of a sensor that they can't read
_GONE = frozenset({"Absent", "Disabled", "UnavailableOffline"})


# --- firmware ----------------------------------------------------------------------------------------------------


def firmware_key(item: Document, quirks: Quirks | None) -> str | None:
    """The name that stays when the version changes. None: an entry that does not run."""
    id_ = need(item, "Id", text)
    if absent(item):
        return None
    if quirks is None or quirks.firmware_id is None:
        return id_
    found = quirks.firmware_id.fullmatch(id_)
    return found[1] if found else None


def firmware_item(item: Document, quirks: Quirks | None) -> FirmwareItem:
    """Some devices tell their version only while the host is on (A10), and DGX writes n/a meanwhile."""
    version = need(item, "Version", stated)
    if quirks is not None and quirks.firmware_version is not None:
        decorated = quirks.firmware_version.fullmatch(version)
        version = decorated[1] if decorated else version
    return FirmwareItem(version, boolean(item, "Updateable"), text(item, "Name") or "")


# --- memory, network, storage ------------------------------------------------------------------------------------


def memory(modules: Iterable[Document]) -> tuple[int, int | None]:
    """How many modules work, and their bytes together where each tells its size."""
    count, total, complete = 0, 0, True
    for module in modules:
        if state(module) is None:
            raise Unknown(f"memory {quote(module.get('Id'))} does not tell whether it is there")
        if state(module) in _GONE:
            continue
        size = integer(module, "CapacityMiB")
        count += 1
        total += size or 0
        complete = complete and bool(size)
    return count, total * 2**20 if complete and count else None


def summary_bytes(system: Document) -> int:
    """0 is what some show while they don't know."""
    size = number(member(system, "MemorySummary"), "TotalSystemMemoryGiB")
    if not size or size < 0:
        raise Unknown("the size of memory is not given")
    return int(size * 2**30)


def processors(system: Document) -> int:
    count = integer(member(system, "ProcessorSummary"), "Count")
    if not count or count < 0:
        raise Unknown("ProcessorSummary gives no Count")
    return count


def nic(document: Document) -> Nic:
    mac = (text(document, "PermanentMACAddress") or text(document, "MACAddress") or "").lower().replace("-", ":")
    speed = integer(document, "SpeedMbps")
    return Nic(
        need(document, "Id", text),
        mac if _MAC.fullmatch(mac) and mac != "00:00:00:00:00:00" else None,  # A10: invalid ones are shown as they are
        _LINK_UP.get(text(document, "LinkStatus") or ""),
        speed if speed and speed > 0 else None,
    )


def drive(document: Document, id_field: str = "Id") -> Drive:
    size = integer(document, "CapacityBytes")
    return Drive(
        need(document, id_field, text),
        stated(document, "SerialNumber"),
        _wwn(document),
        stated(document, "Model"),
        size if size and size > 0 else None,
        health(document),
    )


def _wwn(document: Document) -> str | None:
    """As the host's lsblk writes it, so that both can name a root disk (pitfall L1)."""
    for identifier in objects(document, "Identifiers"):
        digits = re.sub(r"^0x|[^0-9a-f]", "", (text(identifier, "DurableName") or "").lower())
        if not digits or not digits.strip("0"):
            continue
        match text(identifier, "DurableNameFormat"):
            case "NAA":
                return f"0x{digits}"
            case "EUI" | "NGUID":
                return f"eui.{digits}"
    return None


# --- sensors -----------------------------------------------------------------------------------------------------


def sensors_of_thermal(thermal: Document) -> Iterator[Sensor]:
    for item in objects(thermal, "Temperatures"):
        yield from _sensor(item, "temperature", "ReadingCelsius", "C")
    for item in objects(thermal, "Fans"):
        yield from _sensor(item, "fan", "Reading", _FAN_UNITS.get(text(item, "ReadingUnits") or "", ""))


def sensors_of_power(power: Document) -> Iterator[Sensor]:
    for item in objects(power, "PowerControl"):
        yield from _sensor(item, "power", "PowerConsumedWatts", "W", stateless="Status" not in item)
    for item in objects(power, "PowerSupplies"):
        reading = "PowerOutputWatts" if "PowerOutputWatts" in item else "LastPowerOutputWatts"
        yield from _sensor(item, "power", reading, "W")
    for item in objects(power, "Voltages"):
        yield from _sensor(item, "voltage", "ReadingVolts", "V")


def sensor(document: Document) -> Iterator[Sensor]:
    """Of a Sensor resource; nothing where it is of a kind that we don't judge."""
    kind = _KINDS.get(text(document, "ReadingType") or "")
    if text(document, "ReadingType") == "Percent" and text(document, "PhysicalContext") == "Fan":
        kind = ("fan", "%")
    if kind is not None:
        yield from _sensor(document, kind[0], "Reading", kind[1])


def _sensor(item: Document, kind: str, reading: str, unit: str, *, stateless: bool = False) -> Iterator[Sensor]:
    """`stateless`: of a kind that often has no Status; of others a reading counts only while they are enabled."""
    name = text(item, "Name") or text(item, "FanName") or text(item, "MemberId")
    if name is None or absent(item):
        return
    value = number(item, reading) if state(item) == "Enabled" or stateless else None
    yield Sensor(name, kind, None if value is None or _implausible(item, kind, value) else value, unit, health(item))


def _implausible(item: Document, kind: str, value: float) -> bool:
    """Out of the range that the sensor itself states, or of what there is."""
    if value == _UNREADABLE:
        return True
    lows = [number(item, name) for name in ("ReadingRangeMin", "MinReadingRange", "MinReadingRangeTemp")]
    highs = [number(item, name) for name in ("ReadingRangeMax", "MaxReadingRange", "MaxReadingRangeTemp")]
    floor = _ABSOLUTE_ZERO if kind == "temperature" else (0.0 if kind == "fan" else float("-inf"))
    low = max([floor, *(bound for bound in lows if bound is not None)])
    high = min((bound for bound in highs if bound is not None), default=float("inf"))
    return not low <= value <= high if low < high else value < floor


# --- log and manager ---------------------------------------------------------------------------------------------


def event(entry: Document) -> BmcEvent:
    word = text(entry, "Severity") or text(entry, "MessageSeverity") or ""
    return BmcEvent(
        need(entry, "Id", text),
        text(entry, "Created") or "",
        _SEVERITY.get(word),
        quote(text(entry, "Message") or text(entry, "MessageId") or ""),
    )


def newest(entries: Iterable[Document]) -> tuple[BmcEvent, ...]:
    """Newest last, at most 200. By time where every entry has one, else by numbers that grow."""
    rows = [(clock(found.at), int(found.id) if found.id.isdecimal() else 0, found) for found in map(event, entries)]
    timed = all(at is not None for at, _, _ in rows)
    rows.sort(key=lambda row: (row[0].timestamp() if timed and row[0] else 0.0, row[1]))
    return tuple(found for _, _, found in rows[-MOST_EVENTS:])


def manager(document: Document) -> Manager:
    at = text(document, "DateTime")
    return Manager(
        stated(document, "Model"),
        stated(document, "FirmwareVersion"),
        clock(at, text(document, "DateTimeLocalOffset") or "") if at else None,
    )


def clock(at: str, offset: str = "") -> datetime | None:
    """A BMC's time as an instant. None: not a time, or without an offset."""
    try:
        found = datetime.fromisoformat(at)
        if found.tzinfo is None and _OFFSET.fullmatch(offset):
            found = datetime.fromisoformat(at + offset)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
