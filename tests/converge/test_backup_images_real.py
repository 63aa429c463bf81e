"""Container images of a node outlive its disk: by real containerd, restic and sshd, kept on another node by SFTP."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.lab.hardware import commands
from reconciler.lab.hardware.tools import backup as lab_backup
from reconciler.lab.hardware.tools import serving as lab_serving
from reconciler.lab.hardware.tools.call import Call, Ran
from reconciler.model.backup import RESTORE, SAVE, DesiredBackup
from reconciler.model.container_images import EXPORT, FORGET, HOME, LIST, RELOAD
from tests.converge.containerd import ENGINE, ctr, images, start_containerd, write_archive
from tests.converge.for_real import run_for_real
from tests.converge.real_nodes import RealNode, real_nodes
from tests.converge.test_backup import to_new_image
from tests.converge.test_k3s_killed import surviving
from tests.converge.world import IMAGE, PROFILE, SIGNATURES, World
from tests.drivers.ssh.conftest import Keys
from tests.drivers.ssh.conftest import keys as keys

PROGRAMS = ("restic", "containerd", "ctr")
pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in PROGRAMS), reason=f"{', '.join(PROGRAMS)}: one is not installed"
    ),
]
PASSWORD = "a pass word"
MODELS = "/srv/models"
SIGNED = {**SIGNATURES, (IMAGE.name, "2026.12.0"): True}


@dataclass
class Site:
    """`kill`: at which of the programs on the node the run dies, and when. `ran`: how many there were."""

    world: World
    node: RealNode
    kill: tuple[int, str] = (0, "")
    ran: int = 0
    installs: int = 0
    damaged: bool = False  # an archive is, between its restore and its load

    def reach(self, call: Call) -> Ran:
        self.ran += 1
        self.wipe(call.machine.state.counters.installs)
        if self.damaged and call.args[1:2] == (RELOAD,):
            self.node.run("sh", "-c", f"for file in {HOME}/*.tar; do truncate -s 1M $file; done")
        number, when = self.kill
        return Ran(run_for_real(self.node.host, call, when if number == self.ran else "", 0.2), 1.0)

    def wipe(self, installs: int) -> None:
        """Lose what was on the disk, once the lab has written its own."""
        if installs > self.installs:
            self.installs = installs
            self.node.run("sh", "-c", "rm -rf /srv/* /var/lib/reconciler")
            ctr(self.node, "images", "rm", "--sync", ENGINE)
            assert images(self.node) == {}

    def apply(self) -> None:
        with surviving():
            self.world.apply(wait_s=36000.0)


@pytest.fixture
def site(keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="kept-") as folder, real_nodes(["n0", "store"], keys, Path(folder)) as both:
        node, store = both
        repository = f"sftp:root@{store.fast}:/srv/repository"
        backup = DesiredBackup((MODELS,), repository, {"RESTIC_PASSWORD": "restic"}, (ENGINE,))
        world = World(Path(folder), nodes=1, profile=replace(PROFILE, backup=backup), signatures=SIGNED)
        monkeypatch.setattr(world.fabric, "host_secret", lambda *_: f"{PASSWORD}\n")
        world.adopt()
        here = Site(world, node)
        rm = commands.TOOLS["rm"]

        def of(*programs: str) -> object:
            return lambda call: here.reach(call) if call.args[:1] == ("-c",) and call.args[1] in programs else None

        monkeypatch.setattr(lab_backup, "backup_script", of(SAVE, RESTORE))
        monkeypatch.setattr(lab_serving, "serving_script", of(LIST, EXPORT, RELOAD))
        monkeypatch.setitem(
            commands.TOOLS, "rm", lambda call: here.reach(call) if (call.name, *call.args) == FORGET else rm(call)
        )
        start_containerd(node, Path(folder))
        write_archive(tmp_path / "image.tar", ENGINE, os.urandom(4_000_000))
        ctr(node, "images", "import", str(tmp_path / "image.tar"))
        node.run("sh", "-c", f"mkdir {MODELS} && echo weights > {MODELS}/a")
        node.run("env", f"RESTIC_PASSWORD={PASSWORD}", "restic", "--repo", repository, "init")
        yield here
        world.ledger.close()


def left(site: Site) -> str:
    return site.node.run("sh", "-c", f"find {HOME} 2>/dev/null || true")


def check(site: Site, before: dict[str, str]) -> None:
    assert (site.installs, site.world.serves("n0")) == (1, True)
    assert images(site.node) == before
    assert site.node.run("cat", f"{MODELS}/a") == "weights\n"
    assert left(site) == ""


def test_images_and_data_survive_a_rebuild(site: Site) -> None:
    before = images(site.node)
    assert before.keys() == {ENGINE}
    to_new_image(site.world, "n0")
    site.apply()
    assert site.ran == 6  # LIST, EXPORT, SAVE, FORGET, RESTORE, RELOAD
    check(site, before)


@pytest.mark.parametrize(("number", "when"), [(2, "in the midst"), (4, "before"), (6, "in the midst")])
def test_a_run_that_dies_anywhere_is_gone_on_with(site: Site, number: int, when: str) -> None:
    before = images(site.node)
    to_new_image(site.world, "n0")
    site.kill = (number, when)
    site.apply()
    assert site.ran == number
    assert not site.world.serves("n0")
    site.kill = (0, "")
    site.apply()
    check(site, before)


def test_the_image_that_the_new_system_brings_stays(site: Site, tmp_path: Path) -> None:
    node = site.node
    listed = node.run("sh", "-c", LIST, "sh", ENGINE)
    (tmp_path / "lines").write_text(listed.partition("\n")[2])
    node.run("sh", "-c", f'sh -c "$1" sh containerd < {tmp_path}/lines', "sh", EXPORT)
    newer = write_archive(tmp_path / "newer.tar", ENGINE, b"newer")
    ctr(node, "images", "import", str(tmp_path / "newer.tar"))
    assert node.run("sh", "-c", RELOAD) == ""
    assert images(node) == {ENGINE: newer}
    assert left(site) == ""


def test_an_image_that_can_not_be_loaded_keeps_no_node_out(site: Site) -> None:
    """Its data is back, and whoever needs the image may pull it. The archive stays for a person."""
    to_new_image(site.world, "n0")
    site.damaged = True
    site.apply()
    assert (site.installs, site.world.serves("n0")) == (1, True)
    assert site.node.run("cat", f"{MODELS}/a") == "weights\n"
    assert images(site.node) == {}
    [detail] = [one.detail for one in site.world.ledger.node("n0").attempts if one.action == "restore_backup"]
    assert f"; not loaded, and kept in {HOME}: {ENGINE}: " in detail
    assert ".tar" in left(site)
