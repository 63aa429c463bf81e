"""A node that another ledger has marked, over the wire: left alone, taken over by command, tested and brought back."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, write_mark
from tests.cli.shell import LabDirectory, command, reconciler, running_lab

pytestmark = pytest.mark.wire

NODE = "gpu-0001"
THEIRS = Mark("another-ledger", "plan-9", "image.version", "2026-11-01T00:00:00+00:00", cordoned=True)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("adopt"), "--scenario", "clean", nodes=1) as found:
        found.respec("fleet.yaml", "25%", "100%")
        found.respec("fleet.yaml", "50%", "100%")
        yield found


def patch(lab: LabDirectory, change: dict[str, Any]) -> None:
    config = f"--kubeconfig={lab.path / 'kubeconfig'}"
    words = ["kubectl", config, "patch", f"nodes/{NODE}", "--type=merge", f"--patch={json.dumps(change)}"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def node(lab: LabDirectory) -> dict[str, Any]:
    found: dict[str, Any] = lab.state()["cluster"]["nodes"][NODE]
    return found


def adopt(lab: LabDirectory, *words: str) -> list[str | Path]:
    return ["ledger", "adopt", NODE, *words, "--spec", lab.spec, "--endpoints", lab.endpoints]


def test_a_node_of_another_ledger_is_taken_over_on_command_alone(lab: LabDirectory) -> None:
    taints = [{"key": MARK_TAINT, "effect": "NoSchedule"}]
    annotations = {OWNER_ANNOTATION: write_mark(THEIRS)}
    patch(lab, {"metadata": {"annotations": annotations}, "spec": {"taints": taints, "unschedulable": True}})
    plan = lab.plan()
    blocked = json.loads(plan.read_text())["nodes"][NODE]["blocked"]
    assert blocked["code"] == "foreign_mark"
    assert f"`reconciler ledger adopt {NODE}` takes the node over" in blocked["detail"]
    assert reconciler(*adopt(lab, "-o", "json")).code == 64, "nobody was asked, and nobody said yes"
    assert answered(adopt(lab), b"n\n") == 130
    assert read(lab)["ledger"] == THEIRS.ledger
    done = reconciler(*adopt(lab, "--yes", "-o", "json"))
    assert done.code == 0, done.err
    [row] = done.json
    assert (row["node"], row["outcome"], row["marked by ledger"]) == (NODE, "adopted", "another-ledger")
    info = reconciler("ledger", "info", "--endpoints", lab.endpoints, "-o", "json").json
    assert (read(lab)["ledger"], read(lab)["cordoned"]) == (info["id"], True)
    assert node(lab)["unschedulable"], "it stays out of service"
    again = reconciler(*adopt(lab, "--yes", "-o", "json"))
    assert (again.code, again.json[0]["outcome"]) == (7, "it carries our own mark already")
    history = reconciler("audit", "list", "--node", NODE, "--endpoints", lab.endpoints).out
    assert "from ledger another-ledger" in history
    done = lab.apply(lab.plan())
    assert done.code == 0, done.out + done.err
    assert not node(lab)["unschedulable"]
    assert MARK_TAINT not in [taint["key"] for taint in node(lab)["taints"]]


def read(lab: LabDirectory) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node(lab)["annotations"][OWNER_ANNOTATION])
    return found


def answered(words: list[str | Path], answer: bytes) -> int:
    """Exit code of a command on a terminal at which somebody types this."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(command(*words), stdin=theirs, stdout=theirs, stderr=theirs)
        os.write(ours, answer)
        return process.wait(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
