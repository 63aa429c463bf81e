"""Erase the drives of a document, and send the evidence. The server judges it: nothing here takes a drive for erased.

A sanitize goes on by itself when the power fails, and is never begun a second time for that: the drive's log decides.
Sources: NVM Express Base Specification 2.0, figures 218 (Sanitize Status log page) and 275 (Identify Controller).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from reconciler.installer.client import Patience, Reporter
from reconciler.installer.disks import Disk, list_disks
from reconciler.installer.documents import EraseDocument
from reconciler.installer.machine import Failed, Machine, check_identity

PASSWORD: Final = "reconciler"
SAMPLE: Final = 512
_SANITIZE_LOG: Final = ("--log-id=129", "--log-len=64", "--raw-binary")
_RUNNING, _DONE, _UNTOUCHED = 2, (1, 4), 0x100  # of the log's status
_ACTIONS: Final = ((2, 2, "block erase"), (1, 4, "crypto erase"), (4, 3, "overwrite"))  # bit of sanicap, SANACT
_BLKFLSBUF: Final = 0x1261
_ERASE_S: Final = 12 * 3600.0  # of a large disk that is overwritten by its own firmware
_ATA_LINE: Final = re.compile(r"^\s*(not)?\s*(supported: enhanced erase|supported|enabled|locked|frozen)\s*$")
_ATA_NAME: Final = re.compile(r"^\s*(Model Number|Serial Number|Firmware Revision):\s*(\S.*?)\s*$", re.MULTILINE)


class Eraser:
    """One document's drives. `look`: seconds between looks at a sanitize."""

    def __init__(
        self, machine: Machine, document: EraseDocument, reporter: Reporter, patience: Patience, look: float = 10.0
    ) -> None:
        self._machine, self._document, self._reporter = machine, document, reporter
        self._patience, self._look = patience, look

    def run(self) -> str:
        """Erase, and return what to say of it. All drives are looked up before the first one is touched."""
        document, begun = self._document, time.monotonic()
        check_identity(self._machine, document.machine.serial, document.machine.uuid)
        ways = [self._way(serial) for serial in document.drives]
        for erase in ways:
            erase()
        return f"{', '.join(document.drives)}, in {time.monotonic() - begun:.0f} s"

    def _way(self, serial: str) -> Callable[[], None]:
        """Return what erases the drive with exactly this serial number. Raise Failed if nothing here can."""
        found = self._find(serial)
        if all(disk.name.startswith("nvme") for disk in found):
            return lambda: self._nvme(serial, found)
        if len(found) > 1:
            raise Failed(f"{len(found)} disks have serial {serial}: {', '.join(map(str, found))}")
        vendor = self._machine.read(self._machine.sys / "block" / found[0].name / "device/vendor")
        if vendor != "ATA":
            kind = f"a drive of {vendor}" if vendor else "neither NVMe nor SATA"
            raise Failed(f"{found[0]} is {kind}: this installer has no proved way to erase SAS and other drives")
        return lambda: self._ata(serial, found[0])

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

    def _tell(self, detail: str, evidence: dict[str, Any]) -> None:
        """Wait until the server has the evidence: what was begun is on record before it begins."""
        self._reporter.tell("erasing", detail, self._patience.certificate, erasure=evidence)

    def _end(self, disks: list[Disk], evidence: dict[str, Any], **more: Any) -> None:
        after = [one for disk in disks for one in samples(disk)]
        self._tell(f"{evidence['serial']} has ended", {**evidence, **more, "samples_after": after, "ended": True})

    def _version(self, *argv: str) -> str:
        return self._machine.run(*argv).decode(errors="replace").strip().partition("\n")[0][:80]

    # --- NVMe ---

    def _nvme(self, serial: str, disks: list[Disk]) -> None:
        path = str(disks[0].path)
        try:
            told = json.loads(self._machine.run("nvme", "id-ctrl", path, "-o", "json"))
            names = {
                key: str(told[name]).strip() for key, name in (("serial", "sn"), ("model", "mn"), ("firmware", "fr"))
            }
            can, optional, attributes = int(told["sanicap"]), int(told["oacs"]), int(told["fna"])
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"nvme id-ctrl {path}: {error!r}") from None
        if names["serial"] != serial:
            raise Failed(f"{path} says that it is {names['serial']}, and not {serial}")
        evidence = {**names, "tool": self._version("nvme", "version")}
        able = [(action, words) for bit, action, words in _ACTIONS if can & bit]
        if able:
            action, words = able[0]
            self._sanitize(disks, {**evidence, "method": f"nvme sanitize, {words}"}, action)
        elif optional & 2:
            self._format(disks, evidence, 2 if attributes & 4 else 1)
        else:
            raise Failed(f"drive {serial} offers neither Sanitize nor Format NVM: destroy it")

    def _log(self, disk: Disk) -> bytes:
        log = self._machine.run("nvme", "get-log", str(disk.path), *_SANITIZE_LOG)
        if len(log) < 64:
            raise Failed(f"{disk}: its sanitize log has {len(log)} bytes of 64")
        return log[:64]

    def _sanitize(self, disks: list[Disk], evidence: dict[str, Any], action: int) -> None:
        before = self._log(disks[0])
        status = int.from_bytes(before[2:4], "little")
        if status & 7 == _RUNNING:
            self._tell(f"a sanitize of {evidence['serial']} runs already", evidence)
        elif status & 7 in _DONE and status & _UNTOUCHED:  # nobody has written to it since
            self._end(disks, evidence, log=before.hex())
            return
        else:
            evidence["samples"] = [one for disk in disks for one in samples(disk)]
            evidence["log_before"] = before.hex()
            self._tell(f"{evidence['method']} of {evidence['serial']}", evidence)
            self._machine.run("nvme", "sanitize", str(disks[0].path), f"--sanact={action}")
        log = self._log(disks[0])
        while int.from_bytes(log[2:4], "little") & 7 == _RUNNING:
            share = int.from_bytes(log[:2], "little") * 100 // 65536
            self._reporter.progress(f"{evidence['method']} of {evidence['serial']}", min(99, share))
            time.sleep(self._look)
            log = self._log(disks[0])
        self._end(disks, evidence, log=log.hex())

    def _format(self, disks: list[Disk], evidence: dict[str, Any], setting: int) -> None:
        """Format each namespace. There is no log of it: the samples alone can show it."""
        evidence["method"] = f"nvme format, secure erase setting {setting}"
        evidence["samples"] = [one for disk in disks for one in samples(disk)]
        self._tell(f"{evidence['method']} of {evidence['serial']}", evidence)
        for disk in disks:
            argv = ("nvme", "format", str(disk.path), f"--ses={setting}", "--force", "--timeout=7200000")
            self._machine.run(*argv, timeout=_ERASE_S)
        self._end(disks, evidence)

    # --- ATA ---

    def _ata(self, serial: str, disk: Disk) -> None:
        """Erase by the drive's own SECURITY ERASE UNIT. A password that is on may be ours, of an erase that was cut."""
        names, flags = self._security(disk)
        if names["serial"] != serial:
            raise Failed(f"{disk.path} says that it is {names['serial']}, and not {serial}")
        if not flags.get("supported"):
            raise Failed(f"drive {serial} has no ATA security feature set: destroy it")
        if flags.get("frozen"):
            raise Failed(f"the firmware froze drive {serial} at boot: power-cycle the drive, or plug it in anew")
        kind = "security-erase-enhanced" if flags.get("supported: enhanced erase") else "security-erase"
        evidence: dict[str, Any] = {**names, "method": f"hdparm --{kind}", "tool": self._version("hdparm", "-V")}
        evidence["samples"] = [] if flags.get("locked") else samples(disk)
        self._tell(f"{evidence['method']} of {serial}", evidence)
        user = ("hdparm", "--user-master", "u")
        if not flags.get("enabled"):
            self._machine.run(*user, "--security-set-pass", PASSWORD, str(disk.path))
        self._machine.run(*user, f"--{kind}", PASSWORD, str(disk.path), timeout=_ERASE_S)
        _, after = self._security(disk)
        if after.get("enabled") or after.get("locked"):
            raise Failed(f"drive {serial} is not erased: its password is still on")
        self._end([disk], evidence)

    def _security(self, disk: Disk) -> tuple[dict[str, str], dict[str, bool]]:
        text = self._machine.run("hdparm", "-I", str(disk.path)).decode(errors="replace")
        found = dict(_ATA_NAME.findall(text))
        flags: dict[str, bool] = {}
        for line in text.partition("\nSecurity:")[2].splitlines():
            if (match := _ATA_LINE.match(line)) is not None:
                flags[match[2]] = match[1] is None
            elif line.strip().endswith("ERASE UNIT."):
                break
        keys = (("serial", "Serial Number"), ("model", "Model Number"), ("firmware", "Firmware Revision"))
        if any(name not in found for _, name in keys):
            raise Failed(f"hdparm -I {disk.path}: it names no drive")
        return {key: found[name] for key, name in keys}, flags


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
