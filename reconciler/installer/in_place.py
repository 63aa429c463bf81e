"""Write the slot that the running system does not use, for a reconciler that watches over SSH (contract v1).

    python3 program.pyz FOLDER

FOLDER has document.json and keys/NAME.pub, and gets status.json: the last report, in the words of the contract. The
program runs as a unit of its own, so that a connection that is lost does not end it. It never writes the slot that
runs, nor makes `state` or `data` anew, and it leaves the reboot to whoever started it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import OpenerDirector

from reconciler.installer import slots
from reconciler.installer.client import Patience, Reporter, dump, opener
from reconciler.installer.disks import Disk
from reconciler.installer.documents import Document, Layout, load
from reconciler.installer.esp import Esp
from reconciler.installer.identity import (
    AUTHORITIES,
    HOST_KEY,
    SLOT_RECORD,
    read_record,
    record,
    write_facts,
    write_record,
)
from reconciler.installer.install import Install, ends_told
from reconciler.installer.kernel import check_arguments
from reconciler.installer.machine import Failed, Machine
from reconciler.installer.table import (
    ROOT,
    VERITY,
    Partition,
    Table,
    differences,
    laid_out,
    partition_device,
    read_table,
)
from reconciler.installer.targets import KEPT, Facts, OtherSlot, Target
from reconciler.installer.write import digest_of

STATUS = "status.json"
LOCK = "lock"  # beside the folders of all attempts


class StatusFile:
    """Keeps the last report where the reconciler reads it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def once(self, path: str, body: bytes | None = None) -> bytes:  # noqa: ARG002 - a Listener's
        staged = self._path.with_suffix(".new")
        staged.write_bytes(body or b"")
        staged.replace(self._path)
        return b""

    def post(self, path: str, document: dict[str, Any], seconds: float | None = None) -> bytes:  # noqa: ARG002
        return self.once(path, dump(document))


def run_in_place(machine: Machine, folder: Path, patience: Patience) -> bool:
    """Carry out the document of a folder, and say there how it ended. Return whether the disk has the image."""
    reporter = Reporter(StatusFile(folder / STATUS), patience)

    def install() -> tuple[str, str]:
        machine.work.mkdir(parents=True, exist_ok=True)
        document = load(Document, (folder / "document.json").read_bytes())
        reporter.start(f"{document.image.name} {document.image.version} for {document.node}")
        with _alone(folder.parent / LOCK):
            return "installed", InPlace(machine, OpenerDirector(), document, reporter, patience).run()

    return ends_told(reporter, patience, install)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failed("another install is being written on this machine") from None
        yield


class InPlace(Install):
    """A document whose image goes into the slot that does not run."""

    _layout: Layout
    _table: Table
    _running: str
    _etc: Path  # of the partition `state`

    def run(self) -> str:
        machine, document = self._machine, self._document
        disk = self._checked_disk()
        self._check_layout(disk)
        self._running = running_slot(machine, self._table)
        slot = "b" if self._running == "a" else "a"
        esp, state = (_named(self._table, name) for name in ("esp", "state"))
        with (
            partition_device(machine, disk, esp) as esp_device,
            partition_device(machine, disk, state) as state_device,
            out_of_use(machine, esp_device),
            machine.mounted(state_device) as kept,
        ):
            self._etc = etc = kept / "etc"
            menu = Esp(machine, esp_device)
            self._web = opener(etc / AUTHORITIES, None, redirects=True, alone=False)
            if not all((etc / name).is_file() for name in (HOST_KEY, f"{HOST_KEY}-cert.pub")):
                raise Failed("the partition state has no certified host key, by which the new system would be known")
            written = read_record(etc)
            if written.get("nonce") == document.nonce and slots.entries_of(menu, slots.root_of(self._table, slot)):
                return f"{disk} has it already; nothing was written"
            kernel = self._held(disk, slot, etc, menu)
            if kernel is None:
                return self._fetch(disk)
            return self._select(disk, slot, etc, menu, kernel)

    def _check_layout(self, disk: Disk) -> None:
        """Refuse a disk that has not the document's layout, and a document that wants more of it made anew."""
        document, table = self._document, read_table(self._machine, disk.path)
        if document.layout is None or table is None:
            raise Failed("in place, only an image with a layout can be written, on a disk that has it")
        anew = [name for name in KEPT if name not in document.preserve and table.named(name)]
        if anew:
            raise Failed(f"preserve: {' and '.join(anew)} can't be made anew while the system runs")
        if difference := differences(table, laid_out(document.layout, disk, ROOT[0], VERITY[0])):
            raise Failed(f"{disk} does not have the layout: {difference}; nothing was written")
        self._layout, self._table = document.layout, table

    def _target(self, disk: Disk, image: Table) -> Target:
        slot = "b" if self._running == "a" else "a"
        target = IdleSlot(self._machine, disk, self._document, image, self._layout, self._table, slot)
        target.etc = self._etc
        return target

    def _facts(self, etc: Path, target: Target) -> None:
        """Write who the system is. It keeps its host key, and the key's certificate."""
        write_facts(etc, self._document, None, target.slot)

    # --- the image that the slot has already ---

    def _held(self, disk: Disk, slot: str, etc: Path, menu: Esp) -> bytes | None:
        """Return the kernel of a slot that has the image whole, by the digests of when it was written; None if not."""
        known, root = read_record(etc, SLOT_RECORD.format(slot)), slots.root_of(self._table, slot)
        meant = record(self._document, slot)
        if any(known.get(name) != meant[name] for name in ("image", "version", "sha256", "root_disk")):
            return None
        if known.get("root") != root.uuid or not known.get("parts"):
            return None
        found = [menu.read(entry.path) for entry in slots.entries_of(menu, root)]
        kernel = next((one for one in found if hashlib.sha256(one).hexdigest() == known.get("kernel")), None)
        if kernel is None:
            return None
        for name, told in known["parts"].items():
            part = _named(self._table, f"{name}-{slot}")
            with partition_device(self._machine, disk, part) as device:
                progress = _meter(self._reporter, device.name, told["size"])
                if told["size"] > part.size or digest_of(device, 0, told["size"], progress) != told["sha256"]:
                    return None
        check_arguments(kernel, self._document.kernel_arguments)
        return kernel

    def _select(self, disk: Disk, slot: str, etc: Path, menu: Esp, kernel: bytes) -> str:
        """Let a slot boot next that has the image already."""
        document, name = self._document, SLOT_RECORD.format(slot)
        told = f"{document.image.name} {document.image.version} was in slot {slot}, whole; nothing was downloaded"
        self._reporter.phase("written", told)
        write_record(etc, name, {**read_record(etc, name), "nonce": document.nonce})
        write_facts(etc, document, None, slot)
        os.sync()
        slots.publish(menu, kernel, document.image.name, document.image.version)
        return f"{told}, on {disk}"


