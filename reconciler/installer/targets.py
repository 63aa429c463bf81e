"""The three ways onto a disk: a whole image, a first install of a layout, and the slot of a layout that is not in use.

Each checks before it writes, and makes the result bootable in its last write: a first install by the table, which no
part of the disk has until then, and a slot by its entry in the boot menu.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from reconciler.installer import slots
from reconciler.installer.disks import Disk
from reconciler.installer.documents import Document, Layout
from reconciler.installer.esp import Esp
from reconciler.installer.identity import read_record
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
from reconciler.installer.write import Piece

KEPT = ("state", "data")  # partitions that `preserve` may name
Facts = Callable[[Path], None]  # writes the files of the installed system's /etc


class Target(ABC):
    """A way onto the disk, for one image."""

    slot: str | None = None
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
    """The part that both ways of a layout share: the image's root and verity partitions go into a slot."""

    slot: str
    table: Table

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
            pieces.append(Piece(part.start, part.size, self.disk.path, place.start))
        return pieces

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
        root = _only(image, ROOT, "root", needed=True)
        assert root is not None  # it is needed
        wanted = laid_out(layout, disk, root.type, VERITY[ROOT.index(root.type)])
        self.table = Table("gpt", str(uuid.uuid4()), wanted)

    def begin(self) -> None:
        wipe(self.disk)

    def finish(self, write_facts: Facts) -> None:
        kernel = self.checked_kernel(self.image_esp)
        for part in sorted(self.table.partitions, key=lambda part: part.name):  # `state` last: see below
            if part.name not in ("esp", *KEPT):
                continue
            with self.device_of(part) as device:
                self.format(part, device)
                if part.name == "esp":
                    self._copy_loader(Esp(self.machine, device))
                    self.publish(device, kernel)
                if part.name == "state":  # a power cut after the host key was sent makes the next key a second one
                    self.facts_onto(device, write_facts)
        write_table(self.machine, self.disk, self.filled())

    def _copy_loader(self, esp: Esp) -> None:
        """Copy all of the image's ESP but its kernel: the boot loader, its settings, keys to enrol."""
        esp.copy_tree(self.image_esp)
        esp.remove(slots.find_kernel(self.image_esp))


class OtherSlot(_Layout):
    """The slot that is not in use, on a disk that has the layout. The one in use boots until the menu changes."""

    def __init__(self, machine: Machine, disk: Disk, document: Document, image: Table, table: Table) -> None:
        super().__init__(machine, disk, document, image)
        self.table = table
        self.keeps_host_key = "state" in document.preserve
        recorded = recorded_slot(machine, disk, table)
        with self.device_of(self._part("esp")) as device:
            self.slot = slots.slot_to_write(Esp(machine, device), table, recorded)

    def begin(self) -> None:
        with self.device_of(self._part("esp")) as device:
            slots.unpublish(Esp(self.machine, device), slots.root_of(self.table, self.slot))

    def finish(self, write_facts: Facts) -> None:
        kernel = self.checked_kernel(self.image_esp)
        for part in self.table.partitions:
            if part.name in KEPT and part.name not in self.document.preserve:
                with self.device_of(part) as device:
                    self.format(part, device)
        with self.device_of(self._part("state")) as device:
            self.facts_onto(device, write_facts)
        write_table(self.machine, self.disk, self.filled())
        with self.device_of(self._part("esp")) as device:
            self.publish(device, kernel)

    def _part(self, name: str) -> Partition:
        part = self.table.named(name)
        assert part is not None  # the table was compared with the layout
        return part


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
        return OtherSlot(machine, disk, document, image, table)
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


def recorded_slot(machine: Machine, disk: Disk, table: Table) -> str | None:
    """Return the slot that was installed last, None when no record says so."""
    try:
        slot = _record(machine, disk, table).get("slot")
    except Failed:
        return None
    return slot if isinstance(slot, str) else None


def _record(machine: Machine, disk: Disk, table: Table) -> dict[str, object]:
    part = facts_partition(table)
    with partition_device(machine, disk, part) as device, machine.mounted(device, "ro,noload") as root:
        return read_record(root / "etc")  # without noload, a journal would be replayed


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
