"""A collective over several nodes on a lab fleet: by the gate of one of them, and by a search in groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.converge.run import Ended
from reconciler.gate.results import key_of
from reconciler.lab.leaf_spine import FabricFault
from reconciler.model.desired import BudgetLimit, GateTest
from reconciler.model.results import SEARCH, Wanted
from tests.converge.test_fabric_search import Searched, named
from tests.converge.test_pair_gate import NCCL

Make = Callable[..., Searched]
PAIRS = replace(
    NCCL, args={name: value for name, value in NCCL.args.items() if name not in ("group", "scope")} | {"partners": 2}
)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(nodes: int = 9, **changes: object) -> Searched:
        return Searched(tmp_path, nodes=nodes, **({"test_of_pairs": NCCL} | changes))  # type: ignore[arg-type]

    return build


# --- the gate of a node -----------------------------------------------------------------------------------------


def test_a_good_node_passes_with_its_group_and_all_serve_again(make: Make) -> None:
    world = make()
    report = world.test("n0")
    assert report.results["n0"].state is Ended.DONE, (report.results, world.told())
    certificate = world.ledger.node("n0").certificate
    assert certificate is not None
    (result,) = certificate.results
    assert result.metrics["busbw_peak"] > 350
    assert result.metrics["nodes"] == 4
    assert result.evidence.count("#  Rank") == 16, "four GPUs of four nodes"
    assert world.others_serve()
    assert world.network.launched == {}


@pytest.mark.parametrize("test", [NCCL, PAIRS], ids=["group", "pairs"])
def test_a_bad_nic_is_convicted_by_collectives(make: Make, test: object) -> None:
    world = make(test_of_pairs=test)
    world.break_part(FabricFault.NIC, "n0", 2)
    world.test("n0")
    verdict, why = world.verdict("n0")
    assert verdict == "fail", why
    assert "which pass" in why
    assert world.others_serve("n0")
    assert world.network.launched == {}


@pytest.mark.parametrize("test", [NCCL, PAIRS], ids=["group", "pairs"])
def test_the_rail_is_named_where_each_is_tested_by_itself(make: Make, test: GateTest) -> None:
    world = make(test_of_pairs=replace(test, args={**test.args, "rails": "mlx5_0,mlx5_1,mlx5_2", "railByRail": True}))
    world.test("n0")
    assert world.verdict("n0")[0] == "pass", world.verdict("n0")
    world.break_part(FabricFault.NIC, "n1", 2)
    world.test("n1")
    verdict, why = world.verdict("n1")
    assert verdict == "fail", why
    assert "busbw_peak.mlx5_2" in why
    certificate = world.ledger.node("n1").certificate
    assert certificate is not None
    figures = certificate.results[0].metrics
    assert figures["busbw_peak"] == figures["busbw_peak.mlx5_2"] < 300 < figures["busbw_peak.mlx5_0"]
    assert world.others_serve("n1")
    assert world.network.launched == {}


def test_a_bad_partner_is_suspected_and_the_node_passes(make: Make) -> None:
    world = make(nodes=6)
    sizes = []
    for name in ("n1", "n2", "n3"):
        world.break_part(FabricFault.CABLE, name, 1)
        world.test("n0")
        assert world.verdict("n0")[0] in ("pass", "unjudged"), (name, world.verdict("n0"))
        sizes.append(size_measured(world))
        world.network.fabric.faults.clear()
    assert {2, 3}.intersection(sizes), "with a bad node the whole group fails, and some of it passes"
    assert 4 not in sizes
    assert world.others_serve("n0")


def size_measured(world: Searched) -> int:
    """Return with how many nodes n0 was measured, and see that its figures are kept as of so many."""
    certificate = world.ledger.node("n0").certificate
    assert certificate is not None
    (result,), node = certificate.results, world.fleet.nodes["n0"]
    if not result.metrics:
        return 0
    together = result.evidence.splitlines()[0].removesuffix(" together").split(", ")
    size = int(result.metrics["nodes"])
    assert size == len(together)
    rows = list(world.ledger.results(Wanted(("n0",), metric="busbw_peak")))
    mine = {row.key for row in rows if row.value == result.metrics["busbw_peak"]}
    assert mine == {key_of(node, replace(result, metrics={}), {**NCCL.args, "group": size})}
    return size


def test_a_bad_leaf_convicts_nobody(make: Make) -> None:
    world = make()
    world.break_part(FabricFault.LEAF, "l0", 0)
    world.test("n0")
    assert world.verdict("n0")[0] == "unjudged", world.verdict("n0")


def test_a_group_that_is_not_to_be_had_is_unjudged(make: Make) -> None:
    world = make(working=("n3", "n4", "n5", "n6", "n7", "n8"))
    world.test("n0")
    verdict, why = world.verdict("n0")
    assert verdict == "unjudged"
    assert "needs partners: 3 are wanted, 1 could be held" in why or "2 could be held" in why
    assert world.others_serve("n0")


@pytest.mark.parametrize(("scope", "group"), [("leaf", 4), ("rack", 4)])
def test_the_others_of_a_group_are_those_of_its_scope(make: Make, scope: str, group: int) -> None:
    test = replace(NCCL, args={**NCCL.args, "scope": scope, "group": group})
    world = make(nodes=12, test_of_pairs=test)
    place = {name: at for at, name in enumerate(world.fleet.nodes)}
    nodes = {
        name: replace(node, domains={"leaf": f"l{place[name] % 2}", "rack": f"r{place[name] // 6}"})
        for name, node in world.fleet.nodes.items()
    }
    world.fleet = replace(world.fleet, nodes=nodes)
    world.test("n0")
    certificate = world.ledger.node("n0").certificate
    assert certificate is not None
    ran = {line.split(" on ")[1].split()[0] for line in certificate.results[0].evidence.splitlines() if "Rank" in line}
    assert len(ran) == group
    kind = {nodes[name].domains[scope] for name in ran}
    assert kind == {nodes["n0"].domains[scope]}, ran


# --- a search in groups -----------------------------------------------------------------------------------------


def test_a_good_fabric_passes_in_one_round(make: Make) -> None:
    world = make()
    report = world.search()
    assert (report.at_fault, report.incidents, report.undecided) == ((), (), {})
    assert report.good == tuple(sorted(world.fleet.nodes))
    assert report.rounds == 1
    assert world.others_serve()
    assert world.network.launched == {}
    rows = list(world.ledger.results(Wanted((), metric="busbw_peak")))
    figures = {row.node: (row.profile, row.part, row.unit) for row in rows}
    assert figures == dict.fromkeys(world.fleet.nodes, (SEARCH, "3nodes", "GB/s")), "three groups of three, not of four"
    assert "Avg bus bandwidth" in (world.ledger.output(rows[0].output) or "")


@pytest.mark.parametrize("kind", [FabricFault.NODE, FabricFault.NIC, FabricFault.CABLE], ids=str)
@pytest.mark.parametrize("scope", ["leaf", "fabric"])
def test_the_culprit_is_named_and_nobody_else(make: Make, kind: FabricFault, scope: str) -> None:
    world = make(nodes=16, test_of_pairs=replace(NCCL, args={**NCCL.args, "group": 8, "scope": scope}))
    world.regroup(4)
    world.break_part(kind, "n13", None if kind is FabricFault.NODE else 3)
    report = world.search()
    assert named(report) == ["node n13"], report
    assert len(report.at_fault[0].partners) >= 2
    assert len(report.good) == 15
    assert report.incidents == ()
    assert report.rounds <= 2 * 4 + 3
    assert world.others_serve()


def test_a_node_whose_collectives_are_slow_though_its_links_are_good_is_found(make: Make) -> None:
    """The lab's `low_nccl`: no pair of perftest shows it."""
    world = make()
    world.machine("n7").inject("low_nccl", busbw=120.0)
    assert named(world.search()) == ["node n7"]


