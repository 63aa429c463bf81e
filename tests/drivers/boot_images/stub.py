"""A PE image as small as one can be, laid out as systemd-stub is: for tests that need no real stub."""

from __future__ import annotations

import struct
from pathlib import Path

REAL = Path("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")


def small_stub(
    sections: tuple[tuple[bytes, int, bytes], ...] = ((b".text", 0x1000, b"code"),), room: int = 1024
) -> bytes:
    """Return a PE32+ image with these sections (name, address, content), and headers that take `room` bytes."""
    optional = bytearray(240)
    struct.pack_into("<H", optional, 0, 0x20B)
    struct.pack_into("<II", optional, 32, 512, 512)
    struct.pack_into("<I", optional, 60, room)
    struct.pack_into("<H", optional, 68, 10)
    struct.pack_into("<I", optional, 108, 16)
    dos = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    coff = struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, len(optional), 0x22)
    table = body = b""
    for name, address, content in sections:
        row = (name, len(content), address, 512, room + len(body), 0, 0, 0, 0, 0x60000020)
        table += struct.pack("<8sIIIIIIHHI", *row)
        body += content.ljust(512, b"\0")
    return (dos + b"PE\0\0" + coff + bytes(optional) + table).ljust(room, b"\0") + body
