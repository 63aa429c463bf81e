"""Which BMCs may be given another password now: one of a pool, and none that is, or may be, at work."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.model import desired as d
from reconciler.model.observed import BmcTask, Observation, Taint
from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.node.bmc_password import ACTION, passwords_to_rotate
from reconciler.planner.node.kept_plans import KeptPlans
from tests import builders as b

DAY = timedelta(days=1)
AFTER_S = 30 * 86400.0


def fleet_of(*nodes: d.Desired, after_s: float | None = AFTER_S) -> d.Fleet:
    settings = replace(b.SETTINGS, rotate_after_s=after_s)
    return d.Fleet(settings, d.SpecSource("spec", "c0ffee"), {node.node: node for node in nodes}, "digest")


def tried(*ended: tuple[str, timedelta], action: str = ACTION) -> NodeRecord:
    """A node with attempts that ended so, so long ago."""
    return NodeRecord("", attempts=tuple(Attempt(action, "", "why", b.NOW - ago, how) for how, ago in ended))


def chosen(record: NodeRecord | None = None, after_s: float | None = AFTER_S, **node: Any) -> bool:
    """Tell whether the password of a fleet of one node is to be changed. `seen`: what differs of what it shows."""
    seen = b.observed("n0", **node.pop("seen", {}))
    fleet = fleet_of(b.node("n0", **node), after_s=after_s)
    return passwords_to_rotate(fleet, {"n0": seen}, {} if record is None else {"n0": record}, b.NOW) == {"n0"}


TASK = BmcTask("/redfish/v1/TaskService/Tasks/1", "Running", done=False, ok=None, percent=1, messages=())


@pytest.mark.parametrize(
    ("known", "due"),
    [
        ({}, True),  # it was never changed
        ({"after_s": None}, False),
        ({"record": tried(("done", 29 * DAY))}, False),
        ({"record": tried(("done", 30 * DAY))}, True),
        ({"record": tried(("done", 40 * DAY), ("started", DAY))}, True),
        ({"record": tried(("done", 40 * DAY), ("done", DAY))}, False),
        ({"record": tried(*[("permanent", DAY / 2)] * 2)}, True),
        ({"record": tried(*[("permanent", DAY / 2)] * 3)}, False),  # a person must look; tomorrow again
        ({"record": tried(*[("permanent", 2 * DAY)] * 3)}, True),
        ({"record": tried(("started", DAY), action="update_firmware")}, False),  # a flash that may go on
        ({"record": tried(("started", DAY), action="reimage")}, False),
        ({"record": tried(("started", DAY), action="power_cycle")}, False),
        ({"record": tried(("done", DAY), action="reimage")}, True),
        ({"seen": {"hot": b.silent("timeout")}}, False),
        ({"seen": {"hot": b.hot("n0", tasks=(TASK,))}}, False),
        ({"seen": {"member": b.member(taints=(Taint("medik8s.io/remediation", "x", "NoExecute"),))}}, False),
        ({"state": NodeState.QUARANTINED}, False),
    ],
)
def test_a_bmc_that_is_due_and_at_no_work(known: dict[str, Any], *, due: bool) -> None:
    assert chosen(**known) is due


def test_one_of_each_pool_and_what_was_begun_first() -> None:
    nodes = [b.node(f"n{at}", pool="ab"[at % 2]) for at in range(8)]
    fleet, seen = fleet_of(*nodes), {node.node: b.observed(node.node) for node in nodes}
    first = passwords_to_rotate(fleet, seen, {}, b.NOW)
    assert sorted(fleet.nodes[name].pool for name in first) == ["a", "b"]
    for name in seen:
        records = {name: tried(("transient", DAY / 24))}
        assert name in passwords_to_rotate(fleet, seen, records, b.NOW)
    days = [passwords_to_rotate(fleet, seen, {}, b.NOW + at * DAY) for at in range(40)]
    assert frozenset().union(*days) == seen.keys(), "one that can't be changed keeps no other for long"


def test_a_plan_that_is_kept_is_made_anew_when_it_is_the_next_one() -> None:
    """It holds whatever was read: neither node shows anything new."""
    nodes = [b.node(f"n{at}") for at in range(2)]
    fleet, kept = fleet_of(*nodes), KeptPlans()
    seen = {node.node: b.observed(node.node) for node in nodes}
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
    records = {node.node: b.record(node, seen[node.node]) for node in nodes}

    request = PlanRequest("p", b.CONTEXT.signatures)

    def planned() -> list[str]:
        plan = plan_fleet(fleet, observation, LedgerSnapshot(b.LEDGER, records), b.NOW, request, kept)
        return [name for name, one in plan.nodes.items() if ACTION in [action.name for action in one.actions]]

    [first] = planned()
    records[first] = replace(records[first], attempts=(Attempt(ACTION, "", "why", b.NOW, "done"),))
    [second] = planned()
    assert second != first
