"""A machine for the init: folders as its sysfs, a loop device as its disk, and a server that has its document."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.installer import documents
from reconciler.installer.client import Patience
from reconciler.installer.disks import find_disk
from reconciler.installer.esp import Esp
from reconciler.installer.install import run_attempt
from reconciler.installer.machine import Machine
from reconciler.installer.table import Partition, Table, partition_device, read_table
from reconciler.lab.pki import ImageKey
from reconciler.model.install import (
    InstallDocument,
    InstallImage,
    InstallPhase,
    Layout,
    MachineIdentity,
    RootDisk,
    SshTrust,
)
from tests.installer.disks import MIB, BuiltImage, run
from tests.installer.server import ContractServer

SERIAL, UUID, DISK_SERIAL = "SN-0001", "11111111-2222-3333-4444-555555555555", "S5XYNG0R"
LAYOUT = Layout(esp=40 * MIB, root=16 * MIB, state=16 * MIB)
HASTY = Patience(call=5, document=5, certificate=5, failed=5, installed=5, rest=0.01, longest_rest=0.1, report=0.2,
                 stalled=5, slowest=1, disk=0.0)  # fmt: skip


@dataclass
class Site:
    """A machine, its disk and its server."""

    folder: Path
    machine: Machine
    server: ContractServer
    key: ImageKey
    disk: Path
    images: dict[str, BuiltImage]
    patience: Patience = HASTY
    attempts: int = field(default=0)

    def document(self, which: str = "a", **changes: Any) -> InstallDocument:
        """Return a document for this machine, with a nonce of its own."""
        self.attempts += 1
        built = self.images[which]
        given = InstallImage(
            name="gpu-base",
            version=f"1.{ord(which[0])}",
            url=self.server.image_url,
            sha256=built.sha256,
            size=built.size,
            signature=self.key.sign_image("gpu-base", f"1.{ord(which[0])}", built.sha256),
            key="release",
        )
        document = InstallDocument(
            node="gpu-001",
            hostname="gpu-001.example.com",
            nonce=f"nonce-{self.attempts}",
            machine=MachineIdentity(serial=SERIAL, uuid=UUID),
            image=given,
            root_disk=RootDisk(serial=DISK_SERIAL),
            layout=LAYOUT,
            ssh=SshTrust(user_ca=("ssh-ed25519 AAAA user-ca",)),
        )
        return document.model_copy(update=changes)

    def install(self, document: InstallDocument, image: str = "a") -> bool:
        """Run an attempt on this document, as the init does."""
        self.server.document, self.server.image = document, self.images[image].path.read_bytes()
        self.server.statuses.clear()
        return run_attempt(self.machine, documents.Attempt(url=self.server.url), self.patience)

    def reason(self) -> str:
        """Return why the last attempt failed, as the server was told."""
        last = self.server.statuses[-1]
        assert last.phase is InstallPhase.FAILED, last
        assert "\n" not in last.detail
        return last.detail

    def add_disk(self, name: str, device: Path | None, serial: str, size: int) -> None:
        block = self.machine.sys / "block" / name
        (block / "device").mkdir(parents=True)
        (block / "device/serial").write_text(f"{serial}    \n")
        (block / "size").write_text(f"{size // 512}\n")
        if device is not None:
            (self.machine.dev / name).symlink_to(device)

    def table(self) -> Table | None:
        return read_table(self.machine, self.disk)

    def entry(self, name: str) -> Partition:
        """Return a partition of the disk's own table."""
        found = self.table()
        part = found.named(name) if found else None
        assert part is not None, f"the disk has no partition {name}"
        return part

    @contextmanager
    def device_of(self, name: str) -> Iterator[Path]:
        disk = find_disk(self.machine, documents.RootDisk(serial=DISK_SERIAL), 0)
        with partition_device(self.machine, disk, self.entry(name)) as device:
            yield device

    @contextmanager
    def files(self, name: str) -> Iterator[Path]:
        """Give the files of a partition."""
        with self.device_of(name) as device, self.machine.mounted(device) as root:
            yield root

    @contextmanager
    def esp(self) -> Iterator[Esp]:
        with self.device_of("esp") as device:
            yield Esp(self.machine, device)

    def menu(self) -> list[str]:
        with self.esp() as found:
            return found.list("EFI/Linux")

    def content(self, name: str, size: int) -> bytes:
        with self.disk.open("rb") as disk:
            disk.seek(self.entry(name).start)
            return disk.read(size)

    def record(self) -> dict[str, str]:
        with self.files("state") as state:
            found: dict[str, str] = json.loads((state / "etc/reconciler/image.json").read_text())
            return found

    def whole(self) -> str:
        """Return a digest of every byte of the disk."""
        run("blockdev", "--flushbufs", str(self.disk))
        with self.disk.open("rb") as disk:
            return hashlib.file_digest(disk, "sha256").hexdigest()

    def nothing_boots(self) -> bool:
        """Return whether no firmware would find a table or an ESP on the disk, in the first place or the backup."""
        dumped = subprocess.run(("sfdisk", "-d", str(self.disk)), capture_output=True)
        probed = subprocess.run(("blkid", "-p", str(self.disk)), capture_output=True)
        with self.disk.open("rb") as disk:
            disk.seek(512)
            headers = [disk.read(8)]
            disk.seek(-512, os.SEEK_END)
            headers.append(disk.read(8))
        return dumped.returncode != 0 and b"TYPE" not in probed.stdout and b"EFI PART" not in headers

    def holds(self, image: str, slot: str) -> bool:
        """Return whether a slot has all bytes and ids of an image."""
        built, root, verity = self.images[image], self.entry(f"root-{slot}"), self.entry(f"verity-{slot}")
        return (
            (root.uuid, verity.uuid) == (built.root_uuid, built.verity_uuid)
            and self.content(f"root-{slot}", len(built.part("root"))) == built.part("root")
            and self.content(f"verity-{slot}", len(built.part("verity"))) == built.part("verity")
        )
