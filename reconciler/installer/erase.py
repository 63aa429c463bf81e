"""Erase the drives of a document, and send the evidence. The server judges it: nothing here takes a drive for erased.

Drives that work by themselves do so at the same time. One that refuses keeps its data and is named with the reason; the
others are erased all the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from reconciler.installer.client import Patience, Reporter
from reconciler.installer.disks import Disk, list_disks
from reconciler.installer.documents import EraseDocument
from reconciler.installer.drive_evidence import Teller, Untold
from reconciler.installer.erase_ata import PASSWORD as PASSWORD
from reconciler.installer.erase_ata import erase_ata
from reconciler.installer.erase_nvme import erase_nvme
from reconciler.installer.machine import Failed, Machine, check_identity, say

_WITHOUT_REFUSALS = ("1.0", "1.1")  # formats of servers that don't know the key
_NAMESPACE = re.compile(r"(nvme\d+)n\d+")


class Eraser:
    """One document's drives. `look`: seconds between looks at drives that work."""

    def __init__(
        self, machine: Machine, document: EraseDocument, reporter: Reporter, patience: Patience, look: float = 10.0
    ) -> None:
        self._machine, self._document, self._patience, self._look = machine, document, patience, look
        refusals = document.format not in _WITHOUT_REFUSALS
        self._teller = Teller(machine, reporter, patience, refusals=refusals)

    def run(self) -> str:
        """Erase, and return what to say of it. All drives are looked up before the first one is touched."""
        document, begun = self._document, time.monotonic()
        check_identity(self._machine, document.machine.serial, document.machine.uuid)
        found = {serial: self._find(serial) for serial in document.drives}
        refused = self._erase({serial: self._work(serial, disks) for serial, disks in found.items()})
        if refused:
            erased = ", ".join(serial for serial in document.drives if serial not in refused)
            reasons = "; ".join(f"{serial}: {why}" for serial, why in refused.items())
            raise Failed(f"{reasons}{f'; ended: {erased}' if erased else ''}")
        return f"{', '.join(document.drives)}, in {time.monotonic() - begun:.0f} s"

    def _erase(self, works: dict[str, Iterator[None]]) -> dict[str, str]:
        """Move all drives on until each has ended. Return why some were not erased."""
        refused: dict[str, str] = {}
        while works:
            for serial in tuple(works):
                why = self._step(works[serial])
                if why is None:
                    continue
                del works[serial]
                if why:
                    say(f"drive {serial} is not erased: {why}")
                    self._teller.refused(serial, why)
                    refused[serial] = why
            if works:
                time.sleep(self._look)
        return refused

    @staticmethod
    def _step(work: Iterator[None]) -> str | None:
        """Move one drive on. Return None while it works, "" when it has ended, or why it was not erased."""
        try:
            next(work)
        except StopIteration:
            return ""
        except Untold:
            raise
        except Failed as error:
            return str(error)
        except OSError as error:
            return f"{error.filename or 'reading it'}: {error.strerror}"
        return None

    def _work(self, serial: str, found: list[Disk]) -> Iterator[None]:
        """Erase the one drive with exactly this serial number. Raise Failed if nothing here can."""
        drives = {_NAMESPACE.sub(r"\1", disk.name) for disk in found}
        if len(drives) > 1:
            raise Failed(f"{len(drives)} drives have serial {serial}: {', '.join(map(str, found))}")
        if _NAMESPACE.fullmatch(found[0].name):
            yield from erase_nvme(self._teller, serial, found)
            return
        vendor = self._machine.read(self._machine.sys / "block" / found[0].name / "device/vendor")
        if vendor != "ATA":
            kind = f"a drive of {vendor}" if vendor else "neither NVMe nor SATA"
            raise Failed(f"{found[0]} is {kind}: this installer has no proved way to erase SAS and other drives")
        erase_ata(self._teller, serial, found[0])

    def _find(self, serial: str) -> list[Disk]:
        """Return the disks of a drive: one, or the namespaces of an NVMe controller."""
        ends = time.monotonic() + self._patience.disk
        while True:
            disks = list_disks(self._machine)
            found = [disk for disk in disks if disk.serial == serial]
            if found:
                return found
            if time.monotonic() > ends:
                raise Failed(f"no drive has the serial number {serial}; drives here: {', '.join(map(str, disks))}")
            time.sleep(0.5)
