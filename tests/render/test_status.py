"""The status of a fleet as text: one screen whatever its size, exceptions first, cells that no machine can break."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from reconciler.cli.commands.status import exit_code
from reconciler.cli.exit_codes import ExitCode
from reconciler.model.desired import SpecSource
from reconciler.model.documents import dump, load
from reconciler.model.fleet_overview import (
    ClusterOverview,
    FleetOverview,
    Holder,
    NodeCounts,
    RolloutOverview,
    Trouble,
    Work,
)
from reconciler.model.plan import BlockCode, BudgetLine, Incident, Scope
from reconciler.model.status import NodeStatus
from reconciler.render.status import SCREEN, as_markdown, human
from tests import builders as b
from tests.render.test_text import HOSTILE

FINE = NodeCounts(100, 100, 0, {NodeStatus.CONVERGED: 100})


def cluster(**changes: Any) -> ClusterOverview:
    return replace(ClusterOverview("main", "v1.31.4", "", 100, 0, 0, 0, {"v1.31.4": 100}, 3, 3), **changes)


def overview(**changes: Any) -> FleetOverview:
    nodes = changes.get("counts", FINE).nodes
    made = FleetOverview(
        "1.0", "0", "f", SpecSource("spec", "c" * 40), b.NOW, b.NOW, b.NOW, Scope((), (), nodes, nodes), FINE,
        {"train": FINE}, 0, (), True, (BudgetLine("fleet", 5, 100, (), "5% of 100 = 5"),), (), (), (), (), (),
        (cluster(),), {}, 0.0,
    )  # fmt: skip
    return replace(made, **changes)


def trouble(at: int, why: str = "no path") -> Trouble:
    return Trouble(f"gpu-{at:05}", f"pool-{at % 200:03}", NodeStatus.BLOCKED, BlockCode.NO_PATH, why)


def test_a_fleet_that_is_well_says_so_and_asks_for_nothing() -> None:
    text = human(overview())
    assert text.startswith("Status of fleet f: 100 of 100 nodes as specified, 100 in service, 0 out\n")
    assert "Next:" not in text
    assert "Cluster main v1.31.4: 100 ready, 0 not ready, 0 cordoned, control plane 3 of 3 ready" in text


def test_ten_thousand_nodes_in_trouble_fit_on_a_screen() -> None:
    found = overview(
        counts=NodeCounts(10_000, 9_000, 1_000, {NodeStatus.CONVERGED: 9_000, NodeStatus.BLOCKED: 1_000}),
        pools={f"pool-{at:03}": replace(FINE, out=5) for at in range(200)},
        trouble=tuple(trouble(at, f"cause {at % 50}") for at in range(1_000)),
        work=tuple(Work(f"gpu-{at:05}", "reimage", "writing 40%") for at in range(300)),
        incidents=tuple(Incident(f"health.s{at}", "the fleet", ("n",) * 100, "a person decides") for at in range(40)),
        rollouts=tuple(RolloutOverview(f"pool-{at:03}", 2, 4, 10, 50, False, "", None) for at in range(100)),
        silent={f"redfish {at}": at for at in range(30)},
    )  # fmt: skip
    lines = human(found).splitlines()
    assert len(lines) <= SCREEN
    assert "1,000 need a person" in lines[0]
    assert sum("more rows: --output json has all of them" in line for line in lines) == 6, "each that was cut says so"


def test_what_runs_says_for_how_long_and_when_its_node_is_expected_to_be_done() -> None:
    began, end = b.NOW - timedelta(minutes=4), b.NOW + timedelta(minutes=27)
    work = (Work("n1", "drain", "", began, end), Work("n2", "run_gate", "soak"), Work("n3", "admit", "", end, began))
    found = overview(work=work, generated_at=b.NOW)
    rows = [line.split() for line in human(found).split("Runs now (3)")[1].splitlines()]
    assert ["n1", "drain", "4m", "27m"] in rows
    assert ["n2", "run_gate", "soak"] in rows
    assert ["n3", "admit", "0s", "0s"] in rows, "a clock that was set back, and a plan that is late"


def test_a_source_that_is_silent_for_a_known_cause_is_told_so() -> None:
    rows = human(overview(silent={"ssh explained": 1_200, "redfish timeout": 3})).split("Did not answer\n")[1]
    assert [row.split(maxsplit=2) for row in rows.splitlines()[1:3]] == [
        ["ssh", "1,200", "powered off, starting, or in the installer"],
        ["redfish", "3", "timeout"],
    ]


def test_equal_troubles_are_one_row_and_the_largest_comes_first() -> None:
    found = overview(trouble=(*map(trouble, range(3)), trouble(9, "other")))
    rows = human(found).split("Needs a person (4)\n")[1].splitlines()
    assert [row.split()[0] for row in rows[1:3]] == ["gpu-[00000-00002]", "gpu-00009"]


def test_pools_with_trouble_come_before_those_that_are_well() -> None:
    ill = NodeCounts(10, 9, 1, {NodeStatus.CONVERGED: 9, NodeStatus.BLOCKED: 1})
    text = human(overview(pools={f"a{at}": FINE for at in range(20)} | {"zz": ill}))
    assert text.split("Pools (21)\n")[1].splitlines()[1].split()[:2] == ["zz", "10"]


@pytest.mark.parametrize(
    ("changes", "plain", "detailed"),
    [
        ({}, ExitCode.DONE, ExitCode.DONE),
        ({"work": (Work("n", "drain", ""),)}, ExitCode.DONE, ExitCode.CHANGES),
        ({"counts": NodeCounts(2, 1, 1, {NodeStatus.CONVERGED: 2})}, ExitCode.DONE, ExitCode.CHANGES),
        ({"counts": NodeCounts(2, 2, 0, {NodeStatus.WAITING: 2})}, ExitCode.DONE, ExitCode.CHANGES),
        ({"counts": NodeCounts(2, 0, 0, {NodeStatus.SET_ASIDE: 2})}, ExitCode.DONE, ExitCode.DONE),
        ({"incomplete": ("n",)}, ExitCode.DONE, ExitCode.CHANGES),
        ({"incomplete": ("n",), "tolerated": False}, ExitCode.INCOMPLETE, ExitCode.INCOMPLETE),
        ({"trouble": (trouble(1),), "tolerated": False}, ExitCode.INCOMPLETE, ExitCode.REFUSED),
        ({"stopped": "stopped by ops"}, ExitCode.DONE, ExitCode.REFUSED),
        ({"braked": "storm brake"}, ExitCode.DONE, ExitCode.REFUSED),
        ({"refused": ("guard",)}, ExitCode.DONE, ExitCode.REFUSED),
        ({"incidents": (Incident("health.x", "the fleet", ("n",), "d"),)}, ExitCode.DONE, ExitCode.REFUSED),
        ({"rollouts": (RolloutOverview("p", 1, 4, 0, 9, False, "n failed", None),)}, ExitCode.DONE, ExitCode.REFUSED),
        ({"rollouts": (RolloutOverview("p", 1, 4, 0, 9, False, "", None),)}, ExitCode.DONE, ExitCode.DONE),
        ({"clusters": (cluster(trouble="timeout: no answer"),)}, ExitCode.DONE, ExitCode.REFUSED),
    ],
)
def test_a_monitor_tells_what_needs_a_person_from_what_goes_on_by_itself(
    changes: Any, plain: ExitCode, detailed: ExitCode
) -> None:
    found = overview(**changes)
    assert (exit_code(found, detailed=False), exit_code(found, detailed=True)) == (plain, detailed)


def test_the_document_is_read_back_as_it_was() -> None:
    found = overview(
        trouble=(trouble(1),), work=(Work("n", "drain", "far"),), finish_s=3.5,
        holders=(Holder("fleet f", "ops", None, b.NOW + timedelta(minutes=1)),),
        rollouts=(RolloutOverview("p", 1, 4, 0, 9, True, "", b.NOW),),
    )  # fmt: skip
    assert load(FleetOverview, dump(found)) == found


@given(HOSTILE)
def test_no_word_of_a_machine_begins_a_line_or_formats(text: str) -> None:
    plain, hostile = ("why", text)
    made = [
        overview(
            trouble=(trouble(1, word),), work=(Work("n", "drain", word),), clusters=(cluster(trouble=f"x{word}"),),
            incidents=(Incident("health.x", "the fleet", ("n",), word),), notes=(f"x{word}",),
        )
        for word in (plain, hostile)
    ]  # fmt: skip
    assert len(human(made[0]).splitlines()) == len(human(made[1]).splitlines())
    assert "\x1b" not in human(made[1])
    assert "\x1b" not in as_markdown(made[1])
    assert "](" not in as_markdown(made[1])
