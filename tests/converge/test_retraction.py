"""Reasons in the ledger that keep the mark of a node whose signal was retracted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.retraction import IsolatedNode, why_it_stays
from reconciler.model.records import Attempt, Hold, NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.planner.node.holds import by_subject
from tests import builders as b

LOST = "health.gpu_missing"


@pytest.mark.parametrize(
    ("record", "state", "drained", "why"),
    [
        ({}, NodeState.ACTIVE, False, ""),
        ({"silent_since": {LOST: b.NOW, "ssh": b.NOW}}, NodeState.ACTIVE, False, ""),
        ({"silent_since": {"health.leak after reimage at noon": b.NOW}}, NodeState.ACTIVE, False, "health.leak"),
        ({}, NodeState.QUARANTINED, False, "quarantined"),
        ({"malformed": "attempts"}, NodeState.ACTIVE, False, "can't be read"),
        ({"fleet": "other"}, NodeState.ACTIVE, False, "another fleet"),
        ({"holds": (Hold(1, "n1", "mine", "ops", b.NOW),)}, NodeState.ACTIVE, False, "held by ops"),
        ({}, NodeState.ACTIVE, True, "its gate brings it back"),
    ],
)
def test_what_keeps_a_mark(record: dict[str, Any], state: NodeState, drained: bool, why: str) -> None:
    known = replace(NodeRecord("n1", attempts=(Attempt("mark", "", "isolated: " + LOST, b.NOW, "done"),)), **record)
    one = IsolatedNode("n1", (LOST,), b.our_mark(), drained)
    found = why_it_stays(one, b.node("n1", state=state), known, by_subject((), ()), {LOST}, b.NOW)
    assert why in found
    assert bool(found) is bool(why)