def test_a_bad_leaf_and_a_fabric_that_is_slow_are_incidents(make: Make) -> None:
    world = make()
    world.break_part(FabricFault.LEAF, "l1", 0)
    report = world.search()
    assert report.at_fault == ()
    assert [str(part) for part in report.incidents] == ["leaf l1"], report
    assert set(report.undecided) == {"n3", "n4", "n5"}
    world.network.fabric.faults.clear()
    for leaf in ("l0", "l1", "l2"):
        world.break_part(FabricFault.LEAF, leaf)
    report = world.search()
    assert report.at_fault == ()
    assert [part.kind for part in report.incidents] == ["whole fabric"]


def test_with_a_small_budget_smaller_groups_find_it(make: Make) -> None:
    world = make(nodes=8, test_of_pairs=replace(NCCL, args={**NCCL.args, "group": 8}),
                 settings={"budgets": (BudgetLimit("fleet", "4"),)})  # fmt: skip
    world.regroup(8)
    world.break_part(FabricFault.NIC, "n5", 1)
    report = world.search()
    assert named(report) == ["node n5"], report
    assert any("n4" in why or "budget" in why for why in report.unrun), report.unrun
    assert world.others_serve()


def test_what_can_not_run_anywhere_is_told_and_nobodys_fault(make: Make) -> None:
    report = make().search(replace(NCCL, args={**NCCL.args, "interface": "ib99"}))
    assert (report.at_fault, report.incidents, report.good) == ((), (), ())
    assert any("it did not start" in why for why in report.unrun), report.unrun
    assert len(report.undecided) == 9
