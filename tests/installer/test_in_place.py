"""The slot that does not run, written from the running system, on real disks (loop devices) with real tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.installer.in_place import run_in_place
from reconciler.installer.machine import Machine
from reconciler.model.install import InstallDocument, InstallPhase, InstallStatus, dump_contract, load_contract
from tests.conftest import ROOT
from tests.installer.disks import MIB, run
from tests.installer.server import Troubles
from tests.installer.site import HASTY, LAYOUT, Site
from tests.installer.test_cuts import PowerCut, fused

pytestmark = pytest.mark.tool
KEPT = ("state", "data")


@dataclass
class Node:
    """A machine whose system runs from a slot: its kernel has the partitions, and mounts of them."""

    site: Site
    machine: Machine
    folder: Path

    def boots(self, image: str) -> None:
        """Let the kernel say that it was booted with the root of this image."""
        (self.machine.proc / "cmdline").write_text(f"{self.site.images[image].command_line} ro\n")

    def document(self, image: str, **changes: Any) -> InstallDocument:
        return self.site.document(image, **{"preserve": KEPT, **changes})

    def ships(self, document: InstallDocument, image: str) -> None:
        self.site.server.image = self.site.images[image].path.read_bytes()
        (self.folder / "document.json").write_text(dump_contract(document))

    def installs(self, document: InstallDocument, image: str) -> bool:
        self.ships(document, image)
        return run_in_place(self.machine, self.folder, HASTY)

    @property
    def status(self) -> InstallStatus:
        return load_contract(InstallStatus, (self.folder / "status.json").read_text())

    def slot(self, name: str) -> dict[str, Any]:
        with self.site.files("state") as state:
            found: dict[str, Any] = json.loads((state / f"etc/reconciler/slot-{name}.json").read_text())
            return found


@contextmanager
def system_on(site: Site, slot: str) -> Iterator[None]:
    """Mount what a running system has mounted: its root and `state`."""
    run("partx", "--add", str(site.disk))
    places = []
    try:
        for name in (f"root-{slot}", "state"):
            place = site.folder / f"mounted-{name}"
            place.mkdir(exist_ok=True)
            options = "ro,noload" if name != "state" else "rw"
            run("mount", "-o", options, f"{site.disk}p{site.entry(name).number}", str(place))
            places.append(place)
        yield
    finally:
        for place in reversed(places):
            run("umount", str(place))
        for _ in range(50):  # a partition is busy for a moment after an unmount
            if subprocess.run(("partx", "--delete", str(site.disk)), capture_output=True).returncode == 0:
                break
            time.sleep(0.1)


@pytest.fixture
def node(site: Site) -> Iterator[Node]:
    """A node that runs image a from slot a, and whose boot loader has marked it as good."""
    assert site.install(site.document("a"))
    with site.esp() as boot:
        boot.write("EFI/Linux/gpu-base_1.97.efi", boot.read("EFI/Linux/gpu-base_1.97+3-0.efi"))
        boot.remove("EFI/Linux/gpu-base_1.97+3-0.efi")
    proc = site.folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/mountinfo").symlink_to("/proc/self/mountinfo")
    folder = site.folder / "attempts/one"
    folder.mkdir(parents=True)
    (folder / "keys").symlink_to(site.machine.trust / "keys")
    found = Node(site, replace(site.machine, trust=folder, work=folder / "work", proc=proc), folder)
    found.boots("a")
    with ExitStack() as system:
        system.enter_context(system_on(site, "a"))
        yield found


def fetched(node: Node) -> int:
    return node.site.server.requests["/images/image.raw.zst"]


def test_the_other_slot_gets_the_image_while_the_system_runs(node: Node) -> None:
    site, document = node.site, node.document("b")
    (key,) = site.server.host_keys
    before = site.content("root-a", 1 << 20)
    assert node.installs(document, "b"), node.status
    assert node.status.phase is InstallPhase.INSTALLED
    assert site.holds("b", "b")
    assert site.holds("a", "a")
    assert site.content("root-a", 1 << 20) == before
    assert site.menu() == ["gpu-base_1.97.efi", "gpu-base_1.98+3-0.efi"]
    assert site.record()["nonce"] == document.nonce
    assert node.slot("b")["root"] == site.images["b"].root_uuid
    assert node.slot("a")["version"] == "1.97", "what runs, should the boot loader fall back to it"
    with site.files("state") as state:
        assert (state / "etc/ssh/ssh_host_ed25519_key.pub").read_text() == key
        assert (state / "etc/ssh/ssh_host_ed25519_key-cert.pub").exists()
    run("sfdisk", "--verify", str(site.disk))
    assert node.installs(document, "b")
    assert "has it already" in node.status.detail


def test_the_way_back_downloads_nothing(node: Node) -> None:
    """The slot is compared with the digests of when it was written, and its kernel gets three tries again."""
    assert node.installs(node.document("b"), "b"), node.status
    node.boots("b")
    asked = fetched(node)
    document = node.document("a")
    assert node.installs(document, "a"), node.status
    assert "nothing was downloaded" in node.status.detail
    assert fetched(node) == asked
    assert node.site.menu() == ["gpu-base_1.97+3-0.efi", "gpu-base_1.98+0-0.efi"]
    assert node.site.record()["nonce"] == node.slot("a")["nonce"] == document.nonce
    assert node.slot("b")["version"] == "1.98"


@pytest.mark.parametrize("what", ["root-b", "verity-b", "kernel", "record"])
def test_a_slot_that_is_not_whole_is_written_again(node: Node, what: str) -> None:
    site = node.site
    assert node.installs(node.document("b"), "b"), node.status
    if what == "kernel":
        with site.esp() as boot:
            name = "EFI/Linux/gpu-base_1.98+3-0.efi"
            boot.write(name, boot.read(name) + b"another initrd")
    elif what == "record":
        with site.files("state") as state:
            (state / "etc/reconciler/slot-b.json").unlink()
    else:
        with site.disk.open("r+b") as disk:
            disk.seek(site.entry(what).start + 4096)
            disk.write(b"altered")
            disk.flush()
            os.fsync(disk.fileno())
    asked = fetched(node)
    assert node.installs(node.document("b"), "b"), node.status
    assert fetched(node) > asked
    run("blockdev", "--flushbufs", str(site.disk))  # the disk's cache is not that of its partitions
    assert site.holds("b", "b")
    assert site.menu() == ["gpu-base_1.97.efi", "gpu-base_1.98+3-0.efi"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"preserve": ("state",)}, "data can't be made anew while the system runs"),
        ({"preserve": ()}, "state and data can't be made anew while the system runs"),
        ({"layout": None}, "only an image with a layout"),
        ({"layout": LAYOUT.model_copy(update={"root": LAYOUT.root + MIB})}, "does not have the layout"),
        ({"machine": {"serial": "another", "uuid": None}}, "the document is for serial number another"),
        ({"kernel_arguments": ("iommu=pt",)}, "boots without iommu=pt"),
    ],
)
def test_what_can_not_be_written_in_place_changes_nothing_that_boots(
    node: Node, changes: dict[str, Any], told: str
) -> None:
    document = InstallDocument.model_validate(node.document("b").model_dump() | changes)
    assert not node.installs(document, "b")
    assert node.status.phase is InstallPhase.FAILED
    assert told in node.status.detail
    assert node.site.menu() == ["gpu-base_1.97.efi"]
    assert node.site.holds("a", "a")


def test_an_unsigned_image_changes_nothing(node: Node) -> None:
    document = node.document("b")
    image = document.image.model_copy(update={"signature": node.document("a").image.signature})
    before = node.site.whole()
    assert not node.installs(document.model_copy(update={"image": image}), "b")
    assert "does not verify" in node.status.detail
    assert node.site.whole() == before


def test_the_image_that_runs_is_not_written_again_beside_itself(node: Node) -> None:
    """Its partitions would have the ids of those that run, and those would need others."""
    assert not node.installs(node.document("a"), "a")
    assert "the one that runs now" in node.status.detail
    assert node.site.menu() == ["gpu-base_1.97.efi"]


def test_a_slot_that_is_in_use_is_not_written_whatever_the_kernel_says(node: Node) -> None:
    """The kernel gives no partition away that is mounted, or below dm-verity."""
    assert node.installs(node.document("b"), "b"), node.status
    node.boots("b")  # a lie: root-a is mounted
    with node.site.files("state") as state:
        (state / "etc/reconciler/slot-a.json").unlink()
    assert not node.installs(node.document("a", kernel_arguments=()), "a")
    assert "can't be written" in node.status.detail
    assert node.site.holds("a", "a")


def test_which_slot_runs_must_be_known(node: Node) -> None:
    (node.machine.proc / "cmdline").write_text("root=/dev/sda2 quiet\n")
    before = node.site.whole()
    assert not node.installs(node.document("b"), "b")
    assert "which slot runs" in node.status.detail
    assert node.site.whole() == before


def test_an_esp_that_somebody_uses_is_left_alone(node: Node) -> None:
    held = os.open(f"{node.site.disk}p{node.site.entry('esp').number}", os.O_RDWR | os.O_EXCL)
    try:
        assert not node.installs(node.document("b"), "b")
    finally:
        os.close(held)
    assert "is in use" in node.status.detail
    assert node.site.menu() == ["gpu-base_1.97.efi"]


def test_a_cut_between_any_two_steps_keeps_what_runs(node: Node) -> None:
    """The system that runs stays bootable with all of its bytes until the new one is in the menu, whole."""
    site = node.site
    counted = fused(node.machine, 1 << 30)
    whole, node.machine = node.machine, counted
    assert node.installs(node.document("b"), "b"), node.status
    count = (1 << 30) - counted.left[0] - 2  # folders of the ESP that are there now
    with site.esp() as boot:
        boot.remove("EFI/Linux/gpu-base_1.98+3-0.efi")
    for left in range(2, count, 3):
        node.machine = fused(whole, left)
        with pytest.raises(PowerCut):
            node.installs(node.document("b"), "b")
        assert site.holds("a", "a"), f"after {left} of {count} programs"
        names = site.menu()
        assert "gpu-base_1.97.efi" in names, f"after {left} of {count} programs: {names}"
        if "gpu-base_1.98+3-0.efi" in names:
            assert site.holds("b", "b"), f"after {left} of {count} programs"
            with site.esp() as boot:
                boot.remove("EFI/Linux/gpu-base_1.98+3-0.efi")
    node.machine = whole
    assert node.installs(node.document("b"), "b"), node.status
    assert site.menu() == ["gpu-base_1.97.efi", "gpu-base_1.98+3-0.efi"]


CHILD = """
import json, sys
from pathlib import Path
from reconciler.installer.client import Patience
from reconciler.installer.in_place import run_in_place
from reconciler.installer.machine import Machine
given = json.loads(sys.argv[1])
machine = Machine(**{name: Path(path) for name, path in given["machine"].items()})
run_in_place(machine, Path(given["folder"]), Patience(**given["patience"]))
"""


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_program_that_is_killed_while_it_writes_leaves_what_runs(node: Node, share: float) -> None:
    site = node.site
    node.ships(node.document("b"), "b")
    children: list[subprocess.Popen[bytes]] = []
    site.server.troubles = Troubles(
        pause=0.005, on_sent=lambda sent: children[0].send_signal(signal.SIGKILL) if sent >= share else None
    )
    machine = {name: str(path) for name, path in vars(node.machine).items()}
    given = json.dumps({"machine": machine, "folder": str(node.folder), "patience": vars(HASTY)})
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    children.append(subprocess.Popen((sys.executable, "-c", CHILD, given), env=environment))
    assert children[0].wait(timeout=60) == -signal.SIGKILL
    site.server.troubles = Troubles()
    assert site.menu() == ["gpu-base_1.97.efi"]
    assert site.holds("a", "a")
    run("umount", str(node.machine.work / "mnt" / f"{site.disk.name}p6"))  # each attempt has a folder of its own
    assert node.installs(node.document("b"), "b"), node.status
    assert site.holds("b", "b")
