"""Read what the tools that erase drives print: lsblk, nvme-cli, hdparm and od. Pure.

Whatever can't be read raises Unreadable: no reader here takes the absence of words for proof. Sources: NVM Express Base
Specification 2.0, figures 218 (Sanitize Status log page), 275 (Identify Controller); nvme-cli's nvme-print and `d()`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

SANITIZE_LOG: Final = 129  # the log's identifier
LOG_BYTES: Final = 64  # all that the log tells but vendors' own bytes
SAMPLE_BYTES: Final = 512
_SYSTEM = re.compile(r"/|/(boot|efi|usr|var|etc|nix)(/.*)?|\[SWAP\]")
_NAMESPACE = re.compile(r"^(/dev/nvme\d+)n\d+$")
_BLOCK, _OVERWRITE, _CRYPTO = 2, 3, 4  # Sanitize Action (SANACT)
_HEX_LINE = re.compile(r"^[0-9a-f]{4}:((?: [0-9a-f]{2})+)(?: \"|\s*$)", re.MULTILINE)
_ATA_LINE = re.compile(r"^\s*(not)?\s*(supported: enhanced erase|supported|enabled|locked|frozen)\s*$")
_ATA_NAME = re.compile(r"^\s*(Model Number|Serial Number|Firmware Revision):\s*(\S.*?)\s*$", re.MULTILINE)


class Unreadable(ValueError):
    """A tool printed what this version can't read. The text says what is missing."""


# --- lsblk -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A whole disk. `mounts`: where it, its partitions, or what is built on them (LVM, RAID, LUKS) are mounted."""

    path: str
    serial: str
    model: str
    size: int
    transport: str
    mounts: tuple[str, ...]

    @property
    def drive(self) -> str:
        """Return the path of the drive: namespaces of an NVMe drive share it."""
        return _NAMESPACE.sub(r"\1", self.path)

    @property
    def holds_system(self) -> bool:
        """Return whether the running system needs it."""
        return any(_SYSTEM.fullmatch(mount) for mount in self.mounts)


LSBLK: Final = ("lsblk", "-J", "-b", "-o", "NAME,TYPE,SERIAL,MODEL,SIZE,TRAN,MOUNTPOINT")


def block_devices(text: str) -> tuple[BlockDevice, ...]:
    try:
        found = json.loads(text)["blockdevices"]
        disks = [entry for entry in found if entry["type"] == "disk"]
        return tuple(
            BlockDevice(
                f"/dev/{disk['name']}", (disk["serial"] or "").strip(), (disk["model"] or "").strip(),
                int(disk["size"]), disk["tran"] or "", tuple(_mounts(disk)),
            )
            for disk in disks
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"lsblk: {error!r}") from error


def _mounts(entry: Mapping[str, Any]) -> Iterator[str]:
    if entry.get("mountpoint"):
        yield entry["mountpoint"]
    for child in entry.get("children", ()):
        yield from _mounts(child)


# --- NVMe ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Controller:
    """An NVMe controller, as far as erasing needs it."""

    serial: str
    model: str
    firmware: str
    sanitize_action: int | None  # the best that it can do: block erase, then crypto erase, then overwrite
    format_setting: int | None  # Secure Erase Setting of Format NVM: 2 = keys, 1 = user data; None: no Format NVM

    @property
    def method(self) -> str:
        names = {_BLOCK: "block erase", _CRYPTO: "crypto erase", _OVERWRITE: "overwrite"}
        if self.sanitize_action is not None:
            return f"nvme sanitize, {names[self.sanitize_action]}"
        return f"nvme format, secure erase setting {self.format_setting}"


def controller(text: str) -> Controller:
    """Read `nvme id-ctrl -o json`."""
    try:
        found = json.loads(text)
        capabilities, optional, attributes = int(found["sanicap"]), int(found["oacs"]), int(found["fna"])
        serial, model, firmware = (str(found[key]).strip() for key in ("sn", "mn", "fr"))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"nvme id-ctrl: {error!r}") from error
    able = [action for bit, action in ((2, _BLOCK), (1, _CRYPTO), (4, _OVERWRITE)) if capabilities & bit]
    formats = optional & 2
    setting = (2 if attributes & 4 else 1) if formats else None
    return Controller(serial, model, firmware, able[0] if able else None, setting)


