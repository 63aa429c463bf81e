"""Slots A and B: which one is in use, and how the kernel of the other is published (boot entries of systemd-boot).

An entry belongs to the slot whose PARTUUID its command line names, as root=PARTUUID= or as the first half of roothash=
(Discoverable Partitions Specification). Counters in its name are those of systemd's automatic boot assessment:
NAME+LEFT-DONE.efi, where 0 left is an image that did not come up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reconciler.installer.esp import Esp
from reconciler.installer.kernel import command_line
from reconciler.installer.machine import Failed
from reconciler.installer.table import Partition, Table

SLOTS = ("a", "b")
FOLDER = "EFI/Linux"
TRIES = "+3-0"
STAGING = "EFI/staging"  # systemd-boot does not look there
_ENTRY = re.compile(r"(?P<id>.+?)(\+(?P<left>\d+)(-\d+)?)?\.efi", re.IGNORECASE)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~^-]*")
_SEGMENTS = re.compile(r"\d+|[A-Za-z]+|[~^.-]")
_ORDER = {"~": 0, "-": 2, "^": 3, ".": 4}  # 1 is the end of a version


@dataclass(frozen=True)
class Entry:
    """A kernel that systemd-boot would show. `left` is None when it has come up before."""

    name: str
    id: str
    left: int | None

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.name}"

    @property
    def is_bad(self) -> bool:
        return self.left == 0


def entries(esp: Esp) -> list[Entry]:
    told = [_ENTRY.fullmatch(name) for name in esp.list(FOLDER)]
    return [Entry(one[0], one["id"], None if one["left"] is None else int(one["left"])) for one in told if one]


def entries_of(esp: Esp, part: Partition) -> list[Entry]:
    """Return the entries that boot the root of this slot."""
    return [entry for entry in entries(esp) if names(esp.read(entry.path), part)]


def names(kernel: bytes, part: Partition) -> bool:
    """Return whether a UKI's command line names this partition."""
    return boots(command_line(kernel), part)


def boots(arguments: str, part: Partition) -> bool:
    """Return whether a kernel with these arguments has this partition as its root."""
    text = arguments.lower()
    return f"partuuid={part.uuid}" in text or f"roothash={part.uuid.replace('-', '')}" in text


def slot_to_write(esp: Esp, table: Table, recorded: str | None) -> str:
    """Return the slot that is not in use.

    `recorded` is the slot that was installed last. It counts last: it may never have come up, and then the other one is
    all that is known to work.
    """
    found = {slot: entries_of(esp, root_of(table, slot)) for slot in SLOTS}
    for kept in (lambda entry: entry.left is None, lambda entry: not entry.is_bad):
        able = [slot for slot in SLOTS if any(map(kept, found[slot]))]
        if len(able) == 1:
            recorded = able[0]
            break
    return "b" if recorded == "a" else "a"


def root_of(table: Table, slot: str) -> Partition:
    part = table.named(f"root-{slot}")
    assert part is not None  # the table was compared with the layout
    return part


def find_kernel(esp: Esp) -> str:
    """Return the path of the one UKI of an image's ESP."""
    found = entries(esp)
    if len(found) != 1:
        raise Failed(f"the image's ESP has {len(found)} kernels in {FOLDER}, and an image has one", "image")
    return found[0].path


def unpublish(esp: Esp, part: Partition) -> None:
    """Remove the entries of a slot that is to be written: half a root must not boot."""
    _settle(esp)
    for entry in entries_of(esp, part):
        esp.remove(entry.path)


def publish(esp: Esp, kernel: bytes, name: str, version: str) -> None:
    """Put a kernel into the menu as what boots next. Its appearance under its name is one rename, and comes last."""
    identifier = entry_id(name, version)
    target = f"{identifier}{TRIES}.efi"
    esp.make_folder(FOLDER)
    esp.make_folder(STAGING)
    _settle(esp)
    esp.write(f"{STAGING}/{target}", kernel)
    for entry in entries(esp):
        if entry.id == identifier:
            esp.remove(entry.path)  # the same image in the other slot: two would be one too many
        elif not entry.is_bad and _comes_before(entry.id, identifier):
            esp.write(f"{FOLDER}/{entry.id}+0-0.efi", esp.read(entry.path))  # a fallback behind what has tries left
            esp.remove(entry.path)
    esp.move(f"{STAGING}/{target}", FOLDER)


def _settle(esp: Esp) -> None:
    """Clear what an install that was cut off has left. A file that it was moving may be in both folders."""
    for name in esp.list(STAGING):
        shown = f"{FOLDER}/{name}"
        kernel = esp.read(shown) if name in esp.list(FOLDER) else None
        esp.remove(f"{STAGING}/{name}")
        if kernel is not None:  # its clusters are free now
            esp.remove(shown)
            esp.write(shown, kernel)


def entry_id(name: str, version: str) -> str:
    """Return what names an image in the boot menu."""
    identifier = f"{name}_{version}"
    if _FILE_NAME.fullmatch(identifier) is None:
        raise Failed(f"{identifier} can't be the name of a boot entry", "document")
    return identifier


def _comes_before(one: str, other: str) -> bool:
    """Return whether systemd-boot prefers the entry `one`: by image name upwards, then by version downwards."""
    (name, _, version), (other_name, _, other_version) = one.rpartition("_"), other.rpartition("_")
    return name < other_name or (name == other_name and version_key(version) > version_key(other_version))


def version_key(version: str) -> list[tuple[int, int, str]]:
    """Return what sorts versions as systemd-boot does (UAPI.10, Version Format Specification)."""
    key = []
    for segment in _SEGMENTS.findall(version):
        if segment.isdigit():
            key.append((6, int(segment), ""))
        else:
            key.append((_ORDER.get(segment, 5), 0, segment))
    return [*key, (1, 0, "")]
