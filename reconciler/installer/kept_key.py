"""The host key of an attempt, kept on the disk from before it is sent until the disk boots.

The power may go after the server had the key and before the last write. The next boot of the same attempt writes the
image anew, and `state` with it; a key that it made then would be a second one, by which the attempt ends. So the key is
kept where no way onto a disk writes: within the first MiB, behind the table and before the first partition.
"""

from __future__ import annotations

import json
import os
from typing import Final

from reconciler.installer.disks import Disk
from reconciler.installer.machine import Failed, say

AT: Final = 512 << 10  # a GPT takes 24 KiB at most, and partitions begin at 1 MiB (table.ENDS)
SIZE: Final = 4096


class KeptKey:
    """The place of one attempt's key on its disk. A key of another nonce is none."""

    def __init__(self, disk: Disk, nonce: str) -> None:
        self._disk, self._nonce = disk, nonce

    def read(self) -> str | None:
        """Return the private key that this attempt has kept. What was written by halves was never sent."""
        try:
            kept = json.loads(self._read().rstrip(b"\0"))
        except ValueError:
            return None
        if not isinstance(kept, dict) or kept.get("nonce") != self._nonce:
            return None
        key = kept.get("key")
        return key if isinstance(key, str) else None

    def keep(self, private: str) -> None:
        """Write a key, and return when the disk has it."""
        text = json.dumps({"nonce": self._nonce, "key": private}).encode()
        if len(text) > SIZE:
            raise Failed(f"the host key takes {len(text)} bytes, and {SIZE} can be kept")
        try:
            self._write(text.ljust(SIZE, b"\0"))
        except OSError as error:
            raise Failed(f"{self._disk}: the host key can't be kept: {error.strerror}", "disk") from None

    def forget(self) -> None:
        """Overwrite what is kept: the disk boots, and its system has the key."""
        try:
            if any(self._read()):
                self._write(bytes(SIZE))
        except OSError as error:  # the install is done all the same
            say(f"{self._disk}: the copy of the host key stays: {error.strerror}")

    def _read(self) -> bytes:
        device = os.open(self._disk.path, os.O_RDONLY)
        try:
            return os.pread(device, SIZE, AT)
        finally:
            os.close(device)

    def _write(self, text: bytes) -> None:
        device = os.open(self._disk.path, os.O_WRONLY)
        try:
            os.pwrite(device, text, AT)
            os.fsync(device)
        finally:
            os.close(device)
