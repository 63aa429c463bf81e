"""The three ways onto a disk: a whole image, a first install of a layout, and the slot of a layout that is not in use.

Each checks before it writes, and makes the result bootable in its last write: a first install by the table, which no
part of the disk has until then, and a slot by its entry in the boot menu.
"""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconciler.installer import slots
from reconciler.installer.disks import Disk
from reconciler.installer.documents import Document, Layout
from reconciler.installer.esp import Esp
from reconciler.installer.identity import RECORD, SLOT_RECORD, read_record, record, write_record
from reconciler.installer.kernel import check_arguments
from reconciler.installer.machine import Failed, Machine
from reconciler.installer.table import (
    ENDS,
    ESP,
    ROOT,
    VERITY,
    Partition,
    Table,
    differences,
    laid_out,
    new_ids,
    partition_device,
    read_table,
    wipe,
    write_table,
)
from reconciler.installer.write import Piece, Written

KEPT = ("state", "data")  # partitions that `preserve` may name
Facts = Callable[[Path], None]  # writes the files of the installed system's /etc


class Target(ABC):
    """A way onto the disk, for one image."""

    slot: str | None = None
    written: Sequence[Written] = ()  # once it was read back
    keeps_host_key = False  # one that is where the facts go would be the image's

    def __init__(self, machine: Machine, disk: Disk, document: Document, image: Table) -> None:
        self.machine, self.disk, self.document, self.image = machine, disk, document, image

    @abstractmethod
    def pieces(self) -> list[Piece]:
        """Return what of the image goes where. Raise Failed when it does not fit. Nothing is written yet."""

    @abstractmethod
    def begin(self) -> None:
        """Take away what could boot half an image."""

    @abstractmethod
    def finish(self, write_facts: Facts) -> None:
        """Add the facts to what was written and read back, and make it bootable, last."""

    def device_of(self, part: Partition) -> AbstractContextManager[Path]:
        return partition_device(self.machine, self.disk, part)

    def checked_kernel(self, files: Esp) -> bytes:
        """Return the kernel of an image's ESP, which boots as the document wants."""
        kernel = files.read(slots.find_kernel(files))
        check_arguments(kernel, self.document.kernel_arguments)
        return kernel

    def facts_onto(self, device: Path, write_facts: Facts) -> None:
        with self.machine.mounted(device) as root:
            (root / "etc").mkdir(exist_ok=True)
            write_facts(root / "etc")


class WholeDisk(Target):
    """The image as it is, partition by partition. Its table follows when all the rest is there."""

    def pieces(self) -> list[Piece]:
        facts_partition(self.image)
        end = max(part.start + part.size for part in self.image.partitions)
        if end > self.disk.size - ENDS:
            raise Failed(f"the image takes {end / 1e9:.1f} GB, and does not fit on {self.disk}", "image")
        if min(part.start for part in self.image.partitions) < ENDS:
            raise Failed("the image has a partition within its first MiB, where the table belongs", "image")
        return [Piece(part.start, part.size, self.disk.path, part.start) for part in self.image.partitions]

    def begin(self) -> None:
        wipe(self.disk)

    def finish(self, write_facts: Facts) -> None:
        esp = self.image.typed(ESP)
        if self.document.kernel_arguments and esp:
            with self.device_of(esp[0]) as device:
                self.checked_kernel(Esp(self.machine, device))
        with self.device_of(facts_partition(self.image)) as device:
            self.facts_onto(device, write_facts)
        write_table(self.machine, self.disk, self.image)


