"""What the journal tells of nodes that are in service again, and that no pass saw out of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.health.ladder import REMEDIATION
from reconciler.model.notices import NoticeEvent
from reconciler.model.observed import Xid
from reconciler.model.plan import BlockCode, Blocked, NodePlan
from reconciler.model.records import ISOLATED, Attempt
from reconciler.notify.found import Notice, _judge, _missed, _until_back
from tests import builders as b

NODE = cast("NodePlan", SimpleNamespace(node="n1", pool="train"))
MINUTE = timedelta(minutes=1)


def attempt(action: str, at: float, cause: str = "") -> Attempt:
    begun: datetime = b.NOW + at * MINUTE
    values: dict[str, Any] = {"action": action, "cause": cause, "at": begun, "ended_at": begun + MINUTE}
    return Attempt(**{"target": "", "outcome": "done", "detail": "", **values})


OUTAGE = (
    attempt("mark", 0, ISOLATED + "health.xid_79"),
    attempt("soft_restart", 1, REMEDIATION),
    attempt("run_gate", 2),
    attempt("admit", 30),
)


@pytest.mark.parametrize("since", [-1, 1.5, 10, 30.5])
def test_an_outage_that_ended_since_is_told_from_its_beginning_whatever_passes_saw_amid_its_gate(since: float) -> None:
    found = _missed(NODE, OUTAGE, b.NOW + since * MINUTE)
    assert found is not None
    assert found.reason == "is out of service for health.xid_79"
    assert found.detail == "Treated by soft_restart"
    assert found.begun == b.NOW


@pytest.mark.parametrize("since", [-1, 1.5, 10])
def test_the_outage_of_a_spare_ends_as_it_is_a_spare_again(since: float) -> None:
    outage = (attempt("mark", 0, ISOLATED + "health.xid_79"), attempt("reserve", 12))
    found = _missed(NODE, outage, b.NOW + since * MINUTE)
    assert found is not None
    assert found.reason == "is out of service for health.xid_79"
    assert _missed(NODE, outage, b.NOW + 14 * MINUTE) is None


def test_an_outage_that_ended_before_is_not_told_again() -> None:
    assert _missed(NODE, OUTAGE, b.NOW + 31 * MINUTE) is None
    other = (*OUTAGE, attempt("mark", 40, ISOLATED + "health.leak"), attempt("admit", 50))
    found = _missed(NODE, other, b.NOW + 45 * MINUTE)
    assert found is not None
    assert (found.reason, found.detail) == ("is out of service for health.leak", "")


def test_an_outage_that_ended_while_a_pass_was_made_is_told_as_the_pass_that_comes_next_sees_nothing_of_it() -> None:
    """The pass saw the node out of service, and nobody could judge it; its admission came before people were told."""
    assert _until_back(OUTAGE, b.NOW + 20 * MINUTE) == OUTAGE
    assert not _until_back(OUTAGE, b.NOW + 31 * MINUTE), "it was told of then"
    assert not _until_back(OUTAGE[:-1], b.NOW), "its gate is not over"
    assert not _until_back((), b.NOW)


@pytest.mark.parametrize("then", [attempt("mark", 40, ISOLATED + "health.leak"), attempt("drain", 40)])
def test_an_outage_that_ended_is_told_though_the_next_has_begun_and_nobody_can_judge_it(then: Attempt) -> None:
    """Between two passes: the second may come to nothing, and then nobody would be told of either."""
    known = _until_back((*OUTAGE, then), b.NOW + 20 * MINUTE)
    assert known == OUTAGE
    found = _missed(NODE, known, b.NOW + 20 * MINUTE)
    assert found is not None
    assert found.reason == "is out of service for health.xid_79"


@pytest.mark.parametrize(
    ("code", "event", "says"),
    [
        (BlockCode.HELD, NoticeEvent.REPAIR, "is ill and still in service (held): health.xid_79"),
        (BlockCode.BUDGET, NoticeEvent.ISOLATED, "is ill and still in service (waits for budget): health.xid_79"),
        (None, None, ""),
    ],
)
def test_a_node_that_is_ill_and_may_not_be_taken_out_is_told(
    code: BlockCode | None, event: NoticeEvent | None, says: str
) -> None:
    node, seen = b.node(), b.observed(host=b.facts(xids=(Xid(79, "0000:03:00", 1),)))
    plan = b.planner().plan(node, seen, b.record(node, seen))
    assert plan.illness
    blocked = None if code is None else Blocked(code, "a maintenance of ann's")
    told = _judge(replace(plan, blocked=blocked, isolation=(), in_service=True), seen)
    if event is None:
        assert told is None, "it is being taken out"
    else:
        assert isinstance(told, Notice)
        assert (told.event, told.reason) == (event, says)
        assert "a maintenance of ann's" in told.detail
    well = b.planner().plan(node, b.observed(), b.record(node, b.observed()))
    assert _judge(replace(well, blocked=blocked), b.observed()) is False


@pytest.mark.parametrize("set_by", [timedelta(minutes=-37), timedelta(), timedelta(hours=5)])
def test_an_outage_between_two_passes_is_told_once_though_the_clock_was_set(set_by: timedelta) -> None:
    """The last pass was at 0 by the clock of then; the outage is at 1 to 31 minutes, and the one before was over."""
    earlier = tuple(
        replace(one, at=one.at - timedelta(hours=1), ended_at=(one.ended_at or one.at) - timedelta(hours=1),
                since_set=set_by, ended_since_set=set_by)
        for one in OUTAGE
    )  # fmt: skip
    later = tuple(replace(one, at=one.at + set_by, ended_at=(one.ended_at or one.at) + set_by) for one in OUTAGE)
    last_pass = b.NOW - MINUTE + set_by  # by the clock as it goes now
    assert _missed(NODE, (*earlier, *later), last_pass) == _missed(NODE, later, last_pass) is not None
    assert _missed(NODE, earlier, last_pass) is None
    assert _until_back((*earlier, *later), last_pass) == (*earlier, *later)
