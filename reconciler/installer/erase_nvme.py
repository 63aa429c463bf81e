"""Erase an NVMe drive: by Sanitize, whose log is evidence, or else by Format NVM.

A sanitize goes on by itself when the power fails, and is never begun a second time for that: the drive's log decides.
Sources: NVM Express Base Specification 2.0, figures 218 (Sanitize Status log page) and 275 (Identify Controller).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from reconciler.installer.disks import Disk
from reconciler.installer.drive_evidence import Teller, samples
from reconciler.installer.machine import Failed

_SANITIZE_LOG: Final = ("--log-id=129", "--log-len=64", "--raw-binary")
_RUNNING, _FAILED, _DONE, _UNTOUCHED = 2, 3, (1, 4), 0x100  # of the log's status
_ACTIONS: Final = ((2, 2, "block erase"), (1, 4, "crypto erase"), (4, 3, "overwrite"))  # bit of sanicap, SANACT
_FORMAT_S: Final = 12 * 3600.0


def erase_nvme(teller: Teller, serial: str, disks: list[Disk]) -> Iterator[None]:
    """Erase the drive with these namespaces, and yield while it works by itself."""
    path = str(disks[0].path)
    try:
        told = json.loads(teller.machine.run("nvme", "id-ctrl", path, "-o", "json"))
        names = {key: str(told[name]).strip() for key, name in (("serial", "sn"), ("model", "mn"), ("firmware", "fr"))}
        can, optional, attributes = int(told["sanicap"]), int(told["oacs"]), int(told["fna"])
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"nvme id-ctrl {path}: {error!r}") from None
    if names["serial"] != serial:
        raise Failed(f"{path} says that it is {names['serial']}, and not {serial}")
    evidence = {**names, "tool": teller.version("nvme", "version")}
    able = [(action, words) for bit, action, words in _ACTIONS if can & bit]
    if able:
        action, words = able[0]
        yield from _sanitize(teller, disks, {**evidence, "method": f"nvme sanitize, {words}"}, action)
    elif optional & 2:
        _format(teller, disks, evidence, 2 if attributes & 4 else 1)
    else:
        raise Failed(f"drive {serial} offers neither Sanitize nor Format NVM: destroy it")


def _log(teller: Teller, disk: Disk) -> bytes:
    log = teller.machine.run("nvme", "get-log", str(disk.path), *_SANITIZE_LOG)
    if len(log) < 64:
        raise Failed(f"{disk}: its sanitize log has {len(log)} bytes of 64")
    return log[:64]


def _sanitize(teller: Teller, disks: list[Disk], evidence: dict[str, Any], action: int) -> Iterator[None]:
    what = f"{evidence['method']} of {evidence['serial']}"
    before = _log(teller, disks[0])
    status = int.from_bytes(before[2:4], "little")
    if status & 7 == _RUNNING:
        teller.begun(f"a sanitize of {evidence['serial']} runs already", evidence)
    elif status & 7 in _DONE and status & _UNTOUCHED:  # nobody has written to it since
        teller.ended(disks, evidence, log=before.hex())
        return
    else:
        if status & 7 != _FAILED:  # such a drive can't be read: another sanitize is all that it takes
            evidence["samples"] = [one for disk in disks for one in samples(disk)]
        evidence["log_before"] = before.hex()
        teller.begun(what, evidence)
        teller.machine.run("nvme", "sanitize", str(disks[0].path), f"--sanact={action}")
    log = _log(teller, disks[0])
    while int.from_bytes(log[2:4], "little") & 7 == _RUNNING:
        teller.progress(what, int.from_bytes(log[:2], "little") * 100 // 65536)
        yield
        log = _log(teller, disks[0])
    teller.ended(disks, evidence, log=log.hex())


def _format(teller: Teller, disks: list[Disk], evidence: dict[str, Any], setting: int) -> None:
    """Format each namespace. There is no log of it: the samples alone can show it."""
    evidence["method"] = f"nvme format, secure erase setting {setting}"
    evidence["samples"] = [one for disk in disks for one in samples(disk)]
    teller.begun(f"{evidence['method']} of {evidence['serial']}", evidence)
    for disk in disks:
        argv = ("nvme", "format", str(disk.path), f"--ses={setting}", "--force", "--timeout=7200000")
        teller.machine.run(*argv, timeout=_FORMAT_S)
    teller.ended(disks, evidence)
