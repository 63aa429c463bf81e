"""`reconciler cluster restore` over the wire: SSH to three servers, whose K3s the lab plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.app.ports import FleetRequest
from reconciler.app.workspace import Workspace
from reconciler.lab.process import lab_process
from reconciler.model.k3s import BINARY
from tests.cli.shell import Done, LabDirectory, reconciler, running_lab
from tests.converge.k3s_world import spec

pytestmark = pytest.mark.wire
SERVERS = ("gpu-0001", "gpu-0002", "gpu-0003")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    """A K3s cluster of three servers, as the spec has it."""
    made = tmp_path_factory.mktemp("spec")
    with running_lab(made, "--scenario", "clean", nodes=4) as drafted:
        path = drafted.spec / "fleet.yaml"
        head, _, _ = path.read_text().partition("  type: kubernetes\n")
        k3s = spec(servers="train-1", endpoint="https://127.0.0.1:6443")
        path.write_text(
            head + "  type: k3s\n  k3s: " + json.dumps(json.loads(k3s.model_dump_json(exclude_defaults=True))) + "\n"
        )
        personas = drafted.spec / "personas.yaml"
        lines = personas.read_text().splitlines(keepends=True)
        personas.write_text("".join(line for line in lines if "kubelet:" not in line))  # K3s has its own
    where = tmp_path_factory.mktemp("lab")
    with lab_process(where, "--spec", str(made / "fleet-spec"), "--scenario", "clean", "--time-scale", "600"):
        yield LabDirectory(where, made / "fleet-spec")


def restore(lab: LabDirectory, *words: str | Path) -> Done:
    return reconciler("cluster", "restore", *words, "--spec", lab.spec, "--endpoints", lab.endpoints)


def snapshot_on(lab: LabDirectory, server: str) -> str:
    """Save etcd as a person would, by SSH."""

    async def save() -> str:
        workspace = Workspace(FleetRequest(spec=lab.spec, endpoints=lab.endpoints))
        fabric = workspace.fabric()
        host = fabric.host(workspace.fleet.nodes[server])
        assert host is not None
        try:
            return (await host.run((BINARY, "etcd-snapshot", "save", "--name", "good"), timeout=60)).stdout
        finally:
            await fabric.close()

    return asyncio.run(save()).split()[1]


def test_from_the_question_to_servers_that_serve(lab: LabDirectory) -> None:
    assert lab.run("apply", "--plan", lab.plan(), "--yes").code == 0
    name = snapshot_on(lab, "gpu-0002")
    for words, code, told in [
        (("other", "--snapshot", name), 64, "has the cluster 'main', and not 'other'"),
        (("main", "--snapshot", "gone"), 64, "is on none of gpu-0001, gpu-0002, gpu-0003"),
        (("main", "--snapshot", name), 64, "off a terminal, this needs --confirm 'restore main'"),
        (("main", "--snapshot", name, "--confirm", "restore mine"), 64, "is not 'restore main'"),
    ]:
        refused = restore(lab, *words)
        assert (refused.code, told in refused.err) == (code, True), refused.err
    done = restore(lab, "main", "--snapshot", name, "--confirm", "restore main", "--wait", "2h")
    assert "gpu-0002 serves" in done.err, done.out + done.err
    assert "gpu-0001: its old datastore is kept at /var/lib/rancher/k3s/server/db-before-" in done.err
    # Nobody has the key of this spec's image here, so no node is admitted again: they are members, and wait marked.
    assert all(f"{name} join: done, a Ready member" in done.err for name in SERVERS if name != "gpu-0002")
    assert "no trusted key 'release'" in done.out
    nodes = lab.state()["cluster"]["nodes"]
    assert {name: nodes[name]["ready"] for name in SERVERS} == dict.fromkeys(SERVERS, "True")


def test_the_cluster_is_taken_away_by_consent_alone(lab: LabDirectory) -> None:
    """After the test above, as nothing is left of it then."""

    def teardown(*words: str) -> Done:
        return reconciler("cluster", "teardown", "main", *words, "--spec", lab.spec, "--endpoints", lab.endpoints)

    refused = teardown()
    assert (refused.code, "needs --confirm 'tear down main'" in refused.err) == (64, True), refused.err
    assert teardown("--confirm", "restore main").code == 64
    done = teardown("--confirm", "tear down main")
    assert (done.code, done.out) == (0, "main is gone from 4 nodes; take it out of the spec\n"), done.err
    assert done.err.splitlines()[-4:] == [f"taking K3s from gpu-000{n}" for n in (4, 3, 2, 1)]
