"""Reading and writing the TPM's own encoding: big-endian integers and buffers with their size in front."""

from __future__ import annotations

import struct


class Malformed(ValueError):
    """Bytes that are not what they claim to be. The message says what is wrong."""


class Reader:
    """Reads bytes from left to right. `what` names the structure in messages; `little`: little-endian integers."""

    def __init__(self, data: bytes, what: str, *, little: bool = False) -> None:
        self._data = data
        self._what = what
        self._order = "<" if little else ">"
        self.at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise Malformed(f"{self._what} is cut off: {self.left} bytes where {size} belong")
        self.at += size
        return self._data[self.at - size : self.at]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(struct.unpack(self._order + "H", self.take(2))[0])

    def u32(self) -> int:
        return int(struct.unpack(self._order + "I", self.take(4))[0])

    def u64(self) -> int:
        return int(struct.unpack(self._order + "Q", self.take(8))[0])

    def sized(self) -> bytes:
        """Return a TPM2B: a buffer with its size before it."""
        return self.take(self.u16())

    def end(self) -> None:
        if self.left:
            raise Malformed(f"{self._what} has {self.left} bytes too many")


def sized(data: bytes) -> bytes:
    """Return a TPM2B of these bytes."""
    return struct.pack(">H", len(data)) + data
