"""A fleet's own rows of the table of signals, in the plan: whom a change makes ill, and what it can't do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.model import desired as d
from reconciler.model.errors import Position
from reconciler.model.observed import DimmErrors, Observation, Xid
from reconciler.model.plan import Goal, Plan
from reconciler.model.records import CHANGES, NodeRecord
from reconciler.model.signal_changes import SignalChange
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.signal_history import states, tally_states
from reconciler.render.spec_change import verdict
from tests import builders as b
from tests.planner.test_change import fleet, planned

CORRECTED = b.facts(dimm_errors=(DimmErrors("mc0/dimm0", "DIMM_A1", 15, 0),), uptime_s=86_400.0)
SWAP = SignalChange("edac_ce", "they fail soon", first="drain", next="person", healed_by=("new_serial", "gate"))
ISOLATE = replace(SWAP, first="isolate")


def fleet_with(*rows: SignalChange, nodes: int = 1) -> d.Fleet:
    names = [f"n{at}" for at in range(nodes)]
    profile = b.profile(health=rows)
    return fleet(*[b.node(name, profile=profile, domains={"rack": name}) for name in names], health=rows)


def test_a_change_of_a_row_tells_whom_it_makes_ill_and_well() -> None:
    without, with_row = fleet_with(), fleet_with(SWAP)
    seen = {"n0": b.observed("n0", host=replace(CORRECTED, serial=b.facts("n0").serial))}
    known = {"n0": b.record(without.nodes["n0"], seen["n0"])}
    _, change = planned(without, with_row, seen, known)
    assert [item.path for item in change.caused] == ["health.edac_ce"]
    assert change.settings == ("health",)
    assert "1 node ill by it" in verdict(change)
    _, back = planned(with_row, without, seen, known)
    assert [item.path for item in back.removed] == ["health.edac_ce"]
    assert "1 node no longer ill by it" in verdict(back)


def made_after(age: timedelta, fleet: d.Fleet, host: Any) -> Plan:
    """The plan of nodes that all show the same; the ledger has known this spec for a while."""
    seen = {name: b.observed(name, host=replace(host, serial=b.facts(name).serial)) for name in fleet.nodes}
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
    records = {name: b.record(node, seen[name]) for name, node in fleet.nodes.items()}
    changes = CHANGES + fleet.settings.fleet
    records[changes] = NodeRecord(
        changes, silent_since=dict.fromkeys(states(tally_states(fleet, observation)), b.NOW - age)
    )
    snapshot = LedgerSnapshot(b.LEDGER, records)
    return plan_fleet(fleet, observation, snapshot, b.NOW, PlanRequest("p", b.CONTEXT.signatures))


@pytest.mark.parametrize(("age", "isolated"), [(timedelta(minutes=5), 0), (timedelta(days=2), 3)])
def test_a_row_that_isolates_keeps_within_the_caps_and_never_takes_many_at_once(age: timedelta, isolated: int) -> None:
    """Many nodes that fall ill by a row of five minutes ago are one incident: a typo must not empty a pool."""
    made = made_after(age, fleet_with(ISOLATE, nodes=30), CORRECTED)
    assert sum(bool(plan.isolation) for plan in made.nodes.values()) == isolated
    assert [one.signal for one in made.incidents] == ["health.edac_ce"]


def test_a_plan_says_which_hard_evidence_is_weakened_and_why() -> None:
    weak = SignalChange("xid_79", "a driver bug", first="drain")
    ignored = d.IgnoreRule("health.condition_*", "on trial", pools=("pool",))
    base = fleet_with(weak, SWAP)
    said = replace(
        base, settings=replace(base.settings, ignore=(ignored,)), places={"health.xid_79": Position("fleet.yaml", 9, 5)}
    )
    made = made_after(timedelta(days=2), said, b.facts(xids=(Xid(79, "0000:03:00", 1),)))
    assert made.notes == (
        "signal xid_79 isolates by the packaged table, and less here (fleet.yaml:9:5): first is drain, not isolate; "
        "because a driver bug",
        "nobody is isolated for condition_*, which the spec ignores on pool pool: on trial",
    )
    assert not made.nodes["n0"].isolation
    assert made.nodes["n0"].goal is Goal.IN_SERVICE, "it is drained and treated as the budget allows"
    assert any(action.name == "drain" for action in made.nodes["n0"].actions)
    assert made_after(timedelta(days=2), fleet_with(), b.facts()).notes == ()
    deaf = b.profile(remediation=replace(b.REMEDIATION, ignore_xids=(13, 79)))
    base = fleet_with()
    told = made_after(
        timedelta(days=2), replace(base, nodes={n: replace(o, profile=deaf) for n, o in base.nodes.items()}), b.facts()
    ).notes
    assert told == ("nobody is isolated for xid_79, which ignoreXids of a RemediationPolicy names",)
