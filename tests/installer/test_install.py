"""The init on real disks (loop devices), with real tools and a real server: what is on the disk afterwards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.installer.disks import find_disk
from reconciler.installer.documents import RootDisk
from reconciler.installer.esp import Esp
from reconciler.installer.table import Table, partition_device, read_table
from reconciler.model.install import InstallPhase
from tests.installer.conftest import DISK_SERIAL, Site
from tests.installer.disks import run

pytestmark = pytest.mark.tool


def table(site: Site) -> Table | None:
    return read_table(site.machine, site.disk)


@contextmanager
def files(site: Site, name: str) -> Iterator[Path]:
    """Give the files of a partition, found by its name in the disk's own table."""
    with device_of(site, name) as device, site.machine.mounted(device) as root:
        yield root


@contextmanager
def device_of(site: Site, name: str) -> Iterator[Path]:
    found = table(site)
    part = found.named(name) if found else None
    assert part is not None
    disk = find_disk(site.machine, RootDisk(serial=DISK_SERIAL), 0)
    with partition_device(site.machine, disk, part) as device:
        yield device


@contextmanager
def esp(site: Site) -> Iterator[Esp]:
    with device_of(site, "esp") as device:
        yield Esp(site.machine, device)


def menu(site: Site) -> list[str]:
    with esp(site) as found:
        return found.list("EFI/Linux")


def partition(site: Site, name: str, size: int) -> bytes:
    found = table(site)
    part = found.named(name) if found else None
    assert part is not None
    with site.disk.open("rb") as disk:
        disk.seek(part.start)
        return disk.read(size)


def nothing_boots(site: Site) -> bool:
    """Return whether no firmware would find a table or an ESP on the disk."""
    dumped = subprocess.run(("sfdisk", "-d", str(site.disk)), capture_output=True)
    probed = subprocess.run(("blkid", "-p", str(site.disk)), capture_output=True)
    return dumped.returncode != 0 and b"PTTYPE" not in probed.stdout and b"TYPE" not in probed.stdout


def test_an_empty_disk_gets_the_layout_and_the_image(site: Site) -> None:
    document = site.document()
    assert site.install(document), site.server.statuses[-1]
    assert site.server.phases() == [InstallPhase(phase) for phase in ("started", "writing", "written", "installed")]
    found = table(site)
    assert found is not None
    assert [part.name for part in found.partitions] == [
        "esp",
        "root-a",
        "verity-a",
        "root-b",
        "verity-b",
        "state",
        "data",
    ]
    image = site.images["a"]
    root, verity = found.named("root-a"), found.named("verity-a")
    assert root is not None
    assert verity is not None
    assert (root.uuid, verity.uuid) == (image.root_uuid, image.verity_uuid)
    assert partition(site, "root-a", len(image.part("root"))) == image.part("root")
    assert partition(site, "verity-a", len(image.part("verity"))) == image.part("verity")
    assert menu(site) == ["gpu-base_1.97+3-0.efi"]
    with esp(site) as boot:
        assert boot.read("EFI/BOOT/BOOTX64.EFI") == b"MZ systemd-boot"
        assert boot.read("loader/loader.conf") == b"timeout 0\n"
    with files(site, "state") as state:
        etc = state / "etc.upper"
        assert json.loads((etc / "reconciler/image.json").read_text()) == {
            "image": "gpu-base", "version": "1.97", "sha256": image.sha256, "root_disk": "S5XYNG0R",
            "nonce": document.nonce, "slot": "a",
        }  # fmt: skip
        assert (etc / "hostname").read_text() == "gpu-001.example.com\n"
        shown = run("ssh-keygen", "-L", "-f", str(etc / "ssh/ssh_host_ed25519_key-cert.pub"))
        assert "gpu-001" in shown
        assert (etc / "ssh/ssh_host_ed25519_key").stat().st_mode & 0o777 == 0o600
    run("sfdisk", "--verify", str(site.disk))
