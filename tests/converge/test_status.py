"""The status of a fleet that is published after a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from reconciler.converge.events import ActionFinished, ActionStarted, ActionStep, Event
from reconciler.converge.status import fleet_status, measured, service_statuses
from reconciler.drivers.status import PrometheusMetrics
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.notices import ChannelStatus
from reconciler.model.observed import Observation, Observed
from reconciler.model.outcome import Declined, Done
from reconciler.model.plan import BlockCode, Blocked, BudgetLine, Goal, NodePlan
from reconciler.model.status import FleetStatus, LoopStatus, NodeStatus
from reconciler.model.vocab import Concern, NewsSource, Source, UnknownReason
from tests import builders as b
from tests.render.test_plan import DRAIN, HOUR, node, plan, rollout

START = b.NOW - timedelta(minutes=1)


def observation(*seen: Observed, at: Any = b.NOW) -> Observation:
    return Observation("1.0", "f", "c", at - timedelta(minutes=1), at, {one.node: one for one in seen})


def status(*nodes: NodePlan, before: FleetStatus | None = None, at: Any = b.NOW, **more: Any) -> FleetStatus:
    seen = observation(*(b.observed(one.node) for one in nodes), at=at)
    return fleet_status(plan(*nodes), seen, before, **more)


def test_what_is_insecure_is_counted_and_served() -> None:
    """As plans and reports tell of it: what the spec lets be unverified, and logins that vendors ship."""
    told = replace(plan(node("a1")), insecure=("SSH host keys are not verified (fleet.yaml:9)", "2 of 2 BMCs take it"))
    found = fleet_status(told, observation(b.observed("a1")))
    assert (found.insecure, status(node("a1")).insecure) == (2, 0)
    metrics = PrometheusMetrics()
    metrics.passed(found)
    assert b"\nreconciler_insecure 2.0\n" in metrics.page("")[0]


def drift(first_seen: Any, kind: DriftClass = DriftClass.DRIFTED) -> DriftItem:
    return DriftItem("a1", Concern.BIOS, "bios.X", kind, "1", "0", first_seen=first_seen)


def blocked(code: BlockCode) -> dict[str, Any]:
    return {"blocked": Blocked(code, "x")}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"actions": ()}, NodeStatus.CONVERGED),
        ({}, NodeStatus.PLANNED),
        ({"wave": 2}, NodeStatus.WAITING),
        ({"actions": (), "postponed": ("image.version",)}, NodeStatus.WAITING),
        (blocked(BlockCode.BUDGET), NodeStatus.WAITING),
        (blocked(BlockCode.WINDOW), NodeStatus.WAITING),
        (blocked(BlockCode.BACKOFF), NodeStatus.WAITING),
        (blocked(BlockCode.ROLLOUT), NodeStatus.WAITING),
        (blocked(BlockCode.UNDER_WAY), NodeStatus.WAITING),
        (blocked(BlockCode.HALTED), NodeStatus.BLOCKED),
        (blocked(BlockCode.IDENTITY), NodeStatus.BLOCKED),
        (blocked(BlockCode.GATE), NodeStatus.BLOCKED),
        (blocked(BlockCode.ATTEMPTS), NodeStatus.BLOCKED),
        (blocked(BlockCode.FOREIGN_MARK), NodeStatus.BLOCKED),
        ({"actions": (), "goal": Goal.ISOLATED}, NodeStatus.BLOCKED),
        (blocked(BlockCode.HELD), NodeStatus.HELD),
        (blocked(BlockCode.STOPPED), NodeStatus.HELD),
        (blocked(BlockCode.FOREIGN_CORDON), NodeStatus.HELD),
        (blocked(BlockCode.QUARANTINED), NodeStatus.SET_ASIDE),
        (blocked(BlockCode.RETIRED), NodeStatus.SET_ASIDE),
        (blocked(BlockCode.UNKNOWN), NodeStatus.UNKNOWN),
        ({"actions": (), "incomplete": ("ssh: timeout",)}, NodeStatus.UNKNOWN),
    ],
)
def test_the_status_of_a_node(changes: dict[str, Any], expected: NodeStatus) -> None:
    assert status(node("a1", **changes)).nodes["a1"].status is expected


def test_what_is_under_way_is_acting_whatever_the_plan_says() -> None:
    found = status(node("a1", **blocked(BlockCode.BUDGET)), acting={"a1"})
    assert found.nodes["a1"].status is NodeStatus.ACTING


def test_nothing_acts_where_nothing_runs() -> None:
    """Of fifteen nodes that a plan would change none is acting before a run begins."""
    nodes = [node(f"a{at}") for at in range(15)]
    assert {one.status for one in service_statuses({one.node: one for one in nodes}).values()} == {NodeStatus.PLANNED}
    assert {one.status for one in status(*nodes).nodes.values()} == {NodeStatus.PLANNED}


def test_the_status_of_an_ill_node_says_what_took_it_out() -> None:
    sign = DriftItem("a1", Concern.HEALTH, "health.xid_79", DriftClass.DRIFTED, "absent", "GPU 3 fell off the bus")
    for acting in ((), ("a1",)):
        found = service_statuses({"a1": node("a1", drift=(sign,), in_service=False)}, acting=acting)["a1"]
        assert (found.code, found.why) == ("ill", "ill: GPU 3 fell off the bus")
    assert service_statuses({"a1": node("a1", drift=(sign,))})["a1"].code == "", "it serves"


def test_time_in_a_state_goes_on_from_pass_to_pass() -> None:
    first = status(node("a1", **blocked(BlockCode.GATE)))
    second = status(node("a1", **blocked(BlockCode.GATE)), before=first, at=b.NOW + HOUR)
    assert second.nodes["a1"].since == b.NOW
    third = status(node("a1", actions=()), before=second, at=b.NOW + 2 * HOUR)
    assert third.nodes["a1"].since == b.NOW + 2 * HOUR


def test_after_a_restart_the_ledger_knows_since_when() -> None:
    old = b.NOW - 5 * HOUR
    found = status(node("a1", drift=(drift(b.NOW - HOUR), drift(old), drift(b.NOW - 9 * HOUR, DriftClass.IGNORED))))
    assert found.nodes["a1"].since == old
    assert status(node("a1", actions=(), drift=(drift(old),))).nodes["a1"].since == b.NOW, "converged, since now"


def test_how_long_a_node_is_out() -> None:
    marked = b.NOW - 3 * HOUR
    out = node("a1", in_service=False)
    with_mark = b.observed("a1", member=b.member("a1", mark=b.our_mark(at=marked.isoformat())))
    first = fleet_status(plan(out), observation(with_mark))
    assert first.nodes["a1"].out_since == marked
    assert status(out).nodes["a1"].out_since == b.NOW, "nobody wrote it down"
    second = fleet_status(plan(out), observation(b.observed("a1"), at=b.NOW + HOUR), first)
    assert second.nodes["a1"].out_since == marked
    for in_service in (True, None):
        assert status(node("a1", in_service=in_service), before=first).nodes["a1"].out_since is None


@pytest.mark.parametrize("at", ["yesterday", "", "2026-11-21T12:00:00"])
def test_a_mark_with_another_time_is_no_time(at: str) -> None:
    seen = b.observed("a1", member=b.member("a1", mark=b.our_mark(at=at)))
    found = fleet_status(plan(node("a1", in_service=False)), observation(seen))
    assert found.nodes["a1"].out_since == b.NOW


def test_what_differs_and_who_is_silent() -> None:
    lines = (BudgetLine("fleet", 1, 2, ("a1",), "1"),)
    nodes = (node("a1", drift=(drift(None), drift(None), drift(None, DriftClass.UNKNOWN))), node("a2"))
    seen = observation(
        b.observed("a1", host=b.silent("timeout"), member=b.silent("not_asked")),
        b.observed("a2", host=b.silent("timeout"), member=b.silent("not_asked")),
    )
    halted = rollout(halted="a1 failed")
    found = fleet_status(plan(*nodes, budget=lines, rollouts=(halted, rollout(pool="b"))), seen)
    assert found.drift == {(Concern.BIOS, DriftClass.DRIFTED): 2, (Concern.BIOS, DriftClass.UNKNOWN): 1}
    assert found.silent == {(Source.SSH, UnknownReason.TIMEOUT): 2}
    assert set(found.observed) == {Source.REDFISH}
    assert (found.budget, found.halted) == (lines, ("a",))


class Counted:
    """Implements ports.Metrics."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, str, float]] = []
        self.told: list[tuple[str, str, str]] = []

    def loop_status(self, status: LoopStatus) -> None: ...

    def passed(self, fleet: FleetStatus) -> None: ...

    def planned(self, made: int, kept: int, wrong: int) -> None: ...

    def acting(self, node: str, action: str, step: str) -> None:
        self.told.append((node, action, step))

    def acted(self, action: str, outcome: str, seconds: float) -> None:
        self.actions.append((action, outcome, seconds))

    def channels(self, channels: Mapping[str, ChannelStatus]) -> None: ...
    def deaf(self, source: NewsSource, since: datetime | None) -> None: ...


def test_actions_are_counted_on_their_way() -> None:
    metrics, told = Counted(), list[Event]()
    progress = measured(metrics, told.append)
    events = (
        ActionStarted("a1", DRAIN),
        ActionStep("a1", "drain", "3 pods left"),
        ActionFinished("a1", DRAIN, Done(), 5.0),
        ActionFinished("a2", DRAIN, Declined("budget", "x"), 0.0),
    )
    for event in events:
        progress(event)
    assert told == list(events)
    assert metrics.actions == [("drain", "done", 5.0), ("drain", "refused", 0.0)]
    under_way = [("a1", "drain", ""), ("a1", "drain", "3 pods left"), ("a1", "", ""), ("a2", "", "")]
    assert metrics.told == under_way
