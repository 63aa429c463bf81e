"""What doctor counts as an answer."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.doctor import _helm, _reachability
from reconciler.model.observed import Observation
from reconciler.model.vocab import Power
from tests import builders as b


def test_a_machine_that_is_off_does_not_answer_over_ssh_and_is_no_problem() -> None:
    """It was counted among those that answer, and so were sources that nobody had asked."""
    off = b.observed("n2", hot=b.hot("n2", power=Power.OFF), host=b.silent("explained", "powered off"))
    nodes = {"n1": b.observed("n1"), "n2": off}
    nodes = {name: replace(node, member=b.silent("not_asked")) for name, node in nodes.items()}
    workspace: Any = SimpleNamespace(selection=(tuple(nodes), ()))
    found = list(_reachability(workspace, Observation("1.0", "test", "", b.NOW, b.NOW, nodes)))
    assert [(one.check, one.ok, one.detail) for one in found] == [
        ("reach redfish", True, "2 of 2 nodes answer"),
        ("reach ssh", True, "1 of 2 nodes answer; n2 (1): powered off"),
    ]


@pytest.mark.parametrize(
    ("prints", "ok", "said"),
    [
        ("echo v3.16.2+g13654a5", True, "v3.16.2+g13654a5"),
        ("echo v4.0.0+g99cd196", True, "v4.0.0+g99cd196"),
        ("echo v3.12.3+g3a31588", False, "v3.12.3+g3a31588"),
        ("echo 'Client: v2.17.0'", False, "unreadable version: 'Client: v2.17.0'"),
        ("exit 1", False, "not on the PATH"),
    ],
)
def test_helm_has_to_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, ok: bool, said: str
) -> None:
    program = tmp_path / "helm"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'version --short' ] || exit 2\n{prints}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = _helm()
    assert (found.check, found.ok, found.detail) == ("helm", ok, said)
    assert bool(found.remedy) is not ok
