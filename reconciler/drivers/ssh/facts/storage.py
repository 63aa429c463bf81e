"""SMART health of drives, and the physical disk of the root file system.

Kernel names change between boots (pitfall L4): a disk is identified by its serial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, find_json, whole_number
from reconciler.model.gate import CommandResult
from reconciler.model.observed import DiskHealth, NvmeHealth
from reconciler.model.vocab import UnknownReason

# --- NVMe --------------------------------------------------------------------------------------------------------

_DRIVE = re.compile(r"^== (/dev/\S+)(?: (\S+))?(?: (.*))?$", re.MULTILINE)

NVME_COMMAND = """
for c in /sys/class/nvme/nvme*; do
    [ "$(cat "$c/transport" 2>/dev/null)" = pcie ] || continue
    serial= model=
    read -r serial <"$c/serial"
    read -r model <"$c/model"
    echo "== /dev/${c##*/} ${serial:--} ${model:--}"
    nvme smart-log "/dev/${c##*/}" -o json || smartctl -j -A "/dev/${c##*/}"
    echo
done
exit 0
"""


def parse_nvme(answer: CommandResult) -> Parsed[tuple[NvmeHealth, ...]]:
    """Return one row per drive; a drive whose log can't be read has a row without health."""
    headers = list(_DRIVE.finditer(answer.stdout))
    if not headers:
        if answer.stdout.strip():
            raise Unreadable(f"no drive in {excerpt(answer.stdout, 80)!r}")
        return Parsed(())
    ends = [header.start() for header in headers[1:]] + [len(answer.stdout)]
    rows, notes = [], {}
    for header, end in zip(headers, ends, strict=True):
        device, serial, model = header[1], _named(header[2]), _named(header[3])
        try:
            log = find_json(answer.stdout[header.end() : end])
        except Unreadable as error:
            log = {}
            notes[f"nvme.{device}"] = f"{error}; {excerpt(answer.stderr) or 'nothing on stderr'}"
        rows.append(_health(device, serial, model, log if isinstance(log, dict) else {}))
    return Parsed(tuple(rows), notes)


def _named(text: str | None) -> str | None:
    text = (text or "").strip()
    return None if text in ("", "-") else text


def _health(device: str, serial: str | None, model: str | None, log: dict[str, Any]) -> NvmeHealth:
    """Decode a SMART log. Names and types vary with nvme-cli; from 2.11 on critical_warning is an object.

    smartctl, which is asked where nvme-cli gives no answer, has the log in a larger document.
    """
    nested = log.get("nvme_smart_health_information_log")
    log = nested if isinstance(nested, dict) else log
    warning = log.get("critical_warning")
    if isinstance(warning, dict):
        warning = warning.get("value")
    return NvmeHealth(
        device=device,
        serial=serial,
        model=model,
        critical_warning=whole_number(warning),
        media_errors=whole_number(log.get("media_errors")),
        percentage_used=whole_number(log.get("percent_used", log.get("percentage_used"))),
        available_spare=whole_number(log.get("avail_spare", log.get("available_spare"))),
        spare_threshold=whole_number(log.get("spare_thresh", log.get("available_spare_threshold"))),
    )


# --- SATA and SAS ------------------------------------------------------------------------------------------------

# A drive that sleeps is not woken, and answers nothing (-n standby). Removable drives are no part of a node.
DISKS_COMMAND = """
for b in /sys/block/sd*; do
    [ "$(cat "$b/removable" 2>/dev/null)" = 0 ] || continue
    echo "== /dev/${b##*/}"
    smartctl -j -i -H -A -n standby "/dev/${b##*/}"
    echo
done
exit 0
"""
# Attributes of ATA drives, by id: their raw values are counts of sectors.
_ATTRIBUTES: Mapping[str, int] = {"reallocated": 5, "pending": 197, "uncorrectable": 198}


