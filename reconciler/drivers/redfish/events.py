"""Decode entries of a BMC's log as events with age and kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from reconciler.drivers.redfish.devices import clock
from reconciler.drivers.redfish.fields import Document, boolean, member, need, quote, text
from reconciler.model.observed import BmcEvent
from reconciler.model.vocab import Health

_SEVERITY = {"OK": Health.OK, "Warning": Health.WARNING, "Critical": Health.CRITICAL}
_AHEAD_S = 300.0  # an entry may be that much later than the BMC's clock, which is read before it
# A BMC that has no time yet counts from 1970 or 2000 (HPE, DGX, ipmitool's "Pre-Init"): such a time is no age (B6).
_CLOCK_SET = datetime(2015, 1, 1, tzinfo=UTC)
# "Uncorrectable Memory Error (Processor 1, DIMM 3)" (HPE), "Multi-bit memory errors detected" (Dell MEM0001), "Memory
# ECC uncorrectable error" (OpenBMC), "Memory #0x31 | Uncorrectable ECC" (SEL). GPU memory and PCIe have other remedies.
_UNCORRECTABLE = re.compile(r"(?<!no )(?<!0 )\buncorrect(able|ed)|\bmulti-?bit\b", re.IGNORECASE)
_OF_MEMORY = re.compile(r"memory|\bdimm|\becc\b", re.IGNORECASE)
_ELSEWHERE = re.compile(r"gpu|\bhbm|pcie?\b|nvlink|nvswitch|\bdrive\b|\bdisk\b", re.IGNORECASE)
# HGX H100: "... GPU_SXM_1 Driver Event Message has detected errors of type '[Thu Dec 7 02:27:24 UTC 2023] XID 62 ...".
XID: Final = "xid_"
_XID = re.compile(r"Driver Event Message.*\bXID (\d{1,4})\b")
# "NVSwitch_0 Driver Event Message has detected errors of type '[Wed Jun 24 19:06:47 UTC 1970][181][00] SXID 12028 ...".
# Real codes have five digits. 0 and 1 are no faults: "SXID 0 NVSWITCH SMBPBI server is online", and what follows one.
SXID: Final = "sxid_"
_SXID = re.compile(r"Driver Event Message.*\bSXID (\d{5})\b")
_UE_ID = re.compile(r"(?:.*\.)?(?:MemoryECCUncorrectable|MEM0001)")
# Dell "6fa1c001" has the event type 6f before the data; AMI and Supermicro "0xA1FFFF" have the data alone. The low four
# bits of its first byte are the offset: 1 = uncorrectable ECC of sensor type Memory (IPMI 2.0, table 42-3).
_SEL_DATA = re.compile(r"(?:0x)?(?:6f)?[0-9a-f]([0-9a-f])[0-9a-f]{4}", re.IGNORECASE)


def event(entry: Document) -> BmcEvent:
    word = text(entry, "Severity") or text(entry, "MessageSeverity") or ""
    vendors = [section for section in member(entry, "Oem").values() if isinstance(section, dict)]
    settled = [boolean(entry, "Resolved"), *(boolean(section, "Repaired") for section in vendors)]
    return BmcEvent(
        need(entry, "Id", text),
        text(entry, "Created") or "",
        _SEVERITY.get(word),
        quote(text(entry, "Message") or text(entry, "MessageId") or ""),
        kind="memory_ue" if _memory_ue(entry) else _xid(entry),
        settled=any(settled) or (text(entry, "EntryCode") or "").startswith("Deassert"),
    )


def _xid(entry: Document) -> str:
    message = text(entry, "Message") or ""
    for kind, pattern in ((XID, _XID), (SXID, _SXID)):
        if match := pattern.search(message):
            return f"{kind}{match[1]}"
    return ""


def _memory_ue(entry: Document) -> bool:
    id_, message = text(entry, "MessageId") or "", text(entry, "Message") or ""
    if _UE_ID.fullmatch(id_):
        return True
    of_memory = text(entry, "SensorType") == "Memory"
    data = _SEL_DATA.fullmatch(id_)
    if of_memory and data is not None and data[1] == "1":
        return True
    words = of_memory or (_OF_MEMORY.search(message) is not None and not _ELSEWHERE.search(message))
    return words and _UNCORRECTABLE.search(message) is not None


def in_order(entries: Iterable[Document], now: datetime | None = None, offset: str = "") -> list[BmcEvent]:
    """Return events, newest last, sorted by time where every entry has one, else by growing numbers.

    `now`, `offset`: the BMC's own clock, and its offset for times without one.
    """
    rows = [
        (clock(found.at, offset), int(found.id) if found.id.isdecimal() else 0, found) for found in map(event, entries)
    ]
    timed = all(at is not None for at, _, _ in rows)
    rows.sort(key=lambda row: (row[0].timestamp() if timed and row[0] else 0.0, row[1]))
    return [replace(found, age_s=_age(at, now)) for at, _, found in rows]


def _age(at: datetime | None, now: datetime | None) -> float | None:
    if at is None or now is None or min(at, now) < _CLOCK_SET:
        return None
    age = (now - at).total_seconds()
    return max(age, 0.0) if age >= -_AHEAD_S else None
