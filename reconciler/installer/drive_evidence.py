"""Tell the server what is done to each drive: before it is touched, when it has ended, and why it refuses."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from reconciler.installer.client import Patience, Reporter
from reconciler.installer.disks import Disk
from reconciler.installer.machine import Failed, Machine

SAMPLE: Final = 512
_BLKFLSBUF: Final = 0x1261


class Untold(Failed):
    """The server does not have the evidence: nothing more is begun, on any drive."""


class Teller:
    """Tells the server of drives. `refusals`: whether the server knows the key of a drive that refuses (1.2)."""

    def __init__(self, machine: Machine, reporter: Reporter, patience: Patience, *, refusals: bool) -> None:
        self.machine = machine
        self._reporter, self._patience, self._refusals = reporter, patience, refusals

    def begun(self, detail: str, evidence: dict[str, Any]) -> None:
        """Wait until the server has the evidence: what is begun is on record before it begins. Raise Untold."""
        try:
            self._reporter.tell("erasing", detail, self._patience.certificate, erasure=evidence)
        except Failed as error:
            raise Untold(str(error)) from None

    def progress(self, detail: str, percent: int) -> None:
        try:
            self._reporter.progress(detail, min(99, percent))
        except Failed as error:
            raise Untold(str(error)) from None

    def ended(self, disks: list[Disk], evidence: dict[str, Any], **more: Any) -> None:
        """Look at the drive once more, and send all that shows how its erase ended."""
        after = [one for disk in disks for one in samples(disk)]
        self.begun(f"{evidence['serial']} has ended", {**evidence, **more, "samples_after": after, "ended": True})

    def refused(self, serial: str, why: str) -> None:
        """Send why a drive is not erased. The others go on."""
        if self._refusals:
            names = dict.fromkeys(("model", "firmware", "method", "tool"), "")
            self.begun(f"{serial} is not erased", {"serial": serial, **names, "failed": why[:1000]})

    def version(self, *argv: str) -> str:
        return self.machine.run(*argv).decode(errors="replace").strip().partition("\n")[0][:80]


def samples(disk: Disk) -> list[dict[str, Any]]:
    """Return digests of a few places of a disk itself, and not of what the kernel remembers of them."""
    size = disk.size
    places = (0, 1 << 20, size // 4, size // 2, 3 * (size // 4), size - (1 << 20))
    found = []
    file = os.open(Path(disk.path), os.O_RDONLY)
    try:
        with suppress(OSError):  # not each device has such a memory
            fcntl.ioctl(file, _BLKFLSBUF)
        for offset in sorted({place - place % 4096 for place in places if place in range(size)}):
            data = os.pread(file, SAMPLE, offset)
            digest = hashlib.sha256(data).hexdigest()
            found.append({"offset": offset, "digest": digest, "blank": len(set(data)) == 1})
    finally:
        os.close(file)
    return found