@dataclass(frozen=True, slots=True)
class SanitizeLog:
    """The sanitize log. `raw` is evidence. `untouched`: no user data was written since the last sanitize succeeded."""

    raw: str
    progress: int  # of 65536
    status: int
    untouched: bool

    @property
    def running(self) -> bool:
        return self.status == 2

    @property
    def failed(self) -> bool:
        """Return whether the last sanitize failed. Such a drive can't be read until one has ended well."""
        return self.status == 3

    @property
    def succeeded(self) -> bool:
        return self.status in (1, 4)  # 4: without deallocation, as nobody here asks for; the data are gone all the same

    @property
    def words(self) -> str:
        known = {0: "never sanitized", 1: "completed", 2: "in progress", 3: "failed", 4: "completed"}
        share = f", {100 * self.progress // 65536} %" if self.running else ""
        return known.get(self.status, f"status {self.status}") + share

    def proves(self, before: str) -> bool:
        """Return whether it shows a sanitize that ended well after a log with these bytes was read."""
        return self.succeeded and (self.untouched or self.raw != before)


def sanitize_log(text: str) -> SanitizeLog:
    """Read the hex dump of `nvme get-log`, whose bytes every version of nvme-cli prints alike."""
    data = bytes.fromhex("".join(match[1] for match in _HEX_LINE.finditer(text)))
    return log_of(data)


def log_of(data: bytes) -> SanitizeLog:
    """Read the log page itself."""
    if len(data) < LOG_BYTES:
        raise Unreadable(f"nvme get-log: {len(data)} bytes of {LOG_BYTES}")
    status = int.from_bytes(data[2:4], "little")
    return SanitizeLog(
        data[:LOG_BYTES].hex(), int.from_bytes(data[:2], "little"), status & 7, bool(status & 0x100)
    )  # fmt: skip


# --- ATA -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AtaSecurity:
    """The security feature set, and the drive's names, of `hdparm -I`."""

    serial: str
    model: str
    firmware: str
    supported: bool
    enabled: bool
    locked: bool
    frozen: bool
    enhanced: bool


def ata_security(text: str) -> AtaSecurity:
    names = {match[1]: match[2] for match in _ATA_NAME.finditer(text)}
    head, found, tail = text.partition("\nSecurity:")
    flags = {}
    for line in tail.splitlines():
        if (match := _ATA_LINE.match(line)) is not None:
            flags[match[2]] = match[1] is None
        elif line.strip().endswith("ERASE UNIT."):
            break
    try:
        return AtaSecurity(
            names["Serial Number"], names["Model Number"], names["Firmware Revision"],
            *(flags[flag] for flag in ("supported", "enabled", "locked", "frozen", "supported: enhanced erase")),
        )  # fmt: skip
    except KeyError as error:
        raise Unreadable(f"hdparm -I: no {error} in {len(head) + len(found)} characters") from error


# --- samples ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """A digest of a few bytes of a drive, so that evidence tells no secret. `blank`: all of them are equal."""

    offset: int
    digest: str
    blank: bool


def offsets(size: int) -> tuple[int, ...]:
    """Return where to look: the beginning, where tables and superblocks are, and places up to the end."""
    places = (0, 1 << 20, size // 4, size // 2, 3 * (size // 4), size - (1 << 20))
    return tuple(sorted({place - place % 4096 for place in places if place in range(size)}))


def sample_command(path: str, offset: int) -> tuple[str, ...]:
    return ("od", "-A", "n", "-t", "x1", "-v", "-j", str(offset), "-N", str(SAMPLE_BYTES), path)


def sample(offset: int, text: str) -> Sample:
    try:
        data = bytes.fromhex("".join(text.split()))
    except ValueError as error:
        raise Unreadable(f"od: {error}") from error
    if len(data) != SAMPLE_BYTES:
        raise Unreadable(f"od: {len(data)} bytes of {SAMPLE_BYTES}")
    return Sample(offset, hashlib.sha256(data).hexdigest(), len(set(data)) == 1)
