"""Write and read GUID partition tables of disk images.

Ids and types of root and its hash tree are those of the Discoverable Partitions Specification: systemd finds both by
the root hash alone. https://uapi-group.org/specifications/specs/discoverable_partitions_specification/
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from reconciler.model.errors import UsageError

SECTOR: Final = 512
MIB: Final = 2**20
ESP: Final = UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
# architecture of Debian -> types of root and of its hash tree
ROOT: Final = {
    "amd64": UUID("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"),
    "arm64": UUID("b921b045-1df0-41c3-af44-4c6f280d3fae"),
}
ROOT_VERITY: Final = {
    "amd64": UUID("2c7357ed-ebd2-46d9-aec1-23d437ec2bf5"),
    "arm64": UUID("df3300ce-d69f-4c92-978c-9bfb0f38d820"),
}
_HEADER: Final = struct.Struct("<8sIIIIQQQQ16sQIII")
_ENTRY: Final = struct.Struct("<16s16sQQQ72s")
_ENTRIES: Final = 128
_TABLE_SECTORS: Final = _ENTRIES * _ENTRY.size // SECTOR
_MBR: Final = struct.Struct("<446xB3sB3sII")


class NoTable(UsageError):
    """The file has no GPT that can be read."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. `start` and `size` are bytes."""

    name: str
    type: UUID
    id: UUID
    start: int
    size: int


def ids_of_roothash(roothash: str) -> tuple[UUID, UUID]:
    """Return the ids of root and of its hash tree: the first and the last 128 bits of the root hash."""
    return UUID(hex=roothash[:32]), UUID(hex=roothash[-32:])


def arranged(parts: Sequence[tuple[str, UUID, UUID, int]]) -> tuple[Partition, ...]:
    """Place partitions (name, type, id, bytes) one after another, each at a whole MiB, from the first on."""
    placed, at = [], MIB
    for name, kind, identity, size in parts:
        placed.append(Partition(name, kind, identity, at, size))
        at += -(-size // MIB) * MIB
    return tuple(placed)


def write_table(image: Path, disk: UUID, partitions: Sequence[Partition]) -> None:
    """Make the file as long as it must be, and write both copies of the table. What is between them stays."""
    last = max(part.start + -(-part.size // MIB) * MIB for part in partitions)
    sectors = (last + MIB) // SECTOR
    entries = b"".join(
        _ENTRY.pack(
            part.type.bytes_le,
            part.id.bytes_le,
            part.start // SECTOR,
            (part.start + part.size) // SECTOR - 1,
            0,
            part.name.encode("utf-16-le"),
        )
        for part in partitions
    ).ljust(_ENTRIES * _ENTRY.size, b"\0")
    with image.open("r+b" if image.exists() else "w+b") as file:
        file.truncate(sectors * SECTOR)
        size = min(sectors - 1, 0xFFFFFFFF)
        file.write(_MBR.pack(0, b"\x00\x02\x00", 0xEE, b"\xff\xff\xff", 1, size).ljust(510, b"\0") + b"\x55\xaa")
        file.write(_header(disk, entries, 1, sectors - 1, 2).ljust(SECTOR, b"\0") + entries)
        file.seek((sectors - 1 - _TABLE_SECTORS) * SECTOR)
        file.write(entries + _header(disk, entries, sectors - 1, 1, sectors - 1 - _TABLE_SECTORS).ljust(SECTOR, b"\0"))


def _header(disk: UUID, entries: bytes, own: int, other: int, table: int) -> bytes:
    first, last = 2 + _TABLE_SECTORS, max(own, other) - _TABLE_SECTORS - 1
    values = (own, other, first, last, disk.bytes_le, table, _ENTRIES, _ENTRY.size, zlib.crc32(entries))
    blank = _HEADER.pack(b"EFI PART", 0x10000, _HEADER.size, 0, 0, *values)
    return _HEADER.pack(b"EFI PART", 0x10000, _HEADER.size, zlib.crc32(blank), 0, *values)


def read_table(image: Path) -> tuple[Partition, ...]:
    """Return the partitions of a disk image, by its first table. Raise NoTable when there is none, or it is damaged."""
    with image.open("rb") as file:
        head = file.read(2 * SECTOR)[SECTOR:]
        if len(head) < SECTOR or head[:8] != b"EFI PART":
            raise NoTable(f"{image.name} is no disk image with a GPT")
        _, _, size, crc, _, _, _, _, _, _, table, count, each, entries_crc = _HEADER.unpack_from(head)
        if size != _HEADER.size or each != _ENTRY.size or count > 1024:
            raise NoTable(f"{image.name} has a GPT of another form")
        file.seek(table * SECTOR)
        entries = file.read(count * each)
        if zlib.crc32(head[:16] + bytes(4) + head[20:size]) != crc or zlib.crc32(entries) != entries_crc:
            raise NoTable(f"the GPT of {image.name} is damaged")
        length = file.seek(0, 2)
    found = []
    for kind, identity, start, last, _, name in _ENTRY.iter_unpack(entries):
        if any(kind):
            part = Partition(
                name.decode("utf-16-le", "replace").partition("\0")[0],
                UUID(bytes_le=kind),
                UUID(bytes_le=identity),
                start * SECTOR,
                (last + 1 - start) * SECTOR,
            )
            if part.size <= 0 or part.start + part.size > length:
                raise NoTable(f"partition {part.name!r} of {image.name} ends behind the image")
            found.append(part)
    return tuple(found)
