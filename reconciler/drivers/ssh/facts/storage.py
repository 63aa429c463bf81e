"""SMART health of NVMe drives, and the physical disk of the root file system.

Kernel names change between boots (pitfall L4): a disk is identified by its serial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, find_json, whole_number
from reconciler.model.gate import CommandResult
from reconciler.model.observed import NvmeHealth
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
    nvme smart-log "/dev/${c##*/}" -o json
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
    """Decode a SMART log. Names and types vary with nvme-cli; from 2.11 on critical_warning is an object."""
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
# findmnt -v leaves out the subvolume, as in /dev/sda2[/@].
ROOT_DISK = Fact(
    "root_disk",
    'lsblk -J -s -o NAME,TYPE,SERIAL,WWN "$(findmnt -n -v -o SOURCE /)"',
    parse_root_disk,
    ("image.booted_disk",),
)
