"""What came after a mark is told by the order of the ledger: the clock may have been set back in between."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from reconciler.converge.cancelled_repair import is_uncordoned
from reconciler.model.records import OWNER_ANNOTATION, Attempt, Mark, NodeRecord, write_mark
from reconciler.planner.node.record import is_drained
from tests import builders as b

MINUTE = timedelta(minutes=1)
AT = b.NOW
MARK = Mark("ours", "plan", "isolated: health.xid_79", AT.isoformat(timespec="seconds"), cordoned=True)
SET = Attempt("mark", "", "x", AT, "done", ended_at=AT + timedelta(seconds=2))
STEPS = pytest.mark.parametrize("step", [-37 * MINUTE, timedelta(), 37 * MINUTE], ids=["back", "none", "forward"])


def drain(at: datetime, outcome: str = "done") -> Attempt:
    return Attempt("drain", "", "x", at, outcome, ended_at=at + MINUTE)


@STEPS
def test_a_node_that_was_drained_under_its_mark_is_not_drained_again(step: timedelta) -> None:
    later, earlier = AT + MINUTE + step, AT - MINUTE - step
    assert is_drained(NodeRecord("n", attempts=(SET, drain(later))), MARK)
    assert not is_drained(NodeRecord("n", attempts=(drain(earlier), SET)), MARK)
    assert not is_drained(NodeRecord("n", attempts=(SET, drain(later, "transient"))), MARK)


def test_a_mark_that_no_attempt_on_record_has_set_goes_by_its_time() -> None:
    assert is_drained(NodeRecord("n", attempts=(drain(AT + MINUTE),)), MARK)
    assert not is_drained(NodeRecord("n", attempts=(drain(AT - MINUTE),)), MARK)


@STEPS
def test_a_hold_that_was_lifted_since_the_mark_lets_a_repair_go_on(step: timedelta) -> None:
    seen = b.observed(member=b.member(unschedulable=False, annotations={OWNER_ANNOTATION: write_mark(MARK)}))
    before = NodeRecord("n", attempts=(SET,), released_at=AT - MINUTE - step, after_release=1)
    since = NodeRecord("n", attempts=(SET,), released_at=AT + MINUTE + step, after_release=0)
    assert is_uncordoned(seen, before, "ours"), "a person took the node back"
    assert not is_uncordoned(seen, since, "ours"), "a person lets the repair go on"
