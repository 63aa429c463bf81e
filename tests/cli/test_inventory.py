"""`reconciler inventory propose` and the loop: one pull request from a NetBox and on forges that we play."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.loop_proposals import InventoryProposer
from reconciler.app.loop_proposer import ProposerOptions
from reconciler.drivers.git import describe
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.secrets import Secret
from reconciler.model.desired import Fleet
from reconciler.model.forge import ForgeKind
from reconciler.spec import load_spec
from tests import builders as b
from tests.adopt.fleets import BASE
from tests.cli.shell import Done, reconciler
from tests.forge import gitlab, server
from tests.forge.runner import git
from tests.inventory.test_in_step import POOL
from tests.inventory.test_sources import FakeNetBox, device

pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
]
TOKEN = "0123abcd"


@dataclass
class Bench:
    """A spec in git with 20 nodes, a NetBox that names them, and a forge of either kind."""

    path: Path
    netbox: FakeNetBox
    kind: ForgeKind
    forge: Any

    @property
    def spec(self) -> Path:
        return self.path / "fleet-spec"

    def commit(self) -> str:
        git(self.path, "add", "fleet-spec")
        git(self.path, "commit", "-q", "-m", "Change the spec", "--allow-empty")
        head = git(self.path, "rev-parse", "HEAD")
        gone = {"id": head, "sha": head, "message": "", "title": "", "actions": [], "tree": {"sha": "t"}}
        self.forge.commits.setdefault(head, gone | {"parents": [], "parent_ids": []})
        return head

    def propose(self, *words: str) -> Done:
        done = reconciler("inventory", "propose", "--spec", self.spec, *words, env=self.forge.env())
        assert TOKEN not in done.out + done.err
        return done

    @property
    def pulls(self) -> list[tuple[str, str]]:
        """State and text of each."""
        known = self.forge.pulls if self.kind is ForgeKind.GITHUB else self.forge.merges
        return [(one["state"], one.get("body", one.get("description"))) for one in known.values()]

    def proposed(self) -> dict[str, str]:
        made = self.forge.commits[self.forge.branches["reconciler/inventory/test"]]
        if self.kind is ForgeKind.GITLAB:
            return {one["file_path"]: one["content"] for one in made["actions"]}
        return {one["path"]: one["content"] for one in self.forge.trees[made["tree"]["sha"]]["tree"]}


@pytest.fixture(params=ForgeKind)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    devices = [device(n, f"gpu-{n:02}", f"10.0.0.{n}", f"10.0.1.{n}", "r1") for n in range(1, 21)]
    forges = server.serving() if request.param is ForgeKind.GITHUB else gitlab.serving()
    with server.serve(FakeNetBox(devices), "") as netbox, forges as forge:
        spec = tmp_path / "fleet-spec"
        spec.mkdir()
        place = f"url: '{netbox.url}/api/dcim/devices/?role=gpu', token: netbox"
        policy = f"  inventory: {{kind: netbox, {place}, pool: train, forge: {where(request.param, forge)}}}\n"
        for name, text in {**BASE, "train.yaml": POOL}.items():
            (spec / name).write_text(text.replace("spec:\n", f"spec:\n{policy}", 1) if name == "fleet.yaml" else text)
        tokens = {"netbox": TOKEN, "forge": server.TOKEN if request.param is ForgeKind.GITHUB else gitlab.TOKEN}
        secrets = {name: {"env": f"{name.upper()}_SECRET", "allow": ["127.0.0.1"]} for name in tokens}
        (tmp_path / "config" / "reconciler" / "secrets.yaml").write_text(json.dumps({"secrets": secrets}))
        request.getfixturevalue("monkeypatch").setenv("NETBOX_SECRET", TOKEN)
        git(tmp_path, "init", "-q")
        found = Bench(tmp_path, netbox, request.param, forge)
        found.commit()
        yield found


def where(kind: ForgeKind, forge: Any) -> str:
    repository = server.REPOSITORY if kind is ForgeKind.GITHUB else gitlab.PROJECT
    return f"{{kind: {kind.value}, repository: {repository}, token: forge, url: '{forge.url}'}}"


def test_one_request_is_kept_in_step_with_the_inventory(bench: Bench) -> None:
    assert "nothing to propose" in bench.propose().err
    assert bench.pulls == []
    bench.netbox.devices[6]["oob_ip"]["address"] = "10.9.0.7/24"
    bench.netbox.devices.append(device(21, "gpu-21", "10.0.0.21", "10.0.1.21", "r2"))
    dry = bench.propose("--dry-run")
    assert (dry.code, bench.pulls) == (0, []), dry.err
    assert "bmc: https://10.9.0.7" in dry.out.replace("'", "")
    opened = bench.propose()
    assert "opened " in opened.err, opened.err
    [(_, text)] = bench.pulls
    for said in ("gpu-21", "domains.rack: r2", "10.9.0.7 \\(was ", "NetBox: device gpu-07"):
        assert said in text
    assert "unchanged" in bench.propose().err
    del bench.netbox.devices[4]
    assert "edited " in bench.propose().err
    [(_, text)] = bench.pulls
    assert "state: retired \\(was active" in text
    [(name, merged)] = bench.proposed().items()
    assert name == "fleet-spec/train.yaml"
    (bench.spec / "train.yaml").write_text(merged)
    bench.commit()
    fleet = load_spec(bench.spec, directory=str(bench.spec))
    assert len(fleet.nodes) == 21
    assert fleet.nodes["gpu-05"].state == "retired"
    assert fleet.nodes["gpu-07"].endpoints.bmc == "https://10.9.0.7"
    assert fleet.nodes["gpu-08"].endpoints.bmc == "https://10.0.0.8"
    assert "closed " in bench.propose().err, "merged, nothing is left"


def test_what_is_left_is_told_where_nothing_is_proposed(bench: Bench) -> None:
    bench.netbox.devices[4]["name"] = "GPU_05"
    done = bench.propose()
    for said in ("leaves gpu-05 to you: the inventory lacks this name", "leaves gpu_05 to you", "nothing to propose"):
        assert said in done.err
    assert bench.pulls == []


def test_a_node_that_is_back_is_not_left_to_be_retired(bench: Bench) -> None:
    """A device that never is a node is no reason to keep a change of which nothing holds any more."""
    bench.netbox.devices.append(device(77, None, "", "10.7.1.77", "r1"))
    gone = bench.netbox.devices.pop(4)
    assert "opened " in bench.propose().err
    bench.netbox.devices.append(gone)
    assert "closed " in bench.propose().err
    bench.netbox.devices.remove(gone)
    assert "opened " in bench.propose().err


def test_an_answer_of_nothing_or_of_half_proposes_nothing(bench: Bench) -> None:
    whole = bench.netbox.devices
    bench.netbox.devices = []
    empty = bench.propose()
    assert (empty.code, "answers with no node at all" in empty.err) == (8, True), empty.err
    bench.netbox.devices = whole[:10]
    half = bench.propose()
    assert (half.code, "lacks 10 of 20 nodes" in half.err) == (8, True), half.err
    assert bench.pulls == []
    bench.netbox.tokens = set()
    refused = bench.propose()
    assert (refused.code != 0, bench.pulls) == (True, []), refused.err
    (bench.spec / "fleet.yaml").write_text((bench.spec / "fleet.yaml").read_text() + "# edited\n")
    dirty = bench.propose()
    assert (dirty.code, "commit or stash" in dirty.err) == (64, True), dirty.err


def test_the_loop_keeps_it_while_it_leads(bench: Bench, tmp_path: Path) -> None:
    del bench.netbox.devices[4]
    fleet = load_spec(bench.spec, directory=str(bench.spec), origin=describe(bench.spec))
    told: list[str] = []
    ledger = SqlLedger(tmp_path / "ledger.sqlite", fleet="test")
    tokens = {"netbox": TOKEN, "forge": server.TOKEN if bench.kind is ForgeKind.GITHUB else gitlab.TOKEN}
    secrets = SimpleNamespace(resolve=lambda name, *_, **__: Secret(tokens[name]))
    workspace: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: b.NOW), secrets=secrets)

    def tell(event: Any) -> None:
        told.append(event.message)

    proposer = InventoryProposer(workspace, ledger, tell, ProposerOptions("me", 1, False))

    def after(seconds: float, fleet: Fleet = fleet) -> None:
        async def one_pass() -> None:
            seen: Any = SimpleNamespace(started_at=b.NOW + timedelta(seconds=seconds))
            plan: Any = None
            proposer.pass_ended(fleet, plan, seen)
            if proposer._trying is not None:
                await proposer._trying

        asyncio.run(one_pass())

    after(0)
    assert (bench.pulls, bench.netbox.asked, told) == ([], [], []), "another process leads"
    ledger.acquire("test", "me", 7200.0, b.NOW)
    after(4000)
    [(_, text)] = bench.pulls
    assert "gpu-05" in text
    asked = len(bench.netbox.asked)
    after(4600)
    assert len(bench.netbox.asked) == asked, "the inventory is read once an hour"
    bench.netbox.devices[4]["name"] = "GPU_06"
    bench.netbox.devices.insert(4, device(5, "gpu-05", "10.0.0.5", "10.0.1.5", "r1"))
    after(8000)
    assert [state for state, _ in bench.pulls] == ["closed"], "no step is left"
    left = [one for one in told if one.startswith("the inventory leaves gpu-06 to you: the inventory lacks this name")]
    del bench.netbox.devices[4]
    after(12000)
    assert len(left) == len([one for one in told if "leaves gpu-06" in one]) == 1, "it is told without a step, and once"
    bench.netbox.devices = []
    after(16000)
    after(20000)
    refused = [
        one for one in told if one.startswith("the inventory is not proposed: netbox answers with no node at all")
    ]
    assert len(refused) == 1, told
    assert bench.pulls[-1][0] in ("open", "opened"), "an empty answer closes nothing"
    assert [entry.event for _, entry in ledger.journal(None, 50)].count("propose") == 3
    ledger.close()
