"""The storm brake and the observer's own network: many nodes that go bad at once are not treated one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit
from reconciler.model.errors import Blind
from reconciler.model.limits import Brake
from reconciler.model.plan import BlockCode
from reconciler.model.records import BAD, STORM, Hold
from tests.converge.world import World, silences

TEN: dict[str, Any] = {"nodes": 10, "racks": 5, "settings": {"budgets": (BudgetLimit("fleet", "100%"),)}}
DARK = ("bmc_unreachable", "ssh_refused", "kubelet_not_ready")  # behind a switch that fails


@pytest.fixture
def serving(world: Callable[..., World]) -> Callable[..., World]:
    """Nodes that a run has found to be well."""

    def build(**differences: Any) -> World:
        here = world(**{**TEN, **differences})
        here.adopt()
        assert {end.state for end in here.apply().results.values()} == {Ended.CONVERGED}
        return here

    return build


def first(count: int) -> list[str]:
    return [f"n{at}" for at in range(count)]


def cut_off(here: World, names: Iterable[str]) -> None:
    for name in names:
        for fault in DARK:
            here.machine(name).inject(fault)
    here.clock.elapsed += 60.0


def join_again(here: World, names: Iterable[str]) -> None:
    for name in names:
        for fault in DARK:
            here.machine(name).clear(fault)
    here.clock.elapsed += 60.0


def lose_power(here: World, names: Iterable[str]) -> None:
    for name in names:
        here.machine(name).power("force_off")
    here.clock.elapsed += 120.0


def hang(here: World, names: Iterable[str], **parameters: Any) -> None:
    for name in names:
        here.machine(name).inject("host_hung", **parameters)
    here.clock.elapsed += 120.0


def brake(here: World) -> Hold | None:
    return next((hold for hold in here.ledger.holds() if hold.subject == STORM), None)


def resume(here: World) -> None:
    assert here.ledger.release(STORM, "ops", here.clock.now()) == 1


def switched_on(here: World) -> int:
    return sum(machine.state.counters.power_cycles for machine in here.lab.machines.values())


def ended(report: ApplyReport) -> set[Ended]:
    return {end.state for end in report.results.values()}


# --- the brake -------------------------------------------------------------------------------------------------------


def test_a_network_outage_power_cycles_no_rack(serving: Callable[..., World]) -> None:
    here = serving()
    before = switched_on(here)
    cut_off(here, first(6))
    report = here.apply()
    found = brake(here)
    assert found is not None
    assert found.owner == "storm brake"
    assert found.reason.startswith("6 of 10 nodes of the fleet went bad within 10m, more than 10%: n0, n1, n2, n3, n4,")
    assert "(6 unreachable), the first at" in found.reason
    assert report.plan.braked.startswith(f"storm brake: {found.reason} (since ")
    assert report.plan.braked.endswith("`reconciler resume` lifts it)")
    here.clock.elapsed += 3600.0
    here.apply()
    assert switched_on(here) == before
    assert not any(here.marked(name) for name in here.fleet.nodes), "a mark would empty what may well work"
    join_again(here, first(6))
    report = here.apply()
    assert ended(report) == {Ended.CONVERGED}
    assert report.plan.braked, "a person has not looked yet"
    resume(here)
    report = here.apply()
    assert (report.plan.braked, brake(here)) == ("", None)
    assert all(here.serves(name) for name in here.fleet.nodes)


def test_half_a_hall_that_loses_its_power_waits_for_a_person(serving: Callable[..., World]) -> None:
    """Neither cycled nor switched on: to switch all on at once is for a person to decide (pitfall C5)."""
    here = serving()
    before = switched_on(here)
    lose_power(here, first(6))
    report = here.apply()
    assert brake(here) is not None
    assert (switched_on(here), report.executed) == (before, ())
    for name in first(6):
        end, blocked = report.results[name], report.plan.nodes[name].blocked
        assert end.state is Ended.NOT_STARTED
        assert "6 of 10 nodes" in end.detail
        assert blocked is not None
        assert blocked.code is BlockCode.STORM
        assert report.plan.nodes[name].actions, "what would be done is planned all the same"
        assert report.plan.nodes[name].start is None, "and nobody can say when"
    here.clock.elapsed += 1200.0
    resume(here)
    report = here.apply()
    assert brake(here) is None, "what has been off for longer is no news: the person's word holds"
    assert {report.results[name].state for name in first(6)} == {Ended.DONE}
    assert all(here.serves(name) for name in here.fleet.nodes)


def test_a_resume_alone_does_not_lift_it_while_nodes_go_bad(serving: Callable[..., World]) -> None:
    here = serving()
    lose_power(here, first(6))
    here.apply()
    resume(here)
    report = here.apply()
    assert brake(here) is not None
    assert report.executed == ()


def test_a_run_that_did_not_see_the_storm_respects_the_brake(serving: Callable[..., World]) -> None:
    """By the time of the second run it is no news any more; the ledger remembers."""
    here = serving(settings={**TEN["settings"], "brake": Brake("2", "50%", 600.0)})
    hang(here, first(3))
    here.apply(wait_s=0.0)
    assert brake(here) is not None
    here.clock.elapsed += 7200.0
    here.machine("n9").inject("host_hung")
    here.clock.elapsed += 60.0
    before = switched_on(here)
    here.apply(wait_s=0.0)
    here.clock.elapsed += 600.0
    report = here.apply()
    assert switched_on(here) == before
    assert report.results["n9"].state is Ended.NOT_STARTED
    assert not here.marked("n9"), "nor is a node that falls ill alone taken out meanwhile"


def test_a_rack_is_enough(serving: Callable[..., World]) -> None:
    """2 of 20 nodes are no news for the fleet, but all there is of their rack."""
    here = serving(nodes=20, racks=10)
    lose_power(here, ["n3", "n13"])
    here.apply()
    found = brake(here)
    assert found is not None
    assert found.reason.startswith(
        "2 of 2 nodes of rack r3 went bad within 10m, more than 50%: n13, n3 (2 powered off)"
    )


def test_what_brings_nodes_back_goes_on(serving: Callable[..., World]) -> None:
    """The gate and the admission of a node that is out already, and the label of one that serves."""
    here = serving()
    here.ledger.hold(STORM, "a storm", "storm brake", None, here.clock.now())
    assert here.lab.cluster is not None
    here.lab.cluster.update_node("n1", labels={})
    done = here.act("mark", "n0")
    assert done.detail is not None
    report = here.apply()
    assert here.did("n1") == ["set_labels"]
    assert here.serves("n0")
    assert ended(report) == {Ended.DONE, Ended.CONVERGED}


@pytest.mark.parametrize("action", ["mark", "drain", "set_bios", "soft_restart", "run_gate", "admit"])
def test_it_is_looked_at_before_every_action(world: Callable[..., World], action: str) -> None:
    """Another runner, or the loop, sets it while nodes are at work: nothing that disrupts begins from then on."""
    here = world(nodes=3, racks=1, drift={"n*": ["bios_off"]})
    here.adopt()

    async def both() -> ApplyReport:
        work = asyncio.create_task(here.applying(wait_s=0.0))
        await here.started(action)
        here.ledger.hold(STORM, "a storm", "storm brake", None, here.clock.now())
        return await work

    here.run(both())
    entries = [entry for _, entry in here.ledger.journal(None, 1000)]
    at = next(at for at, entry in enumerate(entries) if entry.event == "hold")
    later = {entry.action for entry in entries[at:] if entry.event == "intent"}
    assert later <= {"set_bios", "check_trust", "run_gate", "set_labels", "admit"}
    resume(here)
    here.apply()
    assert all(here.serves(name) for name in here.fleet.nodes)
    assert all(here.did(name).count("soft_restart") == 1 for name in here.fleet.nodes)


# --- one dead node ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "racks"), [(10, 5), (4, 2), (3, 3)])
def test_one_dead_node_is_recovered(serving: Callable[..., World], nodes: int, racks: int) -> None:
    """host_down agreed, marked, quiesced, power cycled, gated, admitted; and no storm."""
    here = serving(nodes=nodes, racks=racks, node={} if racks < nodes else {"domains": {}})
    before = here.machine("n0").state.counters.power_cycles
    hang(here, ["n0"])
    early = here.apply(wait_s=0.0)
    assert early.results["n0"].state is Ended.NOT_STARTED, "silence for so short a time is no agreement"
    assert not here.marked("n0")
    here.clock.elapsed += 400.0
    report = here.apply()
    assert brake(here) is None
    assert report.results["n0"].state is Ended.DONE
    did = here.did("n0")
    assert did[:3] == ["mark", "drain", "power_cycle"]
    assert did[-1] == "admit"
    assert "run_gate" in did
    assert here.machine("n0").state.counters.power_cycles == before + 1
    assert here.serves("n0")
    assert BAD not in here.ledger.node("n1").silent_since
    here.apply()
    assert silences(here.ledger.node("n0")) == {}


def test_a_dead_node_that_no_attempt_brings_back_stays_out(serving: Callable[..., World]) -> None:
    here = serving()
    hang(here, ["n0"], persistent=True)
    here.apply(wait_s=0.0)
    here.clock.elapsed += 400.0
    for _ in range(3):
        report = here.apply()
        here.clock.elapsed += 3600.0
    assert here.did("n0").count("power_cycle") + here.did("n0").count("power_cycle!transient") <= 1
    blocked = report.plan.nodes["n0"].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.ATTEMPTS
    assert here.marked("n0")
    assert brake(here) is None


# --- the observer's own network --------------------------------------------------------------------------------------


def test_when_no_node_answers_the_observer_is_at_fault(serving: Callable[..., World]) -> None:
    here = serving()
    assert here.lab.cluster is not None
    for name in here.fleet.nodes:
        here.machine(name).inject("bmc_unreachable")
        here.machine(name).inject("ssh_refused")
    here.lab.cluster.down = True
    before = {name: here.ledger.node(name) for name in here.fleet.nodes}
    with pytest.raises(Blind, match=r"this machine can't reach 10 of 10 nodes over any way of its own \(BMC unreach"):
        here.apply()
    assert {name: here.ledger.node(name) for name in here.fleet.nodes} == before, "nothing is recorded (J6)"
    assert not any(silences(record) for record in before.values())
    assert (brake(here), here.ledger.unfinished()) == (None, [])
    assert here.plan().notes[0].startswith("this machine can't reach 10 of 10 nodes")
    here.lab.cluster.down = False
    with pytest.raises(Blind, match="while the cluster has them as ready"):
        here.apply()
    for name in here.fleet.nodes:
        here.machine(name).clear()
    assert ended(here.apply()) == {Ended.CONVERGED}


def test_a_cluster_that_misses_them_too_proves_that_they_are_down(serving: Callable[..., World]) -> None:
    here = serving()
    cut_off(here, here.fleet.nodes)
    report = here.apply()
    found = brake(here)
    assert found is not None
    assert found.reason.startswith("10 of 10 nodes of the fleet")
    assert report.executed == ()
