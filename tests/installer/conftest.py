"""A machine for the init: folders as its sysfs, a loop device as its disk, and a server that has its document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reconciler.installer.client import Patience
from reconciler.installer.documents import Attempt
from reconciler.installer.install import run_attempt
from reconciler.installer.machine import Machine
from reconciler.lab.pki import ImageKey, TlsAuthority
from reconciler.model.install import (
    InstallDocument,
    InstallImage,
    InstallPhase,
    Layout,
    MachineIdentity,
    RootDisk,
    SshTrust,
)
from tests.installer.disks import MIB, BuiltImage, build_image, loop_disk, need_disks
from tests.installer.server import ContractServer

SERIAL, UUID, DISK_SERIAL = "SN-0001", "11111111-2222-3333-4444-555555555555", "S5XYNG0R"
LAYOUT = Layout(esp=40 * MIB, root=16 * MIB, state=16 * MIB)
HASTY = Patience(call=5, document=5, certificate=5, failed=5, installed=5, rest=0.01, longest_rest=0.1, report=0.2,
                 stalled=5, slowest=1, disk=0.0)  # fmt: skip


@pytest.fixture(scope="session")
def authority() -> TlsAuthority:
    return TlsAuthority()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BuiltImage]:
    """Two images of a verity root, and one of a plain root."""
    need_disks()
    folder = tmp_path_factory.mktemp("images")
    return {
        "a": build_image(folder / "a", "a", 0xA),
        "b": build_image(folder / "b", "b", 0xB),
        "plain": build_image(folder / "plain", "plain", 0xC, verity=False),
    }


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

    def document(self, image: str = "a", **changes: Any) -> InstallDocument:
        """Return a document for this machine, with a nonce of its own."""
        self.attempts += 1
        built = self.images[image]
        given = InstallImage(
            name="gpu-base",
            version=f"1.{ord(image[0])}",
            url=self.server.image_url,
            sha256=built.sha256,
            size=built.size,
            signature=self.key.sign_image("gpu-base", f"1.{ord(image[0])}", built.sha256),
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
        return run_attempt(self.machine, Attempt(url=self.server.url), self.patience)

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


@pytest.fixture
def bare(tmp_path: Path, authority: TlsAuthority) -> Machine:
    """A machine without disks."""
    machine = Machine(*(tmp_path / name for name in ("sys", "dev", "extra", "trust", "work")))
    dmi = machine.sys / "class/dmi/id"
    for path in (machine.sys / "block", machine.dev, machine.extra, machine.trust / "keys", machine.work, dmi):
        path.mkdir(parents=True)
    (dmi / "product_serial").write_text(f"{SERIAL}\n")
    (dmi / "product_uuid").write_text(f"{UUID}\n")
    (machine.trust / "ca.pem").write_text(authority.pem)
    return machine


@pytest.fixture
def make_site(
    tmp_path: Path, bare: Machine, authority: TlsAuthority, images: dict[str, BuiltImage]
) -> Iterator[Callable[..., Site]]:
    """Return what makes a machine with one disk."""
    ends: list[AbstractContextManager[object]] = []

    def make(size: int = 256 * MIB, sector: int = 512) -> Site:
        disk = loop_disk(tmp_path, size, sector)
        device = disk.__enter__()
        ends.append(disk)
        server = ContractServer(tmp_path, authority)
        ends.append(server)
        key = ImageKey()
        (bare.trust / "keys/release.pub").write_text(f"untrusted comment: a key\n{key.public_text}\n")
        site = Site(tmp_path, bare, server.__enter__(), key, device, images)
        site.add_disk("nvme0n1", device, DISK_SERIAL, size)
        if sector != 512:
            queue = bare.sys / "block/nvme0n1/queue"
            queue.mkdir()
            (queue / "logical_block_size").write_text(f"{sector}\n")
        return site

    yield make
    for end in reversed(ends):
        end.__exit__(None, None, None)


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()
