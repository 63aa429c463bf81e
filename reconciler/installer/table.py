"""Partition tables: what a disk or an image has, what a layout asks for, and the one write that makes it so.

sfdisk reads and writes them. Until the table is written, the kernel alone is told of the partitions.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reconciler.installer import kept_key
from reconciler.installer.disks import Disk
from reconciler.installer.documents import Layout
from reconciler.installer.machine import Failed, Machine

MIB: Final = 1 << 20
ENDS: Final = MIB  # bytes at both ends of a disk that a GPT may take
BUSY: Final = 20.0  # seconds that a device may stay busy
RE_READ: Final = 0x125F  # the ioctl BLKRRPART
IN_USE: Final = ("--no-reread", "--no-tell-kernel")  # sfdisk's options for a disk with mounted partitions
ESP: Final = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
LINUX: Final = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
# Types of the Discoverable Partitions Specification: x86-64, then 64-bit ARM.
ROOT: Final = ("4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "B921B045-1DF0-41C3-AF44-4C6F280D3FAE")
VERITY: Final = ("2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5", "DF3300CE-D69F-4C92-978C-9BFB0F38D820")


@dataclass(frozen=True)
class Partition:
    """An entry of a table. Sizes are bytes."""

    number: int
    start: int
    size: int
    type: str
    uuid: str
    name: str = ""
    attrs: str = ""


@dataclass(frozen=True)
class Table:
    """A partition table. `label` is its form: gpt, or one that no disk of ours has."""

    label: str
    id: str
    partitions: tuple[Partition, ...]

    def named(self, name: str) -> Partition | None:
        return next((part for part in self.partitions if part.name == name), None)

    def typed(self, *types: str) -> tuple[Partition, ...]:
        return tuple(part for part in self.partitions if part.type in types)


def read_table(machine: Machine, path: Path) -> Table | None:
    """Return the table of a disk or a file, None when there is none."""
    try:
        text = machine.run("sfdisk", "--json", str(path))
    except Failed as error:
        if "does not contain a recognized partition table" in str(error):
            return None
        raise
    told = json.loads(text)["partitiontable"]
    unit = int(told.get("sectorsize", 512))
    return Table(
        told["label"],
        told.get("id", ""),
        tuple(
            Partition(
                number=int(re.findall(r"\d+$", entry["node"])[0]),
                start=entry["start"] * unit,
                size=entry["size"] * unit,
                type=entry["type"].upper(),
                uuid=entry.get("uuid", "").lower(),
                name=entry.get("name", ""),
                attrs=entry.get("attrs", ""),
            )
            for entry in told.get("partitions", ())
        ),
    )


def image_table(machine: Machine, head: bytes) -> Table:
    """Return the table of an image from its first bytes: a file as long as the image, with nothing behind them."""
    if head[512:520] != b"EFI PART":
        raise Failed("the image has no GPT", "image")
    backup = int.from_bytes(head[544:552], "little")  # the header's AlternateLBA: the image's last sector
    path = machine.work / "image-head"
    with path.open("wb") as file:
        file.write(head)
        with suppress(OSError, OverflowError):  # a length that no file has: sfdisk says what is wrong with it
            file.truncate(max((backup + 1) * 512, len(head)))
    table = read_table(machine, path)
    path.unlink()
    if table is None or table.label != "gpt" or not table.partitions:
        raise Failed("the image has no GPT that can be read", "image")
    return table


def laid_out(layout: Layout, disk: Disk, root_type: str, verity_type: str) -> tuple[Partition, ...]:
    """Return the partitions of a layout, with new ids."""
    wanted = [
        ("esp", layout.esp, ESP),
        ("root-a", layout.root, root_type),
        ("verity-a", layout.root // 10, verity_type),
        ("root-b", layout.root, root_type),
        ("verity-b", layout.root // 10, verity_type),
        ("state", layout.state, LINUX),
    ]
    parts, at = [], ENDS
    for number, (name, size, kind) in enumerate(wanted, 1):
        size = -(-size // MIB) * MIB
        parts.append(Partition(number, at, size, kind, str(uuid.uuid4()), name))
        at += size
    room = (disk.size - ENDS) // MIB * MIB - at
    if room < 0:
        raise Failed(f"the layout takes {-room / 1e9:.1f} GB more than {disk} has", "layout")
    if layout.data and room >= MIB:
        parts.append(Partition(len(parts) + 1, at, room, LINUX, str(uuid.uuid4()), "data"))
    return tuple(parts)


def differences(table: Table, wanted: Iterable[Partition]) -> str:
    """Return how a disk's table differs from a layout, "" when it does not. Ids and types are a slot's own."""
    if table.label != "gpt":
        return f"its table is {table.label}, and not gpt"
    here = {part.name: (part.number, part.start, part.size) for part in table.partitions}
    there = {part.name: (part.number, part.start, part.size) for part in wanted}
    odd = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if len(here) != len(table.partitions):
        return "two of its partitions have one name"
    return f"it differs at {', '.join(name or 'a partition without a name' for name in odd)}" if odd else ""


def wipe(disk: Disk) -> None:
    """Destroy both copies of a GPT: firmware would mend the first from the backup. A key that is kept there stays."""
    try:
        device = os.open(disk.path, os.O_WRONLY | os.O_EXCL)
        try:
            os.pwrite(device, bytes(kept_key.AT), 0)
            os.pwrite(device, bytes(ENDS - kept_key.AT - kept_key.SIZE), kept_key.AT + kept_key.SIZE)
            os.pwrite(device, bytes(ENDS), disk.size - ENDS)
            os.fsync(device)
            fcntl.ioctl(device, RE_READ)
        finally:
            os.close(device)
    except OSError as error:
        raise Failed(f"{disk}: its old partition table can't be destroyed: {error.strerror}") from None


@contextmanager
def partition_device(machine: Machine, disk: Disk, part: Partition) -> Iterator[Path]:
    """Give the device of a partition. One that no table has yet is told to the kernel for the time of a `with`."""
    device, whole = disk.part(part.number), str(disk.path.resolve())
    if device.exists():  # the kernel read it from the table
        yield device
        return
    machine.run("addpart", whole, str(part.number), str(part.start // 512), str(part.size // 512))
    try:
        yield device
    finally:
        _forget(machine, whole, part.number)


def _forget(machine: Machine, whole: str, number: int) -> None:
    """Take a partition from the kernel again. It may be busy for a moment after an unmount."""
    ends = time.monotonic() + BUSY
    while True:
        try:
            machine.run("delpart", whole, str(number))
        except Failed:
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)
        else:
            return


def write_table(machine: Machine, disk: Disk, table: Table, *, in_use: bool = False) -> None:
    """Write a GPT, both copies, and no byte beside it. Check what the disk has then.

    `in_use`: a system runs from the disk, so its kernel keeps the ids that it knows until the next boot.
    """
    for part in table.partitions:
        if part.start % disk.sector or part.size % disk.sector:
            raise Failed(f"partition {part.number} of the image does not fit the sectors of {disk}", "image")
    entries = 16384  # bytes that the 128 entries of a GPT take, behind its header
    lines = ["label: gpt", f"label-id: {table.id}", f"first-lba: {2 + entries // disk.sector}"]
    for part in table.partitions:
        fields = [f"start={part.start // disk.sector}", f"size={part.size // disk.sector}", f"type={part.type}"]
        fields += [f"uuid={part.uuid}", f'name="{part.name}"']
        if part.attrs:
            fields.append(f'attrs="{part.attrs}"')
        lines.append(f"{disk.part(part.number)} : {', '.join(fields)}")
    script = ("\n".join(lines) + "\n").encode()
    command = ("sfdisk", "--quiet", "--wipe", "never", "--wipe-partitions", "never")
    machine.run(*command, *(IN_USE if in_use else ()), str(disk.path.resolve()), stdin=script)
    written = read_table(machine, disk.path)
    if written is None or set(written.partitions) != set(table.partitions):
        raise Failed(f"{disk} has another partition table than was written")


def new_ids(part: Partition) -> Partition:
    return replace(part, uuid=str(uuid.uuid4()))
