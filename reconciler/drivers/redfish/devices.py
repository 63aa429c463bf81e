"""Decode documents of devices as rows of the inventory. Pure. Readers raise Unknown for a row they can't decode."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    absent,
    boolean,
    health,
    integer,
    link,
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
from reconciler.drivers.redfish.tree import action
from reconciler.model.observed import Drive, FirmwareItem, Manager, Nic

SECURE_ERASE = "#Drive.SecureErase"
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")
_LINK_UP = {"LinkUp": True, "LinkDown": False, "NoLink": False}
_GONE = frozenset({"Absent", "Disabled", "UnavailableOffline"})
# Versions of what is not installed: Supermicro's backup BIOS, Lenovo's pending image, BlueField's golden image.
_NOT_INSTALLED = re.compile(r"not present|version not available|.*-\*", re.IGNORECASE)


# --- firmware ----------------------------------------------------------------------------------------------------


def firmware_key(item: Document, quirks: Quirks | None) -> str | None:
    """Return the part of the Id that no update changes; None for an entry that does not run, or is not installed."""
    id_ = need(item, "Id", text)
    version = text(item, "Version")
    if absent(item) or (version is None and state(item) == "Disabled") or _NOT_INSTALLED.fullmatch(version or ""):
        return None
    if quirks is None or quirks.firmware_id is None:
        return id_
    found = quirks.firmware_id.fullmatch(id_)
    return found[1] if found else None


def firmware_item(item: Document, quirks: Quirks | None) -> FirmwareItem:
    """Decode a component. Some have a version only while the host is on (A10); DGX then writes n/a."""
    version = need(item, "Version", stated)
    if quirks is not None and quirks.firmware_version is not None:
        decorated = quirks.firmware_version.fullmatch(version)
        version = decorated[1] if decorated else version
    return FirmwareItem(version, boolean(item, "Updateable"), text(item, "Name") or "")


# --- memory, network, storage ------------------------------------------------------------------------------------


def memory(modules: Iterable[Document]) -> tuple[int, int | None]:
    """Count the working modules, and sum their bytes; None where one gives no size."""
    count, total, complete = 0, 0, True
    for module in modules:
        if state(module) is None:
            raise Unknown(f"memory {quote(module.get('Id'))} gives no state")
        if state(module) in _GONE:
            continue
        size = integer(module, "CapacityMiB")
        count += 1
        total += size or 0
        complete = complete and bool(size)
    if not count:
        raise Unknown("the BMC lists no memory module")
    return count, total * 2**20 if complete else None


def summary_bytes(system: Document) -> int:
    """Return the system's memory in bytes. 0, which some BMCs show while it is unknown, raises Unknown."""
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
        mac if _MAC.fullmatch(mac) and mac != "00:00:00:00:00:00" else None,  # A10: some BMCs show invalid ones
        _LINK_UP.get(text(document, "LinkStatus") or ""),
        speed if speed and speed > 0 else None,
    )


def leads_to_bmc(document: Document) -> bool:
    """Say whether an interface is the host's link to its own BMC, over USB or PCIe."""
    return link(member(document, "Links"), "HostInterface") is not None or text(document, "Id") == "ToManager"


def drive(document: Document, id_field: str = "Id") -> Drive:
    size = integer(document, "CapacityBytes")
    return Drive(
        need(document, id_field, text),
        stated(document, "SerialNumber"),
        _wwn(document),
        stated(document, "Model"),
        size if size and size > 0 else None,
        health(document),
        boolean(document, "FailurePredicted"),
        action(document, SECURE_ERASE) is not None,
    )


def _wwn(document: Document) -> str | None:
    """Return the WWN as the host's lsblk writes it, so that both can name a root disk (pitfall L1)."""
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


# --- manager ---------------------------------------------------------------------------------------------------------


def manager(document: Document) -> Manager:
    at = text(document, "DateTime")
    return Manager(
        stated(document, "Model"),
        stated(document, "FirmwareVersion"),
        clock(at, text(document, "DateTimeLocalOffset") or "") if at else None,
    )


def clock(at: str, offset: str = "") -> datetime | None:
    """Parse a BMC's time; None when it is no time or has no offset."""
    try:
        found = datetime.fromisoformat(at)
        if found.tzinfo is None and _OFFSET.fullmatch(offset):
            found = datetime.fromisoformat(at + offset)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
