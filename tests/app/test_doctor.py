"""What doctor counts as an answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from reconciler.app.doctor import _reachability
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
