"""Erase a SATA drive by its own SECURITY ERASE UNIT."""

from __future__ import annotations

import re
from typing import Any, Final

from reconciler.installer.disks import Disk
from reconciler.installer.drive_evidence import Teller, samples
from reconciler.installer.machine import Failed, say

PASSWORD: Final = "reconciler"
USER: Final = ("hdparm", "--user-master", "u")
_ERASE_S: Final = 12 * 3600.0  # of a large disk that is overwritten by its own firmware
_LINE: Final = re.compile(r"^\s*(not)?\s*(supported: enhanced erase|supported|enabled|locked|frozen)\s*$")
_NAME: Final = re.compile(r"^\s*(Model Number|Serial Number|Firmware Revision):\s*(\S.*?)\s*$", re.MULTILINE)


def erase_ata(teller: Teller, serial: str, disk: Disk) -> None:
    """Erase a drive. A password that is on may be ours, of an erase that was cut."""
    names, flags = _security(teller, disk)
    if names["serial"] != serial:
        raise Failed(f"{disk.path} says that it is {names['serial']}, and not {serial}")
    if not flags.get("supported"):
        raise Failed(f"drive {serial} has no ATA security feature set: destroy it")
    if flags.get("frozen"):
        raise Failed(f"the firmware froze drive {serial} at boot: power-cycle the drive, or plug it in anew")
    kind = "security-erase-enhanced" if flags.get("supported: enhanced erase") else "security-erase"
    evidence: dict[str, Any] = {**names, "method": f"hdparm --{kind}", "tool": teller.version("hdparm", "-V")}
    evidence["samples"] = samples(disk) if not flags.get("locked") or _unlocks(teller, disk) else []
    teller.begun(f"{evidence['method']} of {serial}", evidence)
    if not flags.get("enabled"):
        teller.machine.run(*USER, "--security-set-pass", PASSWORD, str(disk.path))
    teller.machine.run(*USER, f"--{kind}", PASSWORD, str(disk.path), timeout=_ERASE_S)
    _, after = _security(teller, disk)
    if after.get("enabled") or after.get("locked"):
        raise Failed(f"drive {serial} is not erased: its password is still on")
    teller.ended([disk], evidence)


def _unlocks(teller: Teller, disk: Disk) -> bool:
    """Unlock a drive whose erase was cut, so that samples can be read. Some take nothing then but another erase."""
    try:
        teller.machine.run(*USER, "--security-unlock", PASSWORD, str(disk.path))
    except Failed as error:
        say(f"{disk.path} can't be unlocked before its erase: {error}")
        return False
    return True


def _security(teller: Teller, disk: Disk) -> tuple[dict[str, str], dict[str, bool]]:
    text = teller.machine.run("hdparm", "-I", str(disk.path)).decode(errors="replace")
    found = dict(_NAME.findall(text))
    flags: dict[str, bool] = {}
    for line in text.partition("\nSecurity:")[2].splitlines():
        if (match := _LINE.match(line)) is not None:
            flags[match[2]] = match[1] is None
        elif line.strip().endswith("ERASE UNIT."):
            break
    keys = (("serial", "Serial Number"), ("model", "Model Number"), ("firmware", "Firmware Revision"))
    if any(name not in found for _, name in keys):
        raise Failed(f"hdparm -I {disk.path}: it names no drive")
    return {key: found[name] for key, name in keys}, flags
