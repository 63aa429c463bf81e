"""domain_incident_is_no_ladder: what a failure domain may cause treats no node once enough of it show it together.

And it hides nothing: a GPU's own fault stays its node's, however many nodes have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.app.drift_report import drift_report
from reconciler.health.signals import signals
from reconciler.health.table import Effect, health_table
from reconciler.model import desired as d
from reconciler.model.observed import KernelEvent, Link, Observation, Xid
from reconciler.model.plan import BlockCode, NodePlan, Plan, is_crashed
from reconciler.model.records import CHANGES, LASTS, SHARED, WAS_SHARED, NodeRecord
from reconciler.model.vocab import Disruption, KernelEventKind
from reconciler.notify.found import find
from reconciler.planner.fleet.domain_incidents import WITHIN, threshold
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.signal_history import signal_updates, states, tally_states
from reconciler.planner.node.conditions import TREATED
from reconciler.render import drift as drift_text
from reconciler.render import plan as plan_text
from reconciler.render.comment import as_markdown
from tests import builders as b

PROFILE = b.profile(
    inventory=replace(b.PROFILE.inventory, rdma_ports=1, rdma_rate_gbps=400),
    health=(),
)
UP, SLOW, DOWN = (Link("mlx5_0/1", True, 400.0, "infiniband"), Link("mlx5_0/1", True, 100.0, "infiniband"),
                  Link("mlx5_0/1", False, None, "infiniband"))  # fmt: skip
LOST = Xid(79, "0000:0A:00.0", 1)
# What a node shows, with what its domain may cause first, and what is a GPU's own after it.
OUTSIDE: Mapping[str, dict[str, Any]] = {
    "port_slow": {"links": (SLOW,)},
    "port_missing": {"links": (DOWN,)},
    "power_brake": {"gpus": tuple(b.gpu(i, cells=replace(b.CELLS, loaded=True, power_brake=True)) for i in range(2))},
    "nvlink_down": {"nvlinks_active": {0: 17, 1: 18}},
}
OWN: Mapping[str, dict[str, Any]] = {
    "xid_79": {"xids": (LOST,)},
    "ecc": {"gpus": (b.gpu(0, ecc_uncorrectable=1), b.gpu(1))},
    "row_remap_failed": {"gpus": (b.gpu(0, remap_failed=True), b.gpu(1))},
    "nic_failed": {"kernel_events": (KernelEvent(KernelEventKind.NIC_FAILED, "0000:0b:00.0", 1),)},
}


@dataclass(frozen=True)
class Node:
    """`age`: minutes since it began to show it. `out`: it is out of service already."""

    shows: str
    own: str = ""
    age: int = 0
    rack: str = "r1"


nodes = st.builds(
    Node, st.sampled_from(["", *OUTSIDE]), st.sampled_from(["", "", "", *OWN]), st.integers(0, 40),
    st.sampled_from(["r1", "r1", "r2"]),
)  # fmt: skip
fleets = st.lists(nodes, min_size=1, max_size=8).map(tuple)


FOR = 4  # minutes that a missing port has to last


def planned(shown: tuple[Node, ...], **more: NodeRecord) -> Plan:
    wanted, seen, records = {}, {}, {}
    for at, node in enumerate(shown):
        name = f"n{at:02}"
        wanted[name] = b.node(name, profile=PROFILE, domains={"rack": node.rack, "nvlink-domain": node.rack})
        facts: dict[str, Any] = {"links": (UP,)} | OUTSIDE.get(node.shows, {}) | OWN.get(node.own, {})
        seen[name] = b.observed(name, host=b.facts(name, **facts))
        since: dict[str, datetime] = {}
        if node.shows:
            since = {SHARED + f"health.{node.shows}": b.NOW - timedelta(minutes=node.age)}
            since |= {f"{LASTS}health.{node.shows}": b.NOW - timedelta(minutes=max(node.age, FOR))}  # it counts by now
        records[name] = more.get(name) or replace(b.record(wanted[name], seen[name]), silent_since=since)
    fleet = d.Fleet(replace(b.SETTINGS, budgets=(d.BudgetLimit("fleet", "100%"),)), d.SpecSource("spec"), wanted, "d")
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
    name = CHANGES + fleet.settings.fleet
    records[name] = NodeRecord(
        name, silent_since=dict.fromkeys(states(tally_states(fleet, observation)), b.NOW - timedelta(days=1))
    )
    snapshot = LedgerSnapshot(b.LEDGER, records)
    made = plan_fleet(fleet, observation, snapshot, b.NOW, PlanRequest("p", b.CONTEXT.signatures))
    assert not any(is_crashed(plan) for plan in made.nodes.values())
    return made


def treated(plan: NodePlan) -> bool:
    return any(action.name == "drain" or TREATED in action.achieves for action in plan.actions)


def shows(node: Node) -> bool:
    """Return whether it shows, of what its domain may cause, something: what its own fault replaced is not shown."""
    return bool(node.shows) and not (node.shows == "power_brake" and "gpus" in OWN.get(node.own, {}))


@given(fleets)
@example(tuple(Node("port_slow") for _ in range(3)))
@example(tuple(Node("port_slow", own="ecc") for _ in range(3)))
@example((Node("port_slow"), Node("port_missing"), Node("nvlink_down"), Node("port_slow", age=30)))
def test_domain_incident_is_no_ladder(shown: tuple[Node, ...]) -> None:
    made = planned(shown)
    groups = {"power_brake": "environment"}
    for rack in ("r1", "r2"):
        here = [(f"n{at:02}", node) for at, node in enumerate(shown) if node.rack == rack]
        for group in ("environment", "fabric"):
            told = [(n, x) for n, x in here if shows(x) and groups.get(x.shows, "fabric") == group]
            ages = [x.age for _, x in told]
            together = [[n for n, x in told if a - 10 <= x.age <= a] for a in ages]
            for names in together:
                if len(names) < threshold(len(here)):
                    continue
                for name in names:
                    node = dict(here)[name]
                    plan = made.nodes[name]
                    assert any(name in one.nodes and one.cause == group for one in made.incidents)
                    assert node.own or not treated(plan), "a node was treated for what its domain shows"


@given(fleets)
def test_an_incident_hides_no_fault_of_a_node_itself(shown: tuple[Node, ...]) -> None:
    made = planned(shown)
    for at, node in enumerate(shown):
        if not node.own:
            continue
        alone = planned((Node("", own=node.own),)).nodes["n00"]
        plan = made.nodes[f"n{at:02}"]
        assert health_table().rule_of(node.own).domains == ()
        assert any(item.path == f"health.{node.own}" for item in plan.illness)
        assert plan.blocked is None or plan.blocked.code is not BlockCode.DOMAIN
        if treated(alone):
            assert treated(plan) or plan.goal is not alone.goal, plan.situation
        if alone.isolation:
            told = plan.isolation or any(plan.node in one.nodes for one in made.incidents)
            assert told, "its own evidence isolates nobody and nobody is told"


@given(fleets)
def test_fewer_are_each_their_node_s_own(shown: tuple[Node, ...]) -> None:
    """Two of a rack are a coincidence; so are three whose trouble began at different times."""
    few = tuple(node for node in shown if node.rack == "r1")[:2]
    if few:
        assert not [one for one in planned(few).incidents if one.cause]
    spread = tuple(replace(node, shows="port_slow", own="", age=at * 20) for at, node in enumerate(shown[:6]))
    made = planned(spread)
    assert not [one for one in made.incidents if one.cause]
    assert all(treated(plan) for plan in made.nodes.values())


def test_what_was_ill_long_before_is_not_the_incident_s() -> None:
    made = planned((Node("port_slow", age=600), *(Node("port_slow") for _ in range(3))))
    assert [one.nodes for one in made.incidents] == [("n01", "n02", "n03")]
    assert treated(made.nodes["n00"])
    assert not any(treated(made.nodes[name]) for name in ("n01", "n02", "n03"))


def test_a_tenth_of_a_large_rack_is_needed() -> None:
    def rack(ill: int) -> Plan:
        return planned((*(Node("port_slow") for _ in range(ill)), *(Node("") for _ in range(40 - ill))))

    assert not rack(3).incidents
    assert len(rack(4).incidents) == 1


def test_a_node_that_shows_it_later_belongs_to_what_lasts() -> None:
    made = planned((*(Node("port_missing", age=60) for _ in range(3)), Node("port_slow", age=1)))
    assert made.incidents[0].nodes == ("n00", "n01", "n02", "n03")
    assert not any(treated(plan) for plan in made.nodes.values())
    assert made.incidents[0].signal == "health.port_missing, health.port_slow"


def test_what_isolates_is_cordoned_and_not_drained() -> None:
    made = planned(tuple(Node("port_missing") for _ in range(3)) + (Node(""),) * 13)
    ill = [made.nodes[f"n{at:02}"] for at in range(3)]
    assert all(plan.isolation == ("health.port_missing",) for plan in ill)
    assert all(plan.disruption is Disruption.NONE for plan in ill), "a cordon, and nothing that disrupts"
    assert all(plan.blocked is not None and plan.blocked.code is BlockCode.DOMAIN for plan in ill)


def test_a_person_who_has_looked_gives_a_node_back_its_ladder() -> None:
    since = b.NOW - timedelta(minutes=5)
    base = planned(tuple(Node("port_slow", age=5) for _ in range(4)))
    assert not any(treated(plan) for plan in base.nodes.values())
    wanted = b.node("n00", profile=PROFILE)
    record = replace(
        b.record(wanted, b.observed("n00", host=b.facts("n00"))),
        silent_since={SHARED + "health.port_slow": since}, released_at=b.NOW - timedelta(minutes=1),
    )  # fmt: skip
    made = planned(tuple(Node("port_slow", age=5) for _ in range(4)), n00=record)
    assert treated(made.nodes["n00"])
    assert [one.nodes for one in made.incidents] == [("n01", "n02", "n03")]


@pytest.mark.parametrize(("minutes", "lasts"), [(1, True), (9, True), (11, False)])
def test_the_last_nodes_of_a_rack_that_recovers_are_not_drained(minutes: int, lasts: bool) -> None:
    """The ledger keeps that others showed it until `minutes` ago."""
    begun = b.NOW - timedelta(hours=1)
    ill = {SHARED + "health.port_slow": begun}
    fleet, seen, records = _rack(3, ill, b.NOW - timedelta(minutes=minutes))
    keys = dict.fromkeys(records, ill)
    for name, key, new in signal_updates(fleet, seen, records, None, b.NOW - timedelta(minutes=minutes)):
        kept = dict(keys[name])
        if new:
            kept[key] = b.NOW - timedelta(minutes=minutes)
        else:
            kept.pop(key)
        keys[name] = kept
    assert all(any(key.startswith(WAS_SHARED) for key in keys[f"n{at:02}"]) for at in (1, 2))
    more = {name: replace(record, silent_since=keys[name]) for name, record in records.items()}
    made = planned((Node("port_slow"), Node(""), Node("")), **more)
    assert bool(made.incidents) is lasts
    assert treated(made.nodes["n00"]) is not lasts
    over = [key for _, key, new in signal_updates(fleet, seen, more, None, b.NOW + WITHIN) if not new]
    assert sum(key.startswith(WAS_SHARED) for key in over) == 2, "and is forgotten after a while"


def _rack(
    many: int, since: Mapping[str, datetime], now: datetime
) -> tuple[d.Fleet, Observation, dict[str, NodeRecord]]:
    """Return a rack of which all nodes but the first are well again."""
    wanted = {f"n{at:02}": b.node(f"n{at:02}", profile=PROFILE, domains={"rack": "r1"}) for at in range(many)}
    seen = {
        name: b.observed(name, host=b.facts(name, links=(SLOW if name == "n00" else UP,))) for name in wanted
    }  # fmt: skip
    records = {name: replace(b.record(wanted[name], seen[name]), silent_since=dict(since)) for name in wanted}
    fleet = d.Fleet(b.SETTINGS, d.SpecSource("spec"), wanted, "d")
    return fleet, Observation("1.0", "test", "", now, now, seen), records


def test_a_silent_node_still_counts_and_one_that_was_read_well_does_not() -> None:
    begun = {SHARED + "health.port_slow": b.NOW - timedelta(minutes=5)}
    fleet, seen, records = _rack(3, begun, b.NOW)
    dark = dict(seen.nodes)
    dark["n01"] = dark["n02"] = b.observed("n01", host=b.silent())
    for observation, expected in ((seen, 0), (replace(seen, nodes=dark), 1)):
        snapshot = LedgerSnapshot(b.LEDGER, records)
        made = plan_fleet(fleet, observation, snapshot, b.NOW, PlanRequest("p", b.CONTEXT.signatures))
        assert len(made.incidents) == expected


def test_events_of_a_part_and_terminal_signals_are_never_a_domain_s() -> None:
    table = health_table()
    shared = {name for name, rule in table.rules.items() if rule.domains}
    assert {"power_brake", "thermal_slowdown", "psu_failed", "fan_failed", "port_missing", "port_slow"} <= shared
    assert not shared & {"nic_failed", "xid_", "gpu_missing", "ecc", "dimm_ue", "pcie_width", "condition_"}
    assert table.rule_of("nvlink_down").domains == ("nvlink*",)
    assert "port_flap" in shared, "a leaf that restarts drops the links of a rack"
    assert not shared & {"port_uneven", "port_discards", "port_retries"}, "congestion is no incident"
    for rule in table.rules.values():
        assert not rule.domains or rule.row.cause.value not in ("terminal", "application")


def test_the_table_of_a_node_s_plan_shows_the_reported_ones_too() -> None:
    """Power brakes are only reported, and yet one incident says that they are the rack's."""
    made = planned(tuple(Node("power_brake") for _ in range(3)))
    assert [(one.cause, one.scope) for one in made.incidents] == [("environment", "nvlink-domain r1")] or [
        (one.cause, one.scope) for one in made.incidents
    ] == [("environment", "rack r1")]
    assert all(signal.effect is Effect.REPORTS for signal in signals(PROFILE, b.observed(host=b.facts(
        links=(UP,), **OUTSIDE["power_brake"]))))  # fmt: skip
    assert not any(plan.changes for plan in made.nodes.values())


def test_people_are_told_once_and_of_no_node() -> None:
    shown = tuple(Node("port_missing") for _ in range(3)) + (Node(""),) * 13
    made = planned(shown)
    seen = {name: b.observed(name) for name in made.nodes}
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, seen)
    found = find(made, observation, {}, since=b.NOW - timedelta(hours=1), outage="")
    assert list(found.holding) == ["incident/fabric/nvlink-domain r1"]
    assert "3 of 16 active nodes" in found.holding["incident/fabric/nvlink-domain r1"].detail


def test_plan_and_drift_show_it_with_its_domain_and_the_way_out() -> None:
    made = planned(tuple(Node("port_slow") for _ in range(3)))
    observation = Observation("1.0", "test", "", b.NOW, b.NOW, {name: b.observed(name) for name in made.nodes})
    report = drift_report(made, observation)
    for text in (plan_text.human(made), drift_text.human(report), as_markdown(report)):
        said = " ".join(text.replace("\\", "").split())
        assert "INCIDENT of nvlink-domain r1, health.port_slow on 3 nodes: 3 of 3 active nodes" in said
        assert "None is drained or treated for it while it lasts" in said
