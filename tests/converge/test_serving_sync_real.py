"""Models are on the node that stays before it serves alone: by real rsync and sshd, on a network between the nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.lab.hardware.tools import k3s as lab_k3s
from reconciler.lab.hardware.tools.call import Call, Ran
from reconciler.model.outcome import Done, Transient
from reconciler.model.serving_sync import DIGESTS, PULL, DesiredSync
from tests.converge.test_backup import each, to_new_image
from tests.converge.test_serving import syncing
from tests.converge.test_serving_real import Site, serving_site
from tests.drivers.ssh.conftest import Keys
from tests.drivers.ssh.conftest import keys as keys

pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed"),
]
MODELS = "/srv/models"
FILES = {"a/weights": 24, "b/of two words": 1, "b/deep/er": 2}  # name -> MiB
MIB = 1024 * 1024


@pytest.fixture
def site(keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    """Two nodes that serve together, of which n0 has models."""
    with serving_site(2, keys, monkeypatch) as here:
        told, probe = here.told, here.probe

        def script(call: Call) -> Ran | None:
            return here.reach(call) if call.args[:2] in (("-c", PULL), ("-c", DIGESTS)) else told(call)

        monkeypatch.setattr("reconciler.lab.hardware.tools.serving.serving_script", script)
        monkeypatch.setattr(lab_k3s, "probe", probe)
        monkeypatch.setattr(lab_k3s, "compare", here.reach)
        for name in here.nodes:
            sync = DesiredSync((MODELS,), "fast", here.nodes[name].fast, 400.0)
            each(here.world, syncing(sync), name)
        for name, size in FILES.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(os.urandom(size * MIB))
        (tmp_path / "latest").symlink_to("a/weights")
        here.nodes["n0"].run("cp", "-a", str(tmp_path), MODELS)
        yield here


def digests(site: Site, node: str) -> str:
    return site.nodes[node].run("sh", "-c", f"cd {MODELS} 2>/dev/null && find . -type f -exec sha256sum {{}} + | sort")


def test_models_are_there_before_anybody_is_told(site: Site) -> None:
    before = digests(site, "n0")
    to_new_image(site.world, "n0")
    with site.asked() as client:
        site.apply()
    did = site.world.did("n0")
    assert did.index("sync_serving") < did.index("degrade_serving") < did.index("drain"), did
    assert digests(site, "n1") == before
    assert site.nodes["n1"].run("readlink", f"{MODELS}/latest") == "a/weights\n"
    assert client.outages == []
    detail = next(one.detail for one in site.world.ledger.node("n0").attempts if one.action == "sync_serving")
    assert detail.startswith("3 files are on each, with their digests; n1: 0.0283 GB in ")
    assert " Gbit/s, " in detail
    assert " % of the 400 Gbit/s of fast" in detail


def received(site: Site, link: str) -> int:
    """Return how many bytes n1 has received by a link. /sys shows the links of the namespace that mounted it."""
    [told] = json.loads(site.nodes["n1"].run("ip", "-json", "-statistics", "link", "show", link))
    return int(told["stats64"]["rx"]["bytes"])


def test_it_goes_by_the_network_between_the_nodes(site: Site) -> None:
    before = {link: received(site, link) for link in ("fast", "slow")}
    assert isinstance(site.world.act("sync_serving"), Done)
    assert received(site, "fast") - before["fast"] > 27 * MIB
    assert received(site, "slow") - before["slow"] < MIB


def test_what_is_cut_goes_on_where_it_was(site: Site) -> None:
    """The connection is cut in the midst of a large file, of which the beginning is not sent again."""
    node = site.nodes["n1"]
    for name in site.nodes:  # 8 MiB a second, so that there is a midst
        site.nodes[name].run("tc", "qdisc", "add", "dev", "fast", "root", "tbf", "rate", "64mbit", "burst", "64k",
                             "latency", "400ms")  # fmt: skip
    puller = node.start("setsid", "sh", "-c", PULL, "sh", site.nodes["n0"].fast, MODELS, log=site.home / "pull")
    part = f"{MODELS}/a/.rsync-partial/weights"
    until = time.monotonic() + 30
    while received(site, "fast") < 8 * MIB:
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(puller.pid, signal.SIGTERM)  # as sshd does when the connection is gone
    puller.wait(20)
    kept = int(node.run("stat", "-c", "%s", part))
    assert 4 * MIB < kept < 24 * MIB
    before = received(site, "fast")
    assert isinstance(site.world.act("sync_serving"), Done)
    assert received(site, "fast") - before < 27 * MIB - kept + 2 * MIB
    assert digests(site, "n1") == digests(site, "n0")
    assert node.run("find", MODELS, "-name", ".rsync-partial") == ""


def test_what_is_another_file_there_is_neither_overwritten_nor_taken_for_it(site: Site) -> None:
    site.nodes["n1"].run("sh", "-c", f"mkdir -p {MODELS}/a && echo other > {MODELS}/a/weights")
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Transient)
    assert f"n1: {MODELS}/a/weights: FAILED" in outcome.detail
    assert site.nodes["n1"].run("cat", f"{MODELS}/a/weights") == "other\n"
    to_new_image(site.world, "n0")
    site.apply()
    assert site.wiped == []
    assert site.commands("n1") == []
    assert site.world.serves("n0")


def test_a_damaged_copy_is_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(call: Call) -> Ran:
        site.nodes["n1"].run("sh", "-c", f"printf x | dd of={MODELS}/a/weights bs=1 seek=4096 conv=notrunc")
        return site.reach(call)

    monkeypatch.setattr(lab_k3s, "compare", damaged)
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Transient)
    assert f"{MODELS}/a/weights: FAILED" in outcome.detail


def test_a_network_that_is_down_keeps_the_node(site: Site) -> None:
    site.nodes["n0"].run("ip", "link", "set", "fast", "down")
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Transient)
    assert outcome.detail.startswith("n1: ")
    assert "ssh: connect to host" in outcome.detail or "rsync" in outcome.detail


@pytest.mark.parametrize(("number", "when"), [(1, "in the midst"), (2, "after"), (3, "before")])
def test_a_run_that_dies_in_a_copy_is_gone_on_with(site: Site, number: int, when: str) -> None:
    before = digests(site, "n0")
    to_new_image(site.world, "n0")
    with site.asked() as client:
        site.kill = (number, when)
        site.apply()
        assert site.wiped == []
        site.kill = (0, "")
        site.apply()
    assert (client.outages, site.wiped) == ([], ["n0"])
    assert digests(site, "n1") == before
    assert site.commands("n1") == ["n1", "n0,n1"]


def test_a_directory_behind_a_link_and_an_empty_one_are_copied(site: Site) -> None:
    node = site.nodes["n0"]
    before = digests(site, "n0")
    node.run("sh", "-c", f"mv {MODELS} /srv/disk && ln -s /srv/disk {MODELS}")
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Done)
    assert outcome.detail.startswith("3 files are on each")
    assert digests(site, "n1") == before
    assert isinstance(site.world.act("sync_serving"), Done), "again, with all there"
    node.run("sh", "-c", f"rm {MODELS} && mkdir {MODELS}")
    outcome = site.world.act("sync_serving")
    assert isinstance(outcome, Done)
    assert outcome.detail.startswith("0 files are on each")


def test_a_file_of_its_own_is_copied(site: Site) -> None:
    each(site.world, syncing(DesiredSync((f"{MODELS}/a/weights",), "fast", site.nodes["n0"].fast)), "n0")
    assert isinstance(site.world.act("sync_serving"), Done)
    assert site.nodes["n1"].run("stat", "-c", "%s", f"{MODELS}/a/weights") == f"{24 * MIB}\n"