class _Layout(Target):
    """The part that all ways of a layout share: the image's root and verity partitions go into a slot."""

    slot: str
    table: Table
    layout: Layout

    def pieces(self) -> list[Piece]:
        pieces = [Piece(self._esp.start, self._esp.size, self._esp_file, 0)]
        for name, kinds in (("root", ROOT), ("verity", VERITY)):
            part, place = _only(self.image, kinds, name, needed=name == "root"), self.table.named(f"{name}-{self.slot}")
            if part is None or place is None:
                continue
            if part.size > place.size:
                raise Failed(
                    f"the image's {name} has {part.size} bytes, and its partition in the layout {place.size}", "image"
                )
            pieces.append(Piece(part.start, part.size, *self.place_of(place)))
        return pieces

    def place_of(self, part: Partition) -> tuple[Path, int]:
        """Return the device that a partition is written through, and its offset there."""
        return self.disk.path, part.start

    def note_slot(self, etc: Path, kernel: bytes) -> None:
        """Note what the slot holds: which system runs is told by the root that it was booted with."""
        parts = {
            name: {"size": one.piece.size, "sha256": one.sha256}
            for name in ("root", "verity")
            for one in self.written
            if (one.piece.to, one.piece.offset) == self.place_of(self.part(f"{name}-{self.slot}"))
        }
        write_record(
            etc,
            SLOT_RECORD.format(self.slot),
            {
                **record(self.document, self.slot),
                "root": slots.root_of(self.filled(), self.slot).uuid,
                "kernel": hashlib.sha256(kernel).hexdigest(),
                "parts": parts,
                "layout": vars(self.layout),
            },
        )

    def part(self, name: str) -> Partition:
        part = self.table.named(name)
        assert part is not None  # the table is the layout's, or was compared with it
        return part

    @property
    def _esp(self) -> Partition:
        esp = _only(self.image, (ESP,), "ESP", needed=True)
        assert esp is not None  # it is needed
        return esp

    @property
    def _esp_file(self) -> Path:
        return self.machine.work / "image-esp"

    @property
    def image_esp(self) -> Esp:
        return Esp(self.machine, self._esp_file)

    def publish(self, device: Path, kernel: bytes) -> None:
        slots.publish(Esp(self.machine, device), kernel, self.document.image.name, self.document.image.version)

    def filled(self) -> Table:
        """Return the table with the slot's ids and types those of the image. No other partition has its id then."""
        taken = {}
        for name, kinds in (("root", ROOT), ("verity", VERITY)):
            part = _only(self.image, kinds, name, needed=False)
            if part is not None:
                taken[f"{name}-{self.slot}"] = part
        ids = {part.uuid for part in taken.values()}
        return replace(
            self.table,
            partitions=tuple(
                replace(part, uuid=taken[part.name].uuid, type=taken[part.name].type)
                if part.name in taken
                else (new_ids(part) if part.uuid in ids else part)
                for part in self.table.partitions
            ),
        )

    def format(self, part: Partition, device: Path) -> None:
        if part.type == ESP:
            self.machine.run("mkfs.vfat", "-F", "32", "-n", "ESP", str(device))
        else:
            self.machine.run("mkfs.ext4", "-q", "-F", "-L", part.name, str(device), timeout=3600)


class FirstInstall(_Layout):
    """A layout on a disk that has none: slot A, and new file systems."""

    slot = "a"

    def __init__(self, machine: Machine, disk: Disk, document: Document, image: Table, layout: Layout) -> None:
        super().__init__(machine, disk, document, image)
        self.layout = layout
        root = _only(image, ROOT, "root", needed=True)
        assert root is not None  # it is needed
        wanted = laid_out(layout, disk, root.type, VERITY[ROOT.index(root.type)])
        self.table = Table("gpt", str(uuid.uuid4()), wanted)

    def begin(self) -> None:
        wipe(self.disk)

    def finish(self, write_facts: Facts) -> None:
        kernel = self.checked_kernel(self.image_esp)
        for part in self.table.partitions:
            if part.name not in ("esp", *KEPT):
                continue
            with self.device_of(part) as device:
                self.format(part, device)
                if part.name == "esp":
                    self._copy_loader(Esp(self.machine, device))
                    self.publish(device, kernel)
                if part.name == "state":
                    self.facts_onto(device, lambda etc: self._facts(etc, write_facts, kernel))
        write_table(self.machine, self.disk, self.filled())

    def _facts(self, etc: Path, write_facts: Facts, kernel: bytes) -> None:
        write_facts(etc)
        self.note_slot(etc, kernel)

    def _copy_loader(self, esp: Esp) -> None:
        """Copy all of the image's ESP but its kernel: the boot loader, its settings, keys to enrol."""
        esp.copy_tree(self.image_esp)
        esp.remove(slots.find_kernel(self.image_esp))


