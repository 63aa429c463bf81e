"""A search of the fabric over a lab fleet: what it names, whom it takes, and that all serve again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.apply import ApplyRequest
from reconciler.converge.fabric_search import SearchRequest, search
from reconciler.gate.fabric.measured import bar_of
from reconciler.gate.fabric.results import Bar
from reconciler.lab.leaf_spine import FabricFault
from reconciler.lab.pair_network import PairNetwork
from reconciler.model.desired import BudgetLimit, GateTest
from reconciler.model.errors import UsageError
from reconciler.model.fabric_report import FabricReport
from reconciler.model.results import SEARCH, Wanted
from tests.converge.test_pair_gate import RAILS, WIRE, Wired

NODES = 9


class Searched(Wired):
    """Nine nodes behind three leaves."""

    def search(self, test: GateTest | None = None) -> FabricReport:
        return self.run(self.searching(test))

    def regroup(self, size: int) -> None:
        """Place as many nodes behind each leaf."""
        for at, (name, node) in enumerate(list(self.fleet.nodes.items())):
            moved = replace(node, domains={**node.domains, "leaf": f"l{at // size}"})
            self.fleet = replace(self.fleet, nodes={**self.fleet.nodes, name: moved})
            self.network.fabric.groups[name] = f"l{at // size}"

    async def searching(self, test: GateTest | None = None) -> FabricReport:
        test = test or self.test_of_pairs
        bar = bar_of(test) or Bar(0.0)  # of a group's test, which has limits of its own
        self._runs += 1
        asked = ApplyRequest(self.fleet, f"run-{self._runs}", f"run-{self._runs}", "ops", self.signatures)
        ports: dict[str, Any] = {
            "fabric": self.fabric, "ledger": self.ledger, "clock": self.clock, "gate": self.gate,
            "progress": self.events.append,
        }  # fmt: skip
        return await search(SearchRequest(asked, test, bar), **ports)


@pytest.fixture
def world(tmp_path: Path) -> Searched:
    return Searched(tmp_path, nodes=NODES, test_of_pairs=RAILS)


def named(report: FabricReport) -> list[str]:
    return [str(part) for part in report.at_fault]


def test_a_good_fabric_has_nothing_at_fault_and_every_node_serves_again(world: Searched) -> None:
    report = world.search()
    assert (report.at_fault, report.incidents, report.undecided) == ((), (), {})
    assert report.good == tuple(sorted(world.fleet.nodes))
    assert 3 <= report.rounds <= 11, "2 log2(N) + 3 at most"
    assert world.others_serve()
    assert world.network.serving == frozenset()
    assert world.gate.runs == []
    assert world.plan().nodes["n1"].actions == (), "a test is no repair: nobody has to prove anything anew"


@pytest.mark.parametrize(
    ("kind", "rail", "told"),
    [
        (FabricFault.NODE, None, "node n5"),
        (FabricFault.NIC, 1, "NIC n5, rail mlx5_1"),
        (FabricFault.CABLE, 0, "cable n5, rail mlx5_0"),
        (FabricFault.LEAF_PORT, 1, "leaf port n5, rail mlx5_1"),
    ],
    ids=str,
)
def test_the_part_of_a_node_is_named_and_no_other(
    world: Searched, kind: FabricFault, rail: int | None, told: str
) -> None:
    world.break_part(kind, "n5", rail)
    report = world.search()
    assert named(report) == [told], report
    assert report.incidents == ()
    assert "n5" not in report.good
    assert len(report.good) == NODES - 1
    assert [part for part in report.accounts if part.name == "n5"]
    assert len(report.at_fault[0].partners) >= 2
    assert world.others_serve(), "what is found is reported: nobody is isolated for it"
    (entry,) = [one for one in world.ledger.history("n5") if one.event == "fabric"]
    assert told in entry.detail


def test_report_and_figures_are_in_the_ledger(world: Searched) -> None:
    world.break_part(FabricFault.CABLE, "n5", 0)
    report = world.search()
    assert world.ledger.search(report.run) == report
    assert world.ledger.last_search() == report
    assert [str(one.part) for one in report.open] == ["cable n5, rail mlx5_0"]
    rows = list(world.ledger.results(Wanted((), metric="gbps")))
    assert {row.node for row in rows} == set(world.fleet.nodes)
    assert {(row.profile, row.test, row.unit) for row in rows} == {(SEARCH, "rails", "Gb/s")}
    assert {row.node: row.verdict for row in rows} == {
        name: "fail" if name == "n5" else "pass" for name in world.fleet.nodes
    }
    lows = {row.node for row in rows if row.value is not None and row.value < 360}
    partners = {row.part.partition(".")[0] for row in rows if row.node == "n5"}
    assert "n5" in lows <= {"n5", *partners}, "the others are low with n5 alone"
    whole = {row.node: row.value for row in rows if not row.part}
    assert all((value or 0) >= 360 for name, value in whole.items() if name != "n5"), whole
    (row,) = world.ledger.last_searched("n1")
    (certified,) = {one.key for one in world.ledger.last_searched("n2")}
    assert row.key == certified, "peers have the same"
    assert world.ledger.last_gate("n1") == (), "a search is no gate"
    (low,) = world.ledger.last_searched("n5")
    text = world.ledger.output(low.output)
    assert text is not None
    assert {line.split()[-1] for line in text.splitlines() if line.startswith("=== round")} == partners - {"", "n5"}
    assert "RDMA_Write BW Test" in text
    assert world.ledger.audit().problem == ""


def test_a_search_that_finds_a_part_well_closes_it(world: Searched) -> None:
    world.break_part(FabricFault.CABLE, "n5", 0)
    first, again = world.search(), world.search()
    (part,) = again.open
    assert (part.since, part.run) == (first.ended_at, again.run)
    world.network.fabric.faults.clear()
    assert world.search().open == ()


def test_a_bad_leaf_is_an_incident_and_no_nodes_fault(world: Searched) -> None:
    world.break_part(FabricFault.LEAF, "l1", 0)
    report = world.search()
    assert report.at_fault == ()
    assert [str(part) for part in report.incidents] == ["leaf l1, rail mlx5_0"]
    assert set(report.undecided) == {"n3", "n4", "n5"}


def test_a_bad_spine_is_named_where_the_subnet_tells_routes(world: Searched) -> None:
    world.break_part(FabricFault.SPINE, "s1")
    report = world.search()
    assert report.at_fault == ()
    (spine,) = report.incidents
    assert (spine.kind, spine.name.split()[0], spine.lows) == ("spine", "s1", spine.runs)
    assert report.good == tuple(sorted(world.fleet.nodes)), "it is no node's fault"
    assert world.others_serve()


def test_a_bad_cable_of_a_spine_is_named_by_its_two_ports_where_the_subnet_tells_routes(world: Searched) -> None:
    world.break_part(FabricFault.UPLINK, "l1/s1", 0)
    report = world.search()
    assert report.at_fault == ()
    assert [str(part) for part in report.incidents] == [
        "cable between leaf and spine l1 rail 0 port 34, s1 port 9, rail mlx5_0"
    ]
    assert world.others_serve()


@pytest.mark.parametrize("spines", [1, 2])
def test_a_bad_spine_convicts_nobody_though_no_test_tells_which_flows_took_it(world: Searched, spines: int) -> None:
    world.network.traced = False
    for at in range(spines):
        world.break_part(FabricFault.SPINE, f"s{at}")
    report = world.search()
    assert report.at_fault == ()
    assert report.incidents
    assert all(part.kind in ("between leaves", "whole fabric") for part in report.incidents), report.incidents


def test_two_faults_are_both_named(world: Searched) -> None:
    world.break_part(FabricFault.NIC, "n2", 0)
    world.break_part(FabricFault.CABLE, "n8", 1)
    assert sorted(named(world.search())) == ["NIC n2, rail mlx5_0", "cable n8, rail mlx5_1"]


def test_the_address_of_a_rail_finds_the_partner_where_the_specs_tells_no_node_from_another(world: Searched) -> None:
    """As in a lab on loopback, and behind a jump host."""
    assert world.network.measure("n0", "127.0.0.1") is None
    world.break_part(FabricFault.CABLE, "n5", 0)
    report = world.search(replace(RAILS, args={**RAILS.args, "interface": "ib0"}))
    assert named(report) == ["cable n5, rail mlx5_0"]
    report = world.search(replace(RAILS, args={**RAILS.args, "interface": "ib99"}))
    assert (report.at_fault, report.good) == ((), ())
    assert any("no address on ib99" in why for why in report.unrun)


def test_over_tcp_the_link_is_named_as_a_node_with_itself_proves_no_adapter(tmp_path: Path) -> None:
    world = Searched(tmp_path, nodes=NODES)
    world.break_part(FabricFault.NIC, "n5", 0)
    report = world.search(WIRE)
    assert named(report) == ["link n5"], report
    assert len(report.good) == NODES - 1


def test_no_more_nodes_are_out_than_the_budget_allows_and_the_fault_is_named_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Searched(tmp_path, nodes=NODES, test_of_pairs=RAILS, settings={"budgets": (BudgetLimit("fleet", "4"),)})
    world.break_part(FabricFault.NIC, "n5", 1)
    out: list[int] = []
    serve = PairNetwork.serve

    def counted(network: PairNetwork, node: str, run: str) -> None:
        out.append(sum(not world.serves(name) for name in world.fleet.nodes))
        serve(network, node, run)

    monkeypatch.setattr(PairNetwork, "serve", counted)
    assert named(world.search()) == ["NIC n5, rail mlx5_1"]
    assert max(out) == 4
    assert world.others_serve()


def test_nodes_with_work_or_a_hold_take_no_part(tmp_path: Path) -> None:
    world = Searched(tmp_path, nodes=NODES, test_of_pairs=RAILS, working=("n1",))
    world.ledger.hold("n0", "ops", "traced", None, world.clock.now())
    report = world.search()
    assert {"n0", "n1"} == set(report.left_out)
    assert report.left_out["n1"] == "it has work"
    assert len(report.good) == NODES - 2


@pytest.mark.parametrize("out", [False, True])
def test_an_ill_node_is_tested_where_it_is_out_and_left_to_its_repair_where_it_serves(
    world: Searched, out: bool
) -> None:
    """Errors that a bad cable causes make its node ill: who leaves ill nodes out finds no cable."""
    world.break_part(FabricFault.CABLE, "n5", 0)
    if out:
        world.act("mark", "n5")
    world.machine("n5").inject("xid_79", gpu=1)
    report = world.search()
    assert named(report) == (["cable n5, rail mlx5_0"] if out else [])
    assert any("n5: it is ill" in why for why in report.unrun) is not out
    assert len(report.good) == NODES - 1, "the others are judged all the same"
    assert world.serves("n5") is not out, "a search isolates nobody and admits nobody"


def test_a_fleet_at_work_is_left_alone(tmp_path: Path) -> None:
    world = Searched(tmp_path, nodes=NODES, busy=True, test_of_pairs=RAILS)
    with pytest.raises(UsageError, match="it has work"):
        world.search()
    assert world.others_serve()


def test_a_search_that_is_cancelled_gives_every_node_back(world: Searched) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(world.searching())
        while not world.network.serving:
            await world.clock.sleep(0.5)
        assert not world.others_serve()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    world.run(cancelled())
    assert world.others_serve()
    assert world.network.serving == frozenset()


def test_nodes_that_the_spec_places_behind_no_leaf_take_no_part(world: Searched) -> None:
    nodes = world.fleet.nodes
    world.fleet = replace(world.fleet, nodes={**nodes, "n0": replace(nodes["n0"], domains={})})
    assert world.search().left_out == {"n0": "it has no leaf and no rack in the spec"}
