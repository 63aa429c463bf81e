"""What becomes of a search in the ledger: rows of each node that took part, and which parts stay open."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest

from reconciler.gate.fabric.results import Bar, Leg, LoopbackRun, PairRun, read
from reconciler.gate.fabric.rows import Searched, of_groups, of_pairs, rows_of
from reconciler.gate.fabric.still_open import still_open
from reconciler.gate.results import key_of
from reconciler.model.desired import Desired, GateTest
from reconciler.model.fabric_report import FABRIC_FORMAT, BlamedPart, FabricReport, OpenPart
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.results import SEARCH, TestRun
from tests.builders import node

AT = datetime(2026, 11, 1, tzinfo=UTC)
RAILS = GateTest("rails", "perftest", {"partners": 2, "rails": "mlx5_0,mlx5_1"}, (), 60.0)
NODES = ("n0", "n1", "n2", "n3")
NIC = BlamedPart("NIC", "n1", "mlx5_1", 6, 6, ("n0", "n2"))
LEAF = BlamedPart("leaf", "l1", "mlx5_0", 12, 14, ("n2", "n3"))


def report(number: int = 1, **found: Any) -> FabricReport:
    at = AT + timedelta(hours=number)
    return replace(
        FabricReport(
            FABRIC_FORMAT, f"run-{number}", "test", "rails", NODES, {}, (), (), NODES, {}, (), (), 4, at,
            at + timedelta(minutes=9),
        ),
        **found,
    )  # fmt: skip


def run(one: str, other: str, there: tuple[float | None, ...], back: tuple[float | None, ...]) -> PairRun:
    return PairRun(0, one, other, Leg(there), Leg(back))


def rows(*runs: PairRun, test: GateTest = RAILS, found: FabricReport | None = None) -> dict[str, TestRun]:
    nodes: dict[str, Desired] = {name: node(name) for name in NODES}
    readings = [read(one, Bar(360.0)) for one in runs]
    alone = [LoopbackRun(1, "n1", (390.0, 200.0))]
    searched = Searched(test, readings, alone, {"n0": "6.10", "n1": "6.10"})
    found = found or report()
    return {row.node: row for row in rows_of(of_pairs(searched, found), test, found, nodes, 7)[0]}


def figures(row: TestRun) -> dict[tuple[str, str], float]:
    return {(one.metric, one.part): one.value for one in row.measurements}


def test_both_nodes_of_a_pair_have_its_figures_each_from_its_own_side() -> None:
    found = rows(
        run("n0", "n1", (391.0, 200.0), (380.0, 390.0)),
        run("n0", "n1", (393.0, 210.0), (382.0, 390.0)),
        run("n0", "n2", (392.0, 388.0), (395.0, 394.0)),
        found=report(at_fault=(NIC,), good=("n0", "n2", "n3")),
    )
    assert list(found) == list(NODES)
    one, other = figures(found["n0"]), figures(found["n1"])
    assert one["gbps", "n1.mlx5_0.there"] == other["gbps", "n0.mlx5_0.back"] == 392.0
    assert one["gbps", "n1.mlx5_1.there"] == other["gbps", "n0.mlx5_1.back"] == 205.0
    assert one["gbps", "n1.mlx5_0.back"] == other["gbps", "n0.mlx5_0.there"] == 381.0
    assert (one["gbps", "n1"], one["gbps", "n2"]) == (205.0, 388.0)
    assert one["gbps", ""] == 388.0, "n1 is at fault: what is measured with it says nothing of n0"
    assert other["gbps", ""] == 205.0, "n0 is good"
    assert (one["runs", ""], one["runs", "n1"], one["low_runs", "n1"], one["low_runs", "n2"]) == (3, 2, 2, 0)
    assert (other["gbps", "n1.mlx5_0"], other["gbps", "n1.mlx5_1"]) == (390.0, 200.0), "with itself"
    assert {one.unit for one in found["n0"].measurements if one.metric == "gbps"} == {"Gb/s"}


def test_a_row_has_the_verdict_of_the_search_and_the_key_of_the_gates() -> None:
    found = rows(found=report(at_fault=(NIC,), good=("n0", "n2"), undecided={"n3": "it was low across leaves"}))
    verdicts = {name: (row.verdict, row.reasons) for name, row in found.items()}
    assert verdicts == {
        "n0": (Verdict.PASS, ()),
        "n1": (Verdict.FAIL, ("NIC n1, rail mlx5_1 is at fault",)),
        "n2": (Verdict.PASS, ()),
        "n3": (Verdict.UNJUDGED, ("it was low across leaves",)),
    }
    row = found["n0"]
    gate = TestResult("rails", "perftest", Verdict.PASS, (), {}, "6.10")
    assert row.key == key_of(node("n0"), gate, RAILS.args)
    assert row.key != found["n3"].key, "nobody knows which version n3 has"
    assert (row.attempt, row.profile, row.tool, row.tool_version) == (7, SEARCH, "perftest", "6.10")


def test_what_could_not_run_is_no_figure_and_no_run() -> None:
    row = rows(run("n0", "n1", (None, 390.0), (None, None)), run("n0", "n2", (None, None), (None, None)))["n0"]
    assert figures(row) == {
        ("gbps", ""): 390.0, ("gbps", "n1"): 390.0, ("gbps", "n1.mlx5_1.there"): 390.0,
        ("runs", ""): 1, ("runs", "n1"): 1, ("low_runs", ""): 0, ("low_runs", "n1"): 0,
    }  # fmt: skip
    assert figures(rows()["n3"]) == {}


def test_a_test_without_rails_has_no_figure_of_the_rail_that_never_was() -> None:
    tcp = GateTest("tcp", "iperf3", {"partners": 1}, (), 60.0)
    row = rows(run("n0", "n2", (91.0, inf), (90.0, inf)), test=tcp)["n0"]
    assert {part for metric, part in figures(row) if metric == "gbps"} == {"", "n2", "n2.there", "n2.back"}


# --- what stays open --------------------------------------------------------------------------------------------------


def opened(*reports: FabricReport) -> tuple[OpenPart, ...]:
    known: tuple[OpenPart, ...] = ()
    for one in reports:
        known = still_open(known, one)
    return known


BAD = report(1, at_fault=(NIC,), good=("n0", "n2", "n3"))


def test_what_is_named_is_open_until_a_search_finds_its_node_good() -> None:
    (part,) = opened(BAD)
    assert (part.part, part.incident, part.nodes, part.run) == (NIC, False, ("n1",), "run-1")
    again = replace(BAD, run="run-2", ended_at=AT + timedelta(days=2), at_fault=(replace(NIC, lows=9, runs=12),))
    (part,) = opened(BAD, again)
    assert (part.part.lows, part.run, part.since) == (9, "run-2", BAD.ended_at), "it is the same, since then"
    assert opened(BAD, report(2)) == ()


@pytest.mark.parametrize(
    "after",
    [
        report(2, nodes=("n0", "n2", "n3"), good=("n0", "n2", "n3"), left_out={"n1": "it has work"}),
        report(2, good=("n0", "n2", "n3"), undecided={"n1": "its tests ran with fewer than 2 partners"}),
        report(2, test="tcp"),
    ],
    ids=["took no part", "undecided", "another test"],
)
def test_what_no_search_looked_at_stays_open(after: FabricReport) -> None:
    assert [one.part for one in opened(BAD, after)] == [NIC]


def test_a_part_that_is_told_more_closely_takes_the_place_of_the_first() -> None:
    link = report(1, at_fault=(replace(NIC, kind="link"),), good=("n0",))
    assert [one.part.kind for one in opened(link, replace(BAD, run="run-2"))] == ["NIC"]


def test_a_common_cause_is_open_until_most_of_its_nodes_are_good() -> None:
    bad = report(1, incidents=(LEAF,), good=("n0", "n1"), undecided={"n2": "leaf", "n3": "leaf"})
    (part,) = opened(bad)
    assert (part.incident, part.nodes) == (True, ("n2", "n3"))
    half = report(2, good=("n0", "n1", "n2"), undecided={"n3": "leaf"})
    assert opened(bad, half) != ()
    assert opened(bad, half, report(3)) == ()
    whole = report(1, incidents=(BlamedPart("whole fabric", "", "", 0, 0, (), "congestion"),), good=())
    assert opened(whole)[0].nodes == NODES


NCCL = GateTest("nccl", "nccl-tests", {"group": 4, "scope": "fabric", "minBytes": "1G", "maxBytes": "1G"}, (), 60.0)


def together(busbw: float, printed: str) -> TestResult:
    return TestResult("nccl", "nccl-tests", Verdict.PASS, (), {"busbw_peak": busbw}, "2.17.9", printed=printed)


def test_nodes_of_a_group_have_its_figures_and_those_of_fewer_nodes_apart() -> None:
    ran = [
        (frozenset(NODES), together(310.0, "all\n")),
        (frozenset({"n0", "n1"}), together(380.0, "half\n")),
        (frozenset({"n2", "n3"}), replace(together(0.0, "broken\n"), metrics={})),
    ]
    found = report(good=("n0",))
    made, outputs = rows_of(of_groups(NCCL, ran), NCCL, found, {name: node(name) for name in NODES}, 7)
    by_node = {row.node: row for row in made}
    assert figures(by_node["n0"]) == {("busbw_peak", ""): 310.0, ("busbw_peak", "2nodes"): 380.0}
    assert figures(by_node["n2"]) == {("busbw_peak", ""): 310.0}, "a run that measured nothing adds nothing"
    assert {row.unit for one in made for row in one.measurements} == {"GB/s"}
    assert {one.verdict for one in made} == {Verdict.PASS, Verdict.UNJUDGED}
    assert outputs[by_node["n0"].output] == "=== n0, n1 together\nhalf\n=== n0, n1, n2, n3 together\nall\n"
    assert by_node["n2"].output == by_node["n3"].output, "what nodes share is kept once"
    assert by_node["n0"].key == key_of(node("n0"), together(310.0, ""), NCCL.args)