class OtherSlot(_Layout):
    """A slot of a disk that has the layout, which is not in use. The one in use boots until the menu changes."""

    in_use = False  # whether a system runs from the disk

    def __init__(
        self, machine: Machine, disk: Disk, document: Document, image: Table, layout: Layout, table: Table, slot: str
    ) -> None:
        super().__init__(machine, disk, document, image)
        self.layout, self.table, self.slot = layout, table, slot
        self.keeps_host_key = "state" in document.preserve

    def begin(self) -> None:
        with self.device_of(self.part("esp")) as device:
            slots.unpublish(Esp(self.machine, device), slots.root_of(self.table, self.slot))

    def finish(self, write_facts: Facts) -> None:
        kernel = self.checked_kernel(self.image_esp)
        other = SLOT_RECORD.format("b" if self.slot == "a" else "a")
        known = {} if "state" in self.document.preserve else self._known(other)
        for part in self.table.partitions:
            if part.name in KEPT and part.name not in self.document.preserve:
                with self.device_of(part) as device:
                    self.format(part, device)
        with self.device_of(self.part("state")) as device:
            self.facts_onto(device, lambda etc: self._facts(etc, write_facts, kernel, (other, known)))
        write_table(self.machine, self.disk, self.filled(), in_use=self.in_use)
        with self.device_of(self.part("esp")) as device:
            self.publish(device, kernel)

    def _facts(self, etc: Path, write_facts: Facts, kernel: bytes, other: tuple[str, dict[str, Any]]) -> None:
        write_facts(etc)
        self.note_slot(etc, kernel)
        if other[1]:  # `state` is new, and the boot loader may fall back to the other slot
            write_record(etc, *other)

    def _known(self, name: str) -> dict[str, Any]:
        try:
            return _record(self.machine, self.disk, self.table, name)
        except Failed:  # whatever is on `state` is made anew
            return {}


def choose_target(machine: Machine, disk: Disk, document: Document, image: Table) -> Target:
    """Return the way onto the disk. Raise Failed where it would cost a partition that the document preserves."""
    layout, table = document.layout, read_table(machine, disk.path)
    unknown = sorted(set(document.preserve) - set(KEPT))
    if unknown:
        raise Failed(f"preserve: {', '.join(unknown)} can't be kept, only {' and '.join(KEPT)} can", "document")
    if layout is None:
        if document.preserve:
            raise Failed(f"preserve: {', '.join(document.preserve)} can't be kept without a layout", "document")
        return WholeDisk(machine, disk, document, image)
    first = FirstInstall(machine, disk, document, image, layout)
    if table is None:
        return first
    difference = differences(table, first.table.partitions)
    if not difference:
        return OtherSlot(machine, disk, document, image, layout, table, unused_slot(machine, disk, table))
    if document.preserve:
        kept = " and ".join(document.preserve)
        raise Failed(
            f"{disk} does not have the layout: {difference}; {kept} would be lost, so nothing was written", "layout"
        )
    return first


def is_done(machine: Machine, disk: Disk, document: Document) -> bool:
    """Return whether the disk boots what this document asked for: its nonce is there, and an entry that boots it."""
    table = read_table(machine, disk.path)
    if table is None or table.label != "gpt":
        return False
    try:
        record = _record(machine, disk, table)
        if record.get("nonce") != document.nonce:
            return False
        if document.layout is None:
            return True
        esp, root = table.named("esp"), table.named(f"root-{record.get('slot')}")
        if esp is None or root is None:
            return False
        with partition_device(machine, disk, esp) as device:
            return bool(slots.entries_of(Esp(machine, device), root))
    except Failed:  # no file system is there, or none of ours
        return False


def unused_slot(machine: Machine, disk: Disk, table: Table) -> str:
    """Return the slot of a disk that no system runs from to write into."""
    try:
        recorded = _record(machine, disk, table).get("slot")
    except Failed:
        recorded = None
    esp = table.named("esp")
    assert esp is not None  # the table was compared with the layout
    with partition_device(machine, disk, esp) as device:
        return slots.slot_to_write(Esp(machine, device), table, recorded if isinstance(recorded, str) else None)


def _record(machine: Machine, disk: Disk, table: Table, name: str = RECORD) -> dict[str, Any]:
    part = facts_partition(table)
    with partition_device(machine, disk, part) as device, machine.mounted(device, "ro,noload") as root:
        return read_record(root / "etc", name)  # without noload, a journal would be replayed


def facts_partition(table: Table) -> Partition:
    """Return the partition that has the facts of the first boot in its folder etc: `state`, or a root without it."""
    state = table.named("state")
    if state is not None:
        return state
    if table.typed(*VERITY):
        raise Failed(
            "the image's root is read-only (dm-verity), so the document needs a layout, or the image a partition state",
            "image",
        )
    root = _only(table, ROOT, "root", needed=True)
    assert root is not None  # it is needed
    return root


def _only(table: Table, kinds: tuple[str, ...], what: str, *, needed: bool) -> Partition | None:
    found = table.typed(*kinds)
    if len(found) > 1 or (needed and not found):
        raise Failed(f"the image has {len(found)} partitions of the type {what}, and needs one", "image")
    return found[0] if found else None