def parse_disks(answer: CommandResult) -> Parsed[tuple[DiskHealth, ...]]:
    """Return one row per drive; a drive that gives no verdict of its own, as behind a RAID controller, has none."""
    headers = list(_DRIVE.finditer(answer.stdout))
    if not headers and answer.stdout.strip():
        raise Unreadable(f"no drive in {excerpt(answer.stdout, 80)!r}")
    ends = [*(header.start() for header in headers[1:]), len(answer.stdout)]
    rows, notes = [], {}
    for header, end in zip(headers, ends, strict=False):
        try:
            found = find_json(answer.stdout[header.end() : end])
        except Unreadable as error:
            found = {}
            notes[f"disks.{header[1]}"] = f"{error}; {excerpt(answer.stderr) or 'nothing on stderr'}"
        row = _disk(header[1], found if isinstance(found, dict) else {})
        if row.passed is None:
            notes.setdefault(f"disks.{header[1]}", f"{UnknownReason.UNSUPPORTED.value}: it gives no verdict on itself")
        rows.append(row)
    return Parsed(tuple(rows), notes)


def _disk(device: str, found: dict[str, Any]) -> DiskHealth:
    status = found.get("smart_status")
    passed = status.get("passed") if isinstance(status, dict) else None
    serial, model = (found.get(key) for key in ("serial_number", "model_name"))
    counts = {name: _attribute(found, number) for name, number in _ATTRIBUTES.items()}
    return DiskHealth(
        device,
        _named(excerpt(serial, 80)) if isinstance(serial, str) else None,
        _named(excerpt(model, 80)) if isinstance(model, str) else None,
        passed if isinstance(passed, bool) else None,
        **counts,
    )


def _attribute(found: dict[str, Any], number: int) -> int | None:
    """Return the raw value of an attribute; None where the drive has no such one."""
    attributes = found.get("ata_smart_attributes")
    table = attributes.get("table") if isinstance(attributes, dict) else None
    for row in table if isinstance(table, list) else []:
        if isinstance(row, dict) and row.get("id") == number:
            raw = row.get("raw")
            return whole_number(raw.get("value")) if isinstance(raw, dict) else None
    return None


# --- the root disk -----------------------------------------------------------------------------------------------


def parse_root_disk(answer: CommandResult) -> Parsed[str]:
    """Return the serial of the one disk under /, through partitions, volumes and multipath (lsblk -s)."""
    document = find_json(answer.stdout)
    roots = document.get("blockdevices") if isinstance(document, dict) else None
    if not isinstance(roots, list) or len(roots) != 1:
        raise Unreadable("lsblk did not answer for the one device that / is on")
    disks = [node for node in _nodes(roots) if node.get("type") == "disk"]
    if not disks:
        raise Unreadable("/ is on no physical disk", UnknownReason.UNSUPPORTED)
    serials = {serial.strip() for disk in disks if isinstance(serial := disk.get("serial"), str) and serial.strip()}
    if len(serials) != 1:
        names = ", ".join(sorted({excerpt(str(disk.get("name")), 40) for disk in disks}))
        what = "spans several disks" if serials else "is on a disk without a serial"
        raise Unreadable(f"/ {what}: {names}", UnknownReason.UNSUPPORTED)
    return Parsed(serials.pop())


def _nodes(roots: list[Any]) -> Iterator[dict[str, Any]]:
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            children = node.get("children")
            stack += children if isinstance(children, list) else []


NVME = Fact("nvme", NVME_COMMAND, parse_nvme, ("nvme",), timeout_s=10)
DISKS = Fact("disks", DISKS_COMMAND, parse_disks, ("disks",), timeout_s=10)
# findmnt -v leaves out the subvolume, as in /dev/sda2[/@].
ROOT_DISK = Fact(
    "root_disk",
    'lsblk -J -s -o NAME,TYPE,SERIAL,WWN "$(findmnt -n -v -o SOURCE /)"',
    parse_root_disk,
    ("image.booted_disk",),
)