class IdleSlot(OtherSlot):
    """The slot that does not run, on the disk that the system runs from."""

    in_use = True
    etc: Path  # of `state`, which is mounted already

    def pieces(self) -> list[Any]:
        taken = {part.uuid for part in self.image.partitions}
        running = [part for part in self.table.partitions if part.name.endswith(f"-{'b' if self.slot == 'a' else 'a'}")]
        if any(part.uuid in taken for part in running):  # its partitions would need other ids, while it runs from them
            raise Failed("the image's root is the one that runs now: the installer can write it into the other slot")
        return super().pieces()

    def place_of(self, part: Partition) -> tuple[Path, int]:
        """Return the partition's own device: the kernel refuses it to us while it is in use."""
        return self.disk.part(part.number), 0

    def facts_onto(self, device: Path, write_facts: Facts) -> None:  # noqa: ARG002 - its device is mounted
        write_facts(self.etc)

    def publish(self, device: Path, kernel: bytes) -> None:
        os.sync()  # facts are on a partition that stays mounted
        super().publish(device, kernel)


def running_slot(machine: Machine, table: Table) -> str:
    """Return the slot whose root the kernel was told to boot."""
    told = machine.read(machine.proc / "cmdline")
    found = [slot for slot in slots.SLOTS if slots.boots(told, slots.root_of(table, slot))]
    if len(found) != 1:
        raise Failed("the kernel's command line does not say which slot runs, so neither can be written")
    return found[0]


@contextmanager
def out_of_use(machine: Machine, device: Path) -> Iterator[None]:
    """Unmount a partition, and keep the kernel from mounting it again: two writers would destroy its file system."""
    for place in mount_points(machine, device):
        machine.run("umount", place)
    try:
        held = os.open(device, os.O_RDWR | os.O_EXCL)
    except OSError as error:
        raise Failed(f"{device} is in use: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(held)


def mount_points(machine: Machine, device: Path) -> list[str]:
    """Return where a device is mounted, the last mount first."""
    number = device.stat().st_rdev
    told = [line.split(" ") for line in machine.read(machine.proc / "self/mountinfo").splitlines()]
    mine = [words[4] for words in told if words[2] == f"{os.major(number)}:{os.minor(number)}"]
    return [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place) for place in reversed(mine)]


def _named(table: Table, name: str) -> Partition:
    part = table.named(name)
    assert part is not None  # the table was compared with the layout
    return part


def _meter(reporter: Reporter, device: str, size: int) -> Any:
    return lambda done: reporter.progress(f"{done / 1e9:.1f} of {size / 1e9:.1f} GB of {device} compared", 0)


def main() -> None:
    folder = Path(sys.argv[1])
    machine = replace(Machine(), trust=folder, work=folder / "work")
    sys.exit(0 if run_in_place(machine, folder, Patience()) else 1)


if __name__ == "__main__":
    main()
