"""Images are on the node that stays before it serves alone: by real containerd, rsync and sshd of two nodes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.lab.hardware import commands
from reconciler.lab.hardware.tools import k3s as lab_k3s
from reconciler.lab.hardware.tools import serving as lab_serving
from reconciler.lab.hardware.tools.call import Call, Ran
from reconciler.model.container_images import EXPORT, FORGET, HOME, LACKING, LIST, LOAD, ROOM
from reconciler.model.outcome import Done, Transient
from reconciler.model.serving_sync import PULL, DesiredSync
from tests.converge.containerd import ENGINE, ctr, images, start_containerd, write_archive
from tests.converge.test_backup import each, to_new_image
from tests.converge.test_serving import syncing
from tests.converge.test_serving_real import Site, serving_site
from tests.drivers.ssh.conftest import Keys
from tests.drivers.ssh.conftest import keys as keys

pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in ("rsync", "containerd", "ctr")),
        reason="rsync, containerd or ctr is not installed",
    ),
]
BASE = "docker.io/library/base:v1"
PROGRAMS = (PULL, LIST, LACKING, EXPORT, ROOM, LOAD)
MIB = 1024 * 1024


@pytest.fixture
def site(keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    """Two nodes that serve together with a containerd each, of which n0 has the images of the engine."""
    with serving_site(2, keys, monkeypatch) as here:
        told, probe, rm = here.told, here.probe, commands.TOOLS["rm"]

        def script(call: Call) -> Ran | None:
            return here.reach(call) if call.args[:1] == ("-c",) and call.args[1] in PROGRAMS else told(call)

        monkeypatch.setattr(lab_serving, "serving_script", script)
        monkeypatch.setattr(lab_k3s, "probe", probe)
        monkeypatch.setitem(
            commands.TOOLS,
            "rm",
            lambda call: here.reach(call) if (call.name, *call.args) == FORGET else rm(call),
        )
        for name in here.nodes:
            sync = DesiredSync((), "fast", here.nodes[name].fast, 400.0, (ENGINE, BASE))
            each(here.world, syncing(sync), name)
            start_containerd(here.nodes[name], here.home)
        for name, size in ((ENGINE, 24 * MIB), (BASE, 1000)):
            write_archive(tmp_path / "image.tar", name, os.urandom(size))
            ctr(here.nodes["n0"], "images", "import", str(tmp_path / "image.tar"))
        assert images(here.nodes["n0"]).keys() == {ENGINE, BASE}
        yield here


def left(site: Site) -> str:
    return "".join(node.run("sh", "-c", f"find {HOME} -type f 2>/dev/null || true") for node in site.nodes.values())


def test_images_are_there_before_anybody_is_told(site: Site) -> None:
    before = images(site.nodes["n0"])
    to_new_image(site.world, "n0")
    with site.asked() as client:
        site.apply()
    did = site.world.did("n0")
    assert did.index("sync_serving") < did.index("degrade_serving") < did.index("drain"), did
    assert images(site.nodes["n1"]) == before
    assert client.outages == []
    assert left(site) == ""
    detail = next(one.detail for one in site.world.ledger.node("n0").attempts if one.action == "sync_serving")
    assert detail.startswith("2 images are on each, with their digests; n1: 0.0252 GB in ")
    assert " % of the 400 Gbit/s of fast" in detail


def test_only_what_lacks_is_sent(site: Site, tmp_path: Path) -> None:
    assert isinstance(site.world.act("sync_serving"), Done)
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Done)
    assert outcome.detail == "2 images are on each"
    ctr(site.nodes["n1"], "images", "rm", "--sync", BASE)
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Done)
    assert "e-05 GB in " in outcome.detail, outcome.detail
    assert images(site.nodes["n1"]) == images(site.nodes["n0"])


def test_what_a_broken_off_copy_left_goes_once_the_image_is_there(site: Site) -> None:
    """The image came by another way meanwhile, so nothing loads what was copied. What is of another image stays."""
    assert isinstance(site.world.act("sync_serving"), Done)
    there = site.nodes["n1"]
    listed = there.run("sh", "-c", LIST, "sh", ENGINE).splitlines()[1]
    archive = listed.split()[2]
    partial = f"{HOME}/.rsync-partial/{archive.rpartition('/')[2]}"
    there.run("sh", "-c", f"mkdir -p {HOME}/.rsync-partial && touch {archive} {partial} {HOME}/another.tar")
    assert left(site).count("\n") == 3
    assert isinstance(site.world.act("sync_serving"), Done)
    assert left(site) == f"{HOME}/another.tar\n"
    there.run("sh", "-c", f"rm {HOME}/another.tar")
    assert isinstance(site.world.act("sync_serving"), Done)
    assert there.run("sh", "-c", f"ls -d {HOME} 2>/dev/null || true") == "", "nor is an empty folder left"


def test_another_image_of_the_name_is_not_replaced(site: Site, tmp_path: Path) -> None:
    other = write_archive(tmp_path / "other.tar", BASE, b"another")
    ctr(site.nodes["n1"], "images", "import", str(tmp_path / "other.tar"))
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Transient)
    assert outcome.detail.startswith(f"n1: {BASE} is {other} here, and ")
    assert images(site.nodes["n1"]) == {BASE: other}


def test_an_archive_that_was_damaged_on_its_way_is_no_image(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    script = lab_serving.serving_script

    def damaged(call: Call) -> Ran | None:
        if call.args[1] == LOAD:
            spoil = f"for file in {HOME}/*.tar; do printf x | dd of=$file bs=1 seek=8192 conv=notrunc; done"
            site.nodes["n1"].run("sh", "-c", spoil)
        return script(call)

    monkeypatch.setattr(lab_serving, "serving_script", damaged)
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Transient)
    assert outcome.detail.startswith("n1: ")
    assert images(site.nodes["n1"]).keys() != {ENGINE, BASE}
    monkeypatch.setattr(lab_serving, "serving_script", script)
    for _ in range(
        5
    ):  # containerd throws away what the damaged one left, in its own time, and what is loaded meanwhile
        outcome = site.world.act("sync_serving")
        if isinstance(outcome, Done):
            break
        time.sleep(1)
    assert isinstance(outcome, Done), "it is copied anew"
    assert images(site.nodes["n1"]) == images(site.nodes["n0"])
    assert left(site) == ""


def test_a_disk_without_room_is_not_filled(site: Site) -> None:
    site.nodes["n1"].run("mkdir", "-p", "/var/lib/reconciler")
    site.nodes["n1"].run("mount", "-t", "tmpfs", "-o", "size=40m,mode=755", "none", "/var/lib/reconciler")
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Transient)
    assert outcome.detail == f"n1: the disk of {HOME} has no room for 24 MiB of archives and as much of images"
    assert site.nodes["n1"].run("find", HOME, "-type", "f") == ""


def test_what_is_cut_goes_on_where_it_was(site: Site) -> None:
    """The connection is cut in the midst of a large archive, of which the beginning is not sent again."""
    for name in site.nodes:  # 8 MiB a second, so that there is a midst
        site.nodes[name].run("tc", "qdisc", "add", "dev", "fast", "root", "tbf", "rate", "64mbit", "burst", "64k",
                             "latency", "400ms")  # fmt: skip
    node, source = site.nodes["n1"], site.nodes["n0"]
    listed = source.run("sh", "-c", LIST, "sh", ENGINE)
    name = listed.split()[-1]
    (site.home / "lines").write_text("".join(listed.splitlines(keepends=True)[1:]))
    source.run("sh", "-c", f'sh -c "$1" sh containerd < {site.home}/lines', "sh", EXPORT)
    puller = node.start("setsid", "sh", "-c", PULL, "sh", source.fast, name, log=site.home / "pull")
    part = f"{HOME}/.rsync-partial/{Path(name).name}"
    until = time.monotonic() + 30
    while received(site) < 8 * MIB:
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(puller.pid, signal.SIGTERM)  # as sshd does when the connection is gone
    puller.wait(20)
    kept = int(node.run("stat", "-c", "%s", part))
    assert 4 * MIB < kept < 24 * MIB
    before = received(site)
    assert isinstance(site.world.act("sync_serving"), Done)
    assert received(site) - before < 27 * MIB - kept + 2 * MIB
    assert images(site.nodes["n1"]) == images(site.nodes["n0"])
    assert left(site) == ""


def received(site: Site) -> int:
    [told] = json.loads(site.nodes["n1"].run("ip", "-json", "-statistics", "link", "show", "fast"))
    return int(told["stats64"]["rx"]["bytes"])


# LIST, LACKING, EXPORT, ROOM, PULL, LOAD, FORGET
@pytest.mark.parametrize(("number", "when"), [(3, "in the midst"), (6, "in the midst"), (7, "after")])
def test_a_run_that_dies_anywhere_is_gone_on_with(site: Site, number: int, when: str) -> None:
    before = images(site.nodes["n0"])
    to_new_image(site.world, "n0")
    with site.asked() as client:
        site.kill = (number, when)
        site.apply()
        assert site.ran == number
        assert site.wiped == []
        site.kill = (0, "")
        site.apply()
    assert (client.outages, site.wiped) == ([], ["n0"])
    assert images(site.nodes["n1"]) == before
    assert site.commands("n1") == ["n1", "n0,n1"]


@pytest.mark.skipif(shutil.which("dockerd") is None, reason="dockerd is not installed (apt-get install docker.io)")
def test_images_of_docker_are_handed_on_too(site: Site, tmp_path: Path) -> None:
    name = "engine/vllm:v1"
    manifest, config = tmp_path / "manifest.json", tmp_path / "config.json"
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.addfile(tarfile.TarInfo("engine"))
    root = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"]}
    config.write_text(json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": root}))
    manifest.write_text(json.dumps([{"Config": config.name, "RepoTags": [name], "Layers": [layer.name]}]))
    with tarfile.open(tmp_path / "docker.tar", "w") as tar:
        for path in (manifest, config, layer):
            tar.add(path, path.name)
    for node, real in site.nodes.items():
        options = (
            "--iptables=false",
            "--ip6tables=false",
            "--bridge=none",
            "--containerd=/run/containerd/containerd.sock",
        )
        real.start("dockerd", *options, log=site.home / f"{node}.dockerd")
        until = time.monotonic() + 30
        while subprocess.run(real.inside("docker", "version"), capture_output=True).returncode:
            assert time.monotonic() < until, (site.home / f"{node}.dockerd").read_text()
            time.sleep(0.1)
        each(site.world, syncing(DesiredSync((), "fast", real.fast, None, (name,))), node)
    site.nodes["n0"].run("docker", "load", "-i", str(tmp_path / "docker.tar"))
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Done), outcome
    assert outcome.detail.startswith("1 images are on each, with their digests; n1: ")
    ids = [site.nodes[node].run("docker", "image", "inspect", "--format", "{{.Id}}", name) for node in site.nodes]
    assert ids[0] == ids[1] == f"sha256:{hashlib.sha256(config.read_bytes()).hexdigest()}\n"
    by_digest = subprocess.run(
        site.nodes["n0"].inside("sh", "-c", LIST, "sh", f"engine/vllm@{ids[0]}".strip()), capture_output=True
    )
    assert by_digest.returncode, "docker save loses such a name"
    assert left(site) == ""
