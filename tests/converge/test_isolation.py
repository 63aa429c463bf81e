"""Evidence of illness takes a node out of service at once; drain and repair wait; telemetry empties no fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit, Hours, NodeCondition, Rung, Window
from reconciler.model.gpus import Gpu
from reconciler.model.limits import Brake
from reconciler.model.observed import Answered
from reconciler.model.records import FLEET, ISOLATED, OWNER_ANNOTATION, RETRACTED, STORM, read_mark
from reconciler.model.vocab import DriftMode, WindowKind
from tests.converge.test_loop import HOUR, MINUTE, Looped
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
POLICY = replace(
    PROFILE.remediation, ladder=(Rung("power_cycle", 1),), node_conditions=(NodeCondition("GpuUnhealthy"),)
)
WATCHED = replace(PROFILE, digest="watched", remediation=POLICY)
NONE_OUT = (BudgetLimit("fleet", "0"),)
NEVER = Window(WindowKind.DENY, Hours(tuple(range(7)), 0, 24 * 60, "UTC"))


@pytest.fixture
def adopted(world: Worlds) -> Worlds:
    """Nodes that serve as specified, under a reconciler, a spec and drivers that are no news any more."""

    def build(**differences: Any) -> World:
        here = world(**{"profile": WATCHED, "nodes": 4, **differences})
        here.adopt()
        assert {end.state for end in here.apply().results.values()} == {Ended.CONVERGED}
        here.clock.elapsed += 2 * HOUR
        return here

    return build


def fall_ill(here: World, *names: str, **parameters: Any) -> None:
    assert here.lab.cluster is not None
    for name in names:
        here.machine(name).inject("node_condition", **parameters)
        here.lab.cluster.sync(name)


def reason(here: World, name: str) -> str:
    assert here.lab.cluster is not None
    mark = read_mark(here.lab.cluster.node(name).annotations.get(OWNER_ANNOTATION))
    return "" if mark is None else mark.reason


def attempts(here: World, name: str) -> list[str]:
    return [a.action for a in here.ledger.node(name).attempts if a.outcome == "done"]


BARS: dict[str, dict[str, Any]] = {
    "budget": {"budgets": NONE_OUT},
    "budget of its rack": {"budgets": (BudgetLimit("fleet", "100%"), BudgetLimit("rack", "0"))},
    "window": {"windows": (NEVER,)},
}


@pytest.mark.parametrize("bar", BARS)
def test_a_full_budget_or_a_closed_window_does_not_keep_an_ill_node_schedulable(adopted: Worlds, bar: str) -> None:
    here = adopted(settings=BARS[bar])
    fall_ill(here, "n1")
    report = here.apply(wait_s=0.0)
    assert reason(here, "n1") == ISOLATED + "health.condition_GpuUnhealthy"
    assert not here.serves("n1")
    assert attempts(here, "n1") == ["mark"], "drain and repair wait"
    assert report.results["n1"].state is not Ended.DONE
    assert report.plan.totals.nodes_isolated == 1
    assert report.plan.nodes["n1"].isolated == ("health.condition_GpuUnhealthy",)
    assert all(here.serves(name) for name in ("n0", "n2", "n3"))


def test_the_storm_brake_does_not_keep_an_ill_node_schedulable(adopted: Worlds) -> None:
    here = adopted()
    here.ledger.hold(STORM, "a test", "storm brake", None, here.clock.now())
    fall_ill(here, "n1")
    here.apply(wait_s=0.0)
    assert reason(here, "n1").startswith(ISOLATED)
    assert attempts(here, "n1") == ["mark"]


def test_an_isolated_node_is_drained_when_the_budget_has_room(adopted: Worlds) -> None:
    """The budget allows one node out and one is out, so the isolated nodes are drained one after another."""
    here = adopted(nodes=10, settings={"budgets": (BudgetLimit("fleet", "1"),)})
    fall_ill(here, "n1", "n2")
    report = here.apply()
    assert {name: report.results[name].state for name in ("n1", "n2")} == {"n1": Ended.DONE, "n2": Ended.DONE}
    marked = [here.ledger.node(name).attempts[0].at for name in ("n1", "n2")]
    assert abs((marked[0] - marked[1]).total_seconds()) < 60, "both are isolated at once"
    drains = {name: [(a.at, a.ended_at) for a in here.ledger.node(name).attempts] for name in ("n1", "n2")}
    first, second = sorted(drains.values(), key=lambda times: times[1][0])
    assert second[1][0] >= first[-1][0], "the second is drained when the first is back"
    assert all(here.serves(name) for name in here.fleet.nodes)


@pytest.mark.parametrize("who", ["a hold", "a stop", "observe mode"])
def test_a_person_who_says_no_wins(adopted: Worlds, who: str, tmp_path: Path) -> None:
    if who == "observe mode":
        looped = Looped(tmp_path / "observed", profile=WATCHED, settings={"drift_mode": DriftMode.OBSERVE})
        looped.clock.elapsed += 2 * HOUR
        fall_ill(looped, "n1")
        looped.go(10 * MINUTE)
        assert looped.serves("n1")
        looped.ledger.close()
        return
    here = adopted()
    fall_ill(here, "n1")
    here.ledger.hold("n1" if who == "a hold" else FLEET, "mine", "ops", None, here.clock.now())
    if who == "a hold":
        here.apply(wait_s=0.0)
    else:
        with pytest.raises(Exception, match="stopped by ops"):
            here.apply(wait_s=0.0)
    assert here.serves("n1")


def test_a_node_outside_the_approved_plan_is_isolated_and_nothing_else(adopted: Worlds) -> None:
    here = adopted(drift={})
    approved = here.plan()
    fall_ill(here, "n1")
    report = here.apply(approved=approved, wait_s=0.0)
    assert reason(here, "n1").startswith(ISOLATED)
    assert attempts(here, "n1") == ["mark"]
    assert report.results["n1"].state is Ended.STALE


def test_a_guard_that_refuses_a_plan_does_not_keep_an_ill_node_schedulable(tmp_path: Path) -> None:
    from reconciler.model.limits import Guards

    here = Looped(tmp_path, nodes=5, profile=WATCHED, settings={"guards": Guards("0", "0", "0")})
    here.go(3 * MINUTE)
    here.clock.elapsed += 2 * HOUR

    async def breaks() -> None:
        fall_ill(here, "n1")
        await here.clock.sleep(5 * MINUTE)

    here.go(10 * MINUTE, breaks)
    assert reason(here, "n1").startswith(ISOLATED)
    assert attempts(here, "n1") == ["mark"]
    here.ledger.close()


# --- two reads -------------------------------------------------------------------------------------------------------


def lose_gpu(here: World, name: str, times: int) -> list[int]:
    """The next `times` reads of the host miss a GPU. Returned is what is left of them, to be set to none."""
    port = here.fabric.host(here.fleet.nodes[name])
    assert port is not None
    genuine, left = port.facts, [times]

    async def facts(sysctls: Any, services: Any) -> Any:
        answer = await genuine(sysctls, services)
        if left[0] > 0 and isinstance(answer, Answered) and answer.value.gpus is not None:
            left[0] -= 1
            gpus: tuple[Gpu, ...] = answer.value.gpus[:-1]
            return replace(answer, value=replace(answer.value, gpus=gpus))
        return answer

    port.facts = facts  # type: ignore[method-assign]
    here.fabric.host = lambda desired, known=here.fabric.host: port if desired.node == name else known(desired)  # type: ignore[method-assign, misc]
    return left


@pytest.mark.parametrize(("reads", "isolated"), [(1, False), (9, True)])
def test_what_is_not_latched_is_read_twice(adopted: Worlds, reads: int, isolated: bool) -> None:
    here = adopted(settings={"budgets": NONE_OUT})
    lose_gpu(here, "n1", reads)
    here.apply(wait_s=0.0)
    assert reason(here, "n1").startswith(ISOLATED + "health.gpu_missing") is isolated
    assert here.serves("n1") is not isolated


def test_evidence_that_is_gone_is_no_proof(adopted: Worlds) -> None:
    """Its mark is never merely lifted: its row asks for a gate (K2), so it is drained, which waits for the budget."""
    here = adopted(settings={"budgets": NONE_OUT})
    left = lose_gpu(here, "n1", 99)
    here.apply(wait_s=0.0)
    assert here.marked("n1")
    left[0] = 0
    report = here.apply(wait_s=0.0)
    assert "health" not in {item.concern.value for item in report.plan.nodes["n1"].drift}
    assert "admit" not in attempts(here, "n1")
    assert not here.serves("n1")
    here.fleet = replace(here.fleet, settings=replace(here.fleet.settings, budgets=(BudgetLimit("fleet", "100%"),)))
    here.apply(wait_s=0.0)
    assert attempts(here, "n1")[-3:] == ["drain", "run_gate", "admit"]
    assert here.serves("n1")


# --- caps ------------------------------------------------------------------------------------------------------------


def test_no_more_of_a_pool_than_its_cap_is_isolated_for_one_signal_within_an_hour(adopted: Worlds) -> None:
    here = adopted(nodes=20, racks=20, settings={"budgets": NONE_OUT, "brake": Brake("100%", "100%", 600.0)})
    fall_ill(here, *(f"n{at}" for at in range(5)))
    report = here.apply(wait_s=0.0)
    marked = {name for name in here.fleet.nodes if reason(here, name)}
    assert marked == {"n0", "n1", "n2"}
    [incident] = report.plan.incidents
    assert (incident.signal, incident.scope) == ("health.condition_GpuUnhealthy", "pool train")
    assert incident.nodes == ("n3", "n4")
    assert "3 of 20 nodes isolated for it within an hour, where 3 may be" in incident.detail
    assert "reconciler isolation retract condition_GpuUnhealthy" in incident.detail
    here.clock.elapsed += HOUR + MINUTE
    here.apply(wait_s=0.0)
    assert {name for name in here.fleet.nodes if reason(here, name)} == {"n0", "n1", "n2", "n3"}, "20 % of 20 are 4"
    here.clock.elapsed += HOUR + MINUTE
    report = here.apply(wait_s=0.0)
    assert not reason(here, "n4")
    assert [(one.scope, one.nodes) for one in report.plan.incidents] == [("the fleet", ("n4",))]


def test_what_many_show_first_after_a_change_of_the_spec_is_an_incident(adopted: Worlds) -> None:
    here = adopted(nodes=20, racks=20, settings={"budgets": NONE_OUT, "brake": Brake("100%", "100%", 600.0)})
    more = replace(WATCHED, digest="more", inventory=replace(WATCHED.inventory, gpus=5))
    nodes = {name: replace(node, profile=more) for name, node in here.fleet.nodes.items()}
    here.fleet = replace(here.fleet, nodes=nodes)
    for _ in range(3):
        report = here.apply(wait_s=0.0)
        assert not any(reason(here, name) for name in here.fleet.nodes)
        [incident] = [one for one in report.plan.incidents if one.signal == "health.gpu_missing"]
        assert len(incident.nodes) == 20
        assert "the spec expects something else of pool train since" in incident.detail
        here.clock.elapsed += 2 * HOUR  # it is no less of an incident for being old


def test_two_that_fall_ill_after_a_change_are_isolated(adopted: Worlds) -> None:
    here = adopted(nodes=20, racks=20, settings={"budgets": NONE_OUT})
    policy = replace(POLICY, ignore_xids=(13,))
    nodes = {
        name: replace(n, profile=replace(WATCHED, digest="x", remediation=policy))
        for name, n in here.fleet.nodes.items()
    }
    here.fleet = replace(here.fleet, nodes=nodes)
    here.apply(wait_s=0.0)
    fall_ill(here, "n0", "n1")
    here.apply(wait_s=0.0)
    assert {name for name in here.fleet.nodes if reason(here, name)} == {"n0", "n1"}


# --- taking it back --------------------------------------------------------------------------------------------------


def test_a_retracted_signal_lifts_the_cordons_without_a_gate_and_sets_no_more(adopted: Worlds) -> None:
    here = adopted(nodes=10, settings={"budgets": NONE_OUT})
    fall_ill(here, "n1", persistent=True)
    here.apply(wait_s=0.0)
    assert reason(here, "n1")
    here.ledger.hold(RETRACTED + "condition_GpuUnhealthy", "the detector is broken", "ops", None, here.clock.now())
    fall_ill(here, "n2", persistent=True)
    report = here.apply(wait_s=0.0)
    assert here.serves("n1")
    assert here.serves("n2")
    assert not here.gate.runs
    assert not report.plan.nodes["n1"].actions, "nothing is repaired for it either"
    [told] = [item for item in report.plan.nodes["n2"].drift if item.path == "health.condition_GpuUnhealthy"]
    assert (told.kind.value, told.detail) == ("reported", "retracted: reported only")
    here.ledger.release(RETRACTED + "condition_GpuUnhealthy", "ops", here.clock.now())
    here.apply(wait_s=0.0)
    assert reason(here, "n1")
    assert reason(here, "n2")


def test_a_node_that_was_drained_meanwhile_comes_back_through_its_gate(adopted: Worlds) -> None:
    here = adopted(nodes=10)
    fall_ill(here, "n1", persistent=True)
    here.apply()  # treated in vain: out of service for good
    assert "power_cycle" in attempts(here, "n1")
    here.ledger.hold(RETRACTED + "condition_GpuUnhealthy", "the detector is broken", "ops", None, here.clock.now())
    here.apply()
    assert here.gate.runs == ["n1"]
    assert here.serves("n1")


# --- told ------------------------------------------------------------------------------------------------------------


def test_a_node_that_waits_for_a_person_says_so_to_those_it_holds_up(adopted: Worlds) -> None:
    here = adopted(nodes=10, settings={"budgets": (BudgetLimit("fleet", "1"),)})
    fall_ill(here, "n1", persistent=True)
    here.apply()  # its ladder is used up
    fall_ill(here, "n3")
    report = here.apply(wait_s=0.0)
    blocked = report.plan.nodes["n3"].blocked
    assert blocked is not None
    assert "n1 waits for a person: repair it, or set `state: quarantined` for it in the spec" in blocked.detail


@pytest.fixture
def looped(tmp_path: Path) -> Iterator[Looped]:
    here = Looped(tmp_path, nodes=10, racks=10, profile=WATCHED)
    yield here
    here.ledger.close()


def test_the_loop_tells_when_the_brake_is_set_by_what_and_what_it_holds_back(looped: Looped) -> None:
    here = looped

    async def storms() -> None:
        await here.clock.sleep(5 * MINUTE)
        for name in ("n1", "n2", "n3", "n4"):
            here.machine(name).inject("host_hung")
        await here.clock.sleep(20 * MINUTE)
        here.ledger.release(STORM, "ops", here.clock.now())

    here.go(40 * MINUTE, storms)
    told = here.said("brake")
    assert told[0].startswith("the storm brake is set: 4 of 10 nodes of the fleet went bad within")
    assert "It holds back" in told[0]
    assert "the storm brake is lifted" in told
    assert here.seen.fleet is not None


def test_the_loop_tells_an_incident_once(looped: Looped) -> None:
    here = looped

    async def falls() -> None:
        await here.clock.sleep(5 * MINUTE)
        for name in ("n1", "n2", "n3", "n4", "n5"):
            fall_ill(here, name, persistent=True)
        await here.clock.sleep(20 * MINUTE)

    here.go(30 * MINUTE, falls)
    told = here.said("incident")
    assert len([line for line in told if "of the fleet" in line]) == 1, told
    assert "within an hour of a change: reconciler" in told[0]
