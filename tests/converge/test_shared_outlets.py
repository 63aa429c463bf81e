"""Nodes that share outlets are cut off together: each is counted, drained and judged, or nobody is (pitfall C4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.converge.actions import ac_cycle as module
from reconciler.converge.run import Ended
from reconciler.model import desired as d
from reconciler.model.limits import Brake
from reconciler.model.vocab import NodeState
from tests.converge.invariant_checker import InvariantChecker
from tests.converge.test_ac_cycle import TREATED, A, B, all_on, cuts
from tests.converge.world import PROFILE, World
from tests.properties.test_execute import MEMORY, few

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
ONLY = replace(TREATED, digest="only", remediation=replace(PROFILE.remediation, ladder=(d.Rung("ac_cycle"),)))
ILL = {"xid": {"code": 119, "heals": "ac"}}


def fed_world(
    build: Worlds, sockets: Mapping[str, str], each: Mapping[str, Any] | None = None, *, one_feed: bool = False,
    **differences: Any,
) -> World:  # fmt: skip
    """Nodes on two PDUs. `sockets`: node -> the outlet that it hangs on, where that is not its own.

    `one_feed`: that is so of one PDU alone.
    """
    number = differences.get("nodes", 3)
    socket = {f"n{at}": sockets.get(f"n{at}", f"A{at}") for at in range(number)}

    def feeds(node: d.Desired) -> d.Desired:
        mine = socket[node.node]
        others = tuple(name for name, one in socket.items() if one == mine and name != node.node)
        changes = (each or {}).get(node.node, {})
        second = d.Outlet(B, f"A{node.node[1:]}") if one_feed else d.Outlet(B, mine, others)
        return replace(node, outlets=(d.Outlet(A, mine, others), second), **changes)

    here = build(each=feeds, **{"nodes": 3, "profile": ONLY, "faults": {"n0": ILL}, **differences})
    here.adopt()
    return here


@pytest.fixture
def fed(world: Worlds) -> Worlds:
    return partial(fed_world, world)


PAIR = {"n0": "A0", "n1": "A0"}


def watched(here: World) -> list[tuple[str, bool, int]]:
    """Note each machine that is cut off: (node, whether it is marked, how many pods it has)."""
    seen: list[tuple[str, bool, int]] = []
    for name, machine in here.lab.machines.items():

        def noting(*, on: bool, name: str = name, cut: Any = machine.set_mains) -> None:
            if not on and here.machine(name).state.mains:
                assert here.lab.cluster is not None
                work = [pod for pod in here.lab.cluster.pods(name) if pod.evictable]
                seen.append((name, here.marked(name), len(work)))
            cut(on=on)

        machine.set_mains = noting  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("wait_s", [7200.0, 0.0])
def test_a_sibling_is_drained_counted_cut_off_and_judged(fed: Worlds, wait_s: float) -> None:
    here = fed(PAIR)
    boots = {name: here.machine(name).system().boot_id for name in ("n0", "n1", "n2")}
    plan = here.plan().nodes["n0"]
    assert "ac_cycle:n1" in [action.id for action in plan.actions]
    lost = watched(here)
    report = here.apply(wait_s=wait_s)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"]
    assert here.serves("n0")
    assert here.serves("n1"), report.results["n1"]
    assert cuts(here) == [1, 1, 0]
    assert all_on(here)
    assert sorted(lost) == [("n0", True, 0), ("n1", True, 0)]
    did = here.did("n1")
    assert [one for one in did if one in ("mark", "drain", "ac_cycle:with:n0", "run_gate", "admit")] == [
        "mark", "drain", "ac_cycle:with:n0", "run_gate", "admit",
    ]  # fmt: skip
    assert {name: here.machine(name).system().boot_id != boots[name] for name in boots} == {
        "n0": True, "n1": True, "n2": False,
    }  # fmt: skip


def test_a_sibling_that_has_another_feed_is_down_for_the_cut_all_the_same(fed: Worlds) -> None:
    """Nobody knows whether that feed alone holds it."""
    here = fed(PAIR, one_feed=True)
    boot = here.machine("n1").system().boot_id
    here.apply()
    assert cuts(here) == [1, 0, 0]
    assert here.machine("n1").system().boot_id != boot
    assert here.serves("n0")
    assert here.serves("n1")


# --- when it is not done ----------------------------------------------------------------------------------------------


def leader(here: World) -> str:
    """Return the situation of n0, of which nothing but an AC cycle is tried."""
    plan = here.plan().nodes["n0"]
    assert not any(action.name in ("drain", "ac_cycle") for action in plan.actions)
    return plan.situation


@pytest.mark.parametrize(
    ("differences", "why"),
    [
        (
            {"settings": {"budgets": (d.BudgetLimit("fleet", "1"),)}},
            "they are never out at once: budget of fleet is used",
        ),
        ({"each": {"n1": {"state": NodeState.QUARANTINED}}}, "n1 power, too, which is quarantined in the spec"),
        ({"each": {"n1": {"endpoints": d.Endpoints(None, "host-1:22")}}}, "n1 power, too, which has no BMC"),
    ],
    ids=["budget", "quarantined", "no BMC"],
)
def test_what_can_never_go_together_is_said_before_the_drain(
    fed: Worlds, differences: dict[str, Any], why: str
) -> None:
    """no_drain_in_vain: neither is drained, and the ladder goes on to what is left of it."""
    here = fed(PAIR, **differences)
    assert why in leader(here)
    here.apply()
    assert cuts(here) == [0, 0, 0]
    assert "drain" not in here.did("n0") + here.did("n1")


def test_a_hold_of_a_sibling_is_kept_and_named(fed: Worlds) -> None:
    here = fed(PAIR)
    here.ledger.hold("n1", "its fans are loud", "anna", None, here.clock.now())
    assert "its outlets give n1 power, too, which is held by anna: its fans are loud" in leader(here)
    here.apply()
    assert cuts(here) == [0, 0, 0]
    here.ledger.release("n1", "anna", here.clock.now())
    here.apply()
    assert cuts(here) == [1, 1, 0]
    assert here.serves("n0")
    assert here.serves("n1")


def test_a_sibling_that_is_not_selected_is_named(fed: Worlds) -> None:
    here = fed(PAIR)
    report = here.apply(selected=["n0"], wait_s=0.0)
    assert "n1, which its outlets give power, too, is not selected" in report.results["n0"].detail
    assert cuts(here) == [0, 0, 0]


def test_room_for_all_is_waited_for_and_nobody_is_half_out(fed: Worlds) -> None:
    """Two pairs in a budget of two: never one of each."""
    here = fed(
        PAIR | {"n2": "A2", "n3": "A2"}, nodes=5, faults={"n0": ILL, "n2": ILL},
        settings={"budgets": (d.BudgetLimit("fleet", "3"),)},
    )  # fmt: skip
    checker = InvariantChecker(here)
    report = here.apply()
    assert all(here.serves(name) for name in ("n0", "n1", "n2", "n3", "n4")), report.results
    assert cuts(here) == [1, 1, 1, 1, 0]
    assert not checker.seen


def test_a_sibling_that_can_not_be_drained_serves_on_and_nobody_is_cut_off(fed: Worlds) -> None:
    here = fed(PAIR, faults={"n0": ILL, "n1": {"pdb_never_yields": {}}})
    for _ in range(3):
        here.apply()
        here.clock.elapsed += 600
    assert cuts(here) == [0, 0, 0]
    assert here.serves("n1")
    assert here.did("n1").count("mark") <= 3, here.did("n1")
    said = [attempt.detail for attempt in here.ledger.node("n0").attempts if attempt.action == "ac_cycle"]
    assert said
    assert all("nobody was cut off: n1, which its outlets give power, too: drain" in one for one in said), said
    assert here.machine("n0").state.power == "on", "not even shut down"


@pytest.mark.parametrize("drift", [{}, {"n1": ["sysctl_off"]}], ids=["nothing of its own", "its own"])
def test_who_approves_the_plan_of_one_approves_what_it_takes_along(fed: Worlds, drift: dict[str, Any]) -> None:
    here = fed(PAIR, drift=drift)
    plan = here.plan()
    assert (plan.totals.nodes_disrupted, plan.totals.nodes_out_peak) == (2, 2)
    assert {name.rpartition("-")[2] for work in plan.workloads for name in [work.workload]} >= {"n0", "n1"}, (
        plan.workloads
    )
    report = here.apply(approved=plan)
    assert cuts(here) == [1, 1, 0], report.results
    assert here.serves("n0")
    assert here.serves("n1")


# --- whatever happens -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    sockets: Mapping[str, str]
    faults: Mapping[str, Mapping[str, Any]]
    budget: str
    held: str  # a node, from some second on; "" = none
    kills: tuple[float, ...]  # after so many seconds of a run, one after another


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = ("n0", "n1", "n2", "n3")
    sockets = draw(st.sampled_from([PAIR, PAIR | {"n2": "A0"}, PAIR | {"n2": "A2", "n3": "A2"}]))
    faults: dict[str, Any] = {"n0": ILL} | dict.fromkeys(draw(st.sets(st.sampled_from(names), max_size=2)), ILL)
    bad = draw(st.sampled_from([*names, ""]))
    if bad:
        other = draw(st.sampled_from(["pdb_never_yields", "bmc_unreachable", "ssh_refused", "power_ignored"]))
        faults[bad] = faults.get(bad, {}) | {other: {}}
    kills = st.lists(st.sampled_from([20.0, 60.0, 110.0, 160.0, 200.0, 240.0, 300.0, 420.0, 600.0]), max_size=3)
    return Case(
        sockets, faults, draw(st.sampled_from(["2", "3", "100%"])), draw(st.sampled_from(["", "", "n1"])),
        tuple(draw(kills)),
    )  # fmt: skip


def killed(here: World, after_s: float) -> None:
    """A run whose process is gone after some time: nothing of it does anything any more, least of all tidy up."""

    async def run() -> None:
        work = asyncio.create_task(here.applying(wait_s=1800.0))
        await asyncio.wait([work, asyncio.create_task(here.clock.sleep(after_s))], return_when="FIRST_COMPLETED")
        with mock.patch.object(module, "_give_power", mock.AsyncMock(side_effect=asyncio.CancelledError)):
            work.cancel()
            await asyncio.wait([work])

    here.run(run())


@settings(few, max_examples=max(2, few.max_examples // 6))
@given(cases())
def test_no_sibling_that_is_not_counted_out_ever_loses_power(case: Case) -> None:
    """Whoever loses power is marked, empty and within the budget, and no run that dies leaves a machine dark."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as where:
        here = fed_world(
            partial(World, Path(where)), case.sockets, nodes=4, faults=case.faults,
            settings={"budgets": (d.BudgetLimit("fleet", case.budget),), "brake": Brake("100%", "100%")},
        )  # fmt: skip
        try:
            play(here, case)
        finally:
            here.ledger.close()


def play(here: World, case: Case) -> None:
    checker, lost = InvariantChecker(here), watched(here)
    for after_s in case.kills:
        killed(here, after_s)
        here.clock.elapsed += 300.0
    if case.held:
        here.ledger.hold(case.held, "mine", "anna", None, here.clock.now())
    for _ in range(2):
        here.apply()
        here.clock.elapsed += 1200.0
    assert all(marked and not pods for _, marked, pods in lost), (case, lost)
    assert not checker.seen, case
    assert all_on(here), case
    well = {name for name in here.fleet.nodes if name not in case.faults and name != case.held}
    assert all(here.serves(name) for name in well), (case, [here.did(name) for name in well])
