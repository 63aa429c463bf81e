"""Machines for the init, each with a disk and a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from reconciler.installer.machine import Machine
from reconciler.lab.pki import ImageKey, TlsAuthority
from tests.installer.disks import MIB, BuiltImage, build_image, loop_disk, need_disks
from tests.installer.server import ContractServer
from tests.installer.site import DISK_SERIAL, SERIAL, UUID, Site


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

    def make(size: int = 128 * MIB, sector: int = 512) -> Site:
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
