"""Find the one disk that the document names, by serial number and WWN: its name changes from boot to boot (L4)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from reconciler.installer.documents import RootDisk
from reconciler.installer.machine import Failed, Machine

_OTHER = re.compile(r"(loop|ram|zram|sr|fd|dm-|md|nbd)\d*")  # no disks of the machine itself
SECTOR = 512  # sysfs counts in these, whatever the disk has


@dataclass(frozen=True)
class Disk:
    """A disk. `path` is its device."""

    name: str
    path: Path
    serial: str
    wwn: str
    size: int
    sector: int  # bytes of a logical sector: 512, or 4096

    def part(self, number: int) -> Path:
        """Return the device of a partition. The kernel puts a p between digits."""
        device = str(self.path.resolve())
        return Path(f"{device}{'p' if device[-1].isdigit() else ''}{number}")

    def __str__(self) -> str:
        return f"{self.name} (serial {self.serial or 'unknown'}, {self.size / 1e9:.1f} GB)"


def find_disk(machine: Machine, rule: RootDisk, patience: float) -> Disk:
    """Return the one disk that the rule names. Disks are found late by some controllers, so wait for one."""
    if rule.serial is None and rule.wwn is None:
        raise Failed("the document names no root disk", "root_disk")
    ends = time.monotonic() + patience
    while True:
        disks = list_disks(machine)
        found = [disk for disk in disks if _matches(rule, disk)]
        if len(found) == 1:
            return found[0]
        if found or time.monotonic() > ends:
            break
        time.sleep(0.5)
    wanted = " and ".join(f"{name} {value}" for name, value in (("serial", rule.serial), ("WWN", rule.wwn)) if value)
    listed = ", ".join(map(str, disks)) or "none"
    raise Failed(
        f"{len(found) or 'no'} disk{'s have' if found else ' has'} {wanted}; disks here: {listed}", "root_disk"
    )


def list_disks(machine: Machine) -> list[Disk]:
    """Return all disks with a medium, but for those of the kernel's own making."""
    disks = []
    for block in sorted((machine.sys / "block").iterdir()):
        size = int(machine.read(block / "size") or 0) * SECTOR
        if size == 0 or _OTHER.fullmatch(block.name) or machine.read(block / "hidden") == "1":
            continue
        disks.append(
            Disk(
                name=block.name,
                path=machine.dev / block.name,
                serial=_serial(machine, block),
                wwn=_wwn(machine, block),
                size=size,
                sector=int(machine.read(block / "queue/logical_block_size") or SECTOR),
            )
        )
    return disks


def _serial(machine: Machine, block: Path) -> str:
    """Return the serial number: SCSI's unit serial number page, or the file that NVMe, MMC and virtio have."""
    try:
        page = (block / "device/vpd_pg80").read_bytes()
    except OSError:
        page = b""
    if len(page) > 4:
        return page[4:].decode(errors="replace").strip("\0 ")
    return machine.read(block / "device/serial") or machine.read(block / "serial")


def _wwn(machine: Machine, block: Path) -> str:
    return machine.read(block / "device/wwid") or machine.read(block / "wwid")


def _matches(rule: RootDisk, disk: Disk) -> bool:
    if rule.serial is not None and _text(rule.serial) != _text(disk.serial):
        return False
    return rule.wwn is None or _digits(rule.wwn) == _digits(disk.wwn)


def _text(value: str) -> str:
    return " ".join(value.split()).lower()


def _digits(wwn: str) -> str:
    """Return a WWN without the prefix that names its form: naa., eui. or 0x."""
    return re.sub(r"^(naa\.|eui\.|uuid\.|0x)", "", wwn.strip().lower()).replace("-", "").replace(":", "")
