"""Make the hash tree of dm-verity: with its root hash in what is signed, the kernel checks each block that it reads.

The form is version 1 of the kernel's Documentation/admin-guide/device-mapper/verity.rst, behind the superblock of
cryptsetup, as `veritysetup format` makes it. The salt and the UUID are given, so equal data gives equal bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from reconciler.drivers.boot_images.tools import BuildFailed

BLOCK: Final = 4096
_SUPERBLOCK: Final = struct.Struct("<8sII16s32sIIQH6x256s168x")
_MAGIC: Final = b"verity\0\0"


@dataclass(frozen=True, slots=True)
class VeritySuperblock:
    """What the first block of a hash partition says of the tree."""

    data_blocks: int
    salt: bytes


def write_hash_tree(data: Path, tree: Path, salt: bytes, uuid: UUID) -> str:
    """Write the superblock and hash tree of `data`; return the root hash in hexadecimal."""
    blocks, rest = divmod(data.stat().st_size, BLOCK)
    if rest or blocks < 2:
        raise BuildFailed(f"{data.name} is no file system of whole blocks of {BLOCK} bytes")
    with data.open("rb") as file:
        levels = [_level(iter(lambda: file.read(BLOCK), b""), salt)]
    while len(levels[-1]) > BLOCK:
        levels.append(_level(_blocks(levels[-1]), salt))
    with tree.open("wb") as out:
        head = _SUPERBLOCK.pack(_MAGIC, 1, 1, uuid.bytes, b"sha256", BLOCK, BLOCK, blocks, len(salt), salt)
        out.write(head.ljust(BLOCK, b"\0"))
        for level in reversed(levels):
            out.write(level)
    return hashlib.sha256(salt + levels[-1]).hexdigest()


def read_superblock(block: bytes) -> VeritySuperblock | None:
    """Return what a hash partition's first block says; None when it is none of ours."""
    if len(block) < _SUPERBLOCK.size:
        return None
    magic, version, kind, _, algorithm, data, hashes, blocks, size, salt = _SUPERBLOCK.unpack_from(block)
    if (magic, version, kind, data, hashes) != (_MAGIC, 1, 1, BLOCK, BLOCK) or algorithm.rstrip(b"\0") != b"sha256":
        return None
    return VeritySuperblock(blocks, salt[: min(size, 256)])


def root_hash_of(tree: bytes, salt: bytes) -> str:
    """Return the root hash that a tree's first block has, which is its top."""
    return hashlib.sha256(salt + tree[BLOCK : 2 * BLOCK]).hexdigest()


def _level(blocks: Iterable[bytes], salt: bytes) -> bytes:
    """Return the hashes of blocks, in whole blocks."""
    seed = hashlib.sha256(salt)
    hashes = bytearray()
    for block in blocks:
        one = seed.copy()
        one.update(block)
        hashes += one.digest()
    return bytes(hashes) + bytes(-len(hashes) % BLOCK)


def _blocks(level: bytes) -> Iterator[bytes]:
    return (level[at : at + BLOCK] for at in range(0, len(level), BLOCK))
