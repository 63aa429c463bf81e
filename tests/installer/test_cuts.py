"""The power goes while the init works: what is there never boots half an image, and the next run installs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconciler.installer.machine import Machine
from tests.conftest import ROOT
from tests.installer.disks import MIB
from tests.installer.server import Troubles
from tests.installer.site import HASTY, Site

pytestmark = pytest.mark.tool

CHILD = """
import json, sys
from pathlib import Path
from reconciler.installer.client import Patience
from reconciler.installer.documents import Attempt
from reconciler.installer.install import run_attempt
from reconciler.installer.machine import Machine
given = json.loads(sys.argv[1])
run_attempt(Machine(*map(Path, given["machine"])), Attempt(url=given["url"]), Patience(**given["patience"]))
"""


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_cut_in_the_write_leaves_nothing_that_boots(site: Site, share: float) -> None:
    """The process dies without a last word, at a tenth, half and nine tenths of the image."""
    assert site.install(site.document("a")), "an old system was there, whose table must not come back"
    site.server.document, site.server.image = site.document("b"), site.images["b"].path.read_bytes()
    subprocess.run(("wipefs", "-q", "-a", str(site.disk)), check=True)  # no layout: it is installed as on a new disk
    children: list[subprocess.Popen[bytes]] = []
    site.server.troubles = Troubles(
        pause=0.005, on_sent=lambda sent: children[0].send_signal(signal.SIGKILL) if sent >= share else None
    )
    machine = site.machine
    given = {
        "machine": [str(path) for path in (machine.sys, machine.dev, machine.extra, machine.trust, machine.work)],
        "url": site.server.url,
        "patience": vars(HASTY),
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    children.append(subprocess.Popen((sys.executable, "-c", CHILD, json.dumps(given)), env=environment))
    assert children[0].wait(timeout=60) == -signal.SIGKILL
    assert site.nothing_boots()
    site.server.troubles = Troubles()
    assert site.install(site.document("b"), "b")
    assert site.holds("b", "a")


class PowerCut(BaseException):
    """The machine is off. No handler of the init sees it."""


TIDIES = ("umount", "delpart")


@dataclass(frozen=True)
class Fuse(Machine):
    """A machine whose power goes when it would run its nth program. What tidies up after a test still runs."""

    left: list[int] = field(default_factory=lambda: [1 << 30])
    ran: list[str] = field(default_factory=list)

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 600.0) -> bytes:
        self.ran.append(" ".join(command))
        if command[0] in TIDIES:
            return super().run(*command, stdin=stdin, timeout=timeout)
        if self.left[0] == 0:
            raise PowerCut
        self.left[0] -= 1
        return super().run(*command, stdin=stdin, timeout=timeout)


@dataclass(frozen=True)
class CutOnceCertified(Machine):
    """A machine whose power goes with the first program after its host key was sent."""

    site: Site | None = None

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 600.0) -> bytes:
        assert self.site is not None
        if self.site.server.requests["hostkey"] > self.site.server.requests["cuts"] and command[0] not in TIDIES:
            self.site.server.requests["cuts"] += 1
            raise PowerCut
        return super().run(*command, stdin=stdin, timeout=timeout)


def fused(machine: Machine, left: int) -> Fuse:
    return Fuse(machine.sys, machine.dev, machine.extra, machine.trust, machine.work, machine.proc, [left])


def programs_of(site: Site, image: str, **changes: object) -> int:
    """Install, and return how many programs that took."""
    whole, site.machine = site.machine, fused(site.machine, 1 << 30)
    assert site.install(site.document(image, **changes), image)
    count = (1 << 30) - site.machine.left[0]
    site.machine = whole
    return count


def cut(site: Site, left: int, image: str, **changes: object) -> None:
    """Install until the power goes before the program after `left` others."""
    whole, site.machine = site.machine, fused(site.machine, left)
    with pytest.raises(PowerCut):
        site.install(site.document(image, **changes), image)
    site.machine = whole


def test_a_cut_between_any_two_steps_of_a_first_install_leaves_nothing_that_boots(site: Site) -> None:
    count = programs_of(site, "a")
    subprocess.run(("wipefs", "-q", "-a", str(site.disk)), check=True)
    for left in range(0, count - 1, 3):  # the last program reads what the table is
        cut(site, left, "a")
        assert site.nothing_boots(), f"after {left} of {count} programs"
    assert site.install(site.document("a"))


@pytest.mark.parametrize(("image", "changes"), [
    ("a", {}), ("plain", {"layout": None}), ("b", {"preserve": ("data",)}),
], ids=["first install", "whole disk", "slot, its state made anew"])  # fmt: skip
def test_a_cut_after_the_host_key_was_sent_is_followed_by_the_same_key(
    site: Site, image: str, changes: dict[str, Any]
) -> None:
    """A second key would end the attempt as an incident, and take a person."""
    if "preserve" in changes:
        assert site.install(site.document("a"))
        site.server.host_keys.clear()
        site.server.requests.clear()
    document = site.document(image, **changes)
    whole = site.machine
    site.machine = CutOnceCertified(whole.sys, whole.dev, whole.extra, whole.trust, whole.work, whole.proc, site)
    for _ in range(2):  # the power may go in the boot after it, too
        with pytest.raises(PowerCut):
            site.install(document, image)
    site.machine = whole
    assert site.install(document, image), site.reason()
    assert len(site.server.host_keys) == 3
    assert len(set(site.server.host_keys)) == 1
    with site.disk.open("rb") as disk:
        assert b"OPENSSH PRIVATE KEY" not in disk.read(MIB), "no copy stays behind"


def test_a_cut_between_any_two_steps_of_a_slot_keeps_the_other_one(site: Site) -> None:
    """The system in use stays bootable with all of its bytes until the new one is in the menu, whole."""
    assert site.install(site.document("a"))
    with site.esp() as boot:  # it came up: systemd-bless-boot takes the counter away
        boot.write("EFI/Linux/gpu-base_1.97.efi", boot.read("EFI/Linux/gpu-base_1.97+3-0.efi"))
        boot.remove("EFI/Linux/gpu-base_1.97+3-0.efi")
    count = programs_of(site, "b", preserve=("state", "data"))
    for left in range(2, count, 4):
        cut(site, left, "b", preserve=("state", "data"))
        assert site.holds("a", "a"), f"after {left} of {count} programs"
        names = site.menu()
        assert "gpu-base_1.97.efi" in names, f"after {left} of {count} programs: {names}"
        if "gpu-base_1.98+3-0.efi" in names:
            assert site.holds("b", "b"), f"after {left} of {count} programs"
    assert site.install(site.document("b", preserve=("state", "data")), "b")
    assert site.holds("b", "b")
    assert site.menu() == ["gpu-base_1.97.efi", "gpu-base_1.98+3-0.efi"]
