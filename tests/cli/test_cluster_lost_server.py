"""`reconciler cluster remove-server` over the wire: the question, the consent, and what the cluster shows after it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from reconciler.app.ports import FleetRequest
from reconciler.app.workspace import Workspace
from tests.cli.shell import Done, LabDirectory, reconciler
from tests.cli.test_cluster import lab as lab

pytestmark = pytest.mark.wire
LOST = "gpu-0003"


def remove(lab: LabDirectory, *words: str | Path) -> Done:
    return reconciler("cluster", "remove-server", "main", *words, "--spec", lab.spec, "--endpoints", lab.endpoints)


def test_a_server_that_answers_nobody_leaves_by_consent_alone(lab: LabDirectory) -> None:
    assert lab.run("apply", "--plan", lab.plan(), "--yes").code == 0
    switch_off(lab)
    until_not_ready(lab)
    active = remove(lab, LOST, "--confirm", f"remove {LOST}")
    assert (active.code, "is active: set its state to quarantined first" in active.err) == (8, True), active.err
    assert "pools/train-1.yaml:" in active.err, "and where"
    lab.respec("pools/train-1.yaml", f"name: {LOST}\n", f"name: {LOST}\n    state: quarantined\n")
    for words, code, told in [
        ((LOST,), 64, f"off a terminal, this needs --confirm 'remove {LOST}'"),
        ((LOST, "--confirm", "remove gpu-0001"), 64, f"is not 'remove {LOST}'"),
        (("gpu-0001", "--confirm", "remove gpu-0001"), 8, "gpu-0001 is active"),
        (("gpu-9", "--confirm", "remove gpu-9"), 64, "the cluster has no server gpu-9; it has gpu-0001, gpu-0002, gpu"),
    ]:
        refused = remove(lab, *words)
        assert (refused.code, told in refused.err) == (code, True), refused.err
    assert LOST in lab.state()["cluster"]["nodes"]
    done = remove(lab, LOST, "--confirm", f"remove {LOST}")
    assert (done.code, done.out) == (0, f"{LOST} is out of main\n"), done.err
    assert f"{LOST} leaves main for good, and its member leaves etcd; its BMC says that it is off" in done.err
    assert LOST not in lab.state()["cluster"]["nodes"]
    again = remove(lab, LOST, "--confirm", f"remove {LOST}")
    assert (again.code, "it is out" in again.err) == (0, True), again.err


def switch_off(lab: LabDirectory) -> None:
    async def work() -> None:
        workspace = Workspace(FleetRequest(spec=lab.spec, endpoints=lab.endpoints))
        fabric = workspace.fabric()
        host = fabric.host(workspace.fleet.nodes[LOST])
        assert host is not None
        try:
            await host.run(("systemctl", "poweroff"), timeout=60)
        finally:
            await fabric.close()

    asyncio.run(work())


def until_not_ready(lab: LabDirectory, seconds: float = 60.0) -> None:
    """Wait until the cluster has noticed."""
    ends = time.monotonic() + seconds
    while lab.state()["cluster"]["nodes"][LOST]["ready"] == "True":
        assert time.monotonic() < ends
        time.sleep(0.2)
