"""Counters of errors that rise: what is done for them, what heals them, and what the ledger keeps meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from reconciler.converge.run import Ended
from reconciler.model.desired import Rung
from reconciler.model.plan import Goal
from reconciler.model.records import COUNTED
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
HOUR = 3600.0

assert PROFILE.remediation is not None
LADDER = (Rung("soft_restart", 1), Rung("power_cycle", 1))
POLICY = replace(PROFILE.remediation, ladder=LADDER)
POLICED = replace(PROFILE, digest="policed", remediation=POLICY)
RUNGS = {rung.action for rung in LADDER}


def looked_at(world: Worlds) -> World:
    here = world(nodes=2, profile=POLICED)
    here.adopt()
    here.apply(wait_s=0.0)
    return here


def treated(here: World, node: str = "n0") -> list[str]:
    return [one.action for one in here.ledger.node(node).attempts if one.action in RUNGS and one.outcome == "done"]


def test_errors_of_the_bus_that_only_a_cold_boot_ends(world: Worlds) -> None:
    """A warm boot sets the counter back, and it rises again: the next rung follows, and after it nothing."""
    here = looked_at(world)
    here.machine("n0").inject("error_counter", counter="aer_fatal", per_hour=60.0)
    for _ in range(6):
        here.clock.elapsed += HOUR / 2
        assert here.apply().results["n0"].state in (Ended.DONE, Ended.CONVERGED)
    assert treated(here) == ["soft_restart", "power_cycle"]
    assert here.serves("n0")
    assert here.machine("n0").state.faults == {}
    assert treated(here, "n1") == []


def test_a_port_that_flaps_after_each_boot_stays_out_of_service(world: Worlds) -> None:
    """Its cable has to be exchanged: both rungs are tried, and a person is told."""
    here = looked_at(world)
    here.machine("n0").inject("flap", port=1, every_s=60.0)
    for _ in range(8):
        here.clock.elapsed += HOUR / 2
        here.apply()
    assert treated(here) == ["soft_restart", "power_cycle"]
    assert not here.serves("n0")
    plan = here.plan().nodes["n0"]
    assert plan.goal is Goal.ISOLATED
    assert "mlx5_1/1: link_downed rose by" in plan.situation
    assert here.serves("n1")


def admissions(here: World, node: str = "n0") -> list[str]:
    """The rungs and the admissions of a node, in their order."""
    told = RUNGS | {"admit"}
    return [one.action for one in here.ledger.node(node).attempts if one.action in told and one.outcome == "done"]


def test_a_treated_node_is_not_admitted_while_its_counters_rise_again(world: Worlds) -> None:
    """Its gate passes after each rung, and is the load under which they rise."""
    here = looked_at(world)
    here.machine("n0").inject("error_counter", counter="aer_fatal", per_hour=60.0)
    here.clock.elapsed += HOUR / 2
    assert here.apply().results["n0"].state is Ended.DONE
    assert admissions(here) == ["soft_restart", "power_cycle", "admit"], "a cold boot ends it, and a warm one does not"
    assert here.gate.runs.count("n0") == 2, "after each rung"
    assert here.serves("n0")


def test_errors_below_the_threshold_of_a_window_are_above_its_rate_in_a_gate(world: Worlds) -> None:
    """1,200 an hour are 20 in the minute of the gate: ten times the rate of IBTA, and less than the 120 of an hour."""
    here = looked_at(world)
    here.machine("n0").inject("error_counter", counter="symbol_error", per_hour=1200.0)
    here.clock.elapsed += HOUR / 2
    here.apply()
    assert "admit" not in admissions(here)[:2]
    plan = here.plan().nodes["n0"]
    assert here.serves("n0") is (here.machine("n0").state.faults == {})
    assert here.serves("n0") or "symbol_error rose by" in plan.situation


def test_a_node_that_needs_no_gate_is_watched_for_a_minute_of_its_new_boot(world: Worlds) -> None:
    """Somebody boots it by hand while it is drained: nothing that was done voids its certificate."""
    here = looked_at(world)
    here.machine("n0").inject("error_counter", counter="aer_fatal", per_hour=200.0)
    here.clock.elapsed += HOUR / 2

    async def boots() -> None:
        await here.started("drain")
        here.machine("n0").reboot()

    async def both() -> None:
        await asyncio.gather(here.applying(), boots())

    here.run(both())
    assert admissions(here) == ["soft_restart", "power_cycle", "admit"]


def test_what_is_only_reported_leaves_the_node_alone_and_goes_away(world: Worlds) -> None:
    here = looked_at(world)
    here.machine("n0").inject("error_counter", counter="aer_corrected", per_hour=9000.0)
    here.clock.elapsed += HOUR / 2
    here.apply()
    assert [item.path for item in here.plan().nodes["n0"].drift] == ["health.aer_corrected"]
    here.machine("n0").clear("error_counter")
    for _ in range(3):
        here.clock.elapsed += HOUR
        here.apply()
    assert here.plan().nodes["n0"].drift == ()
    assert treated(here) == []


def test_the_ledger_keeps_a_look_for_each_window_and_no_more(world: Worlds) -> None:
    here = looked_at(world)

    def looks() -> list[str]:
        return sorted(key for key in here.ledger.node("n0").silent_since if key.startswith(COUNTED))

    before = looks()
    assert [" ".join(key.split()[:3]) for key in before] == [
        "counted counters 12h",
        "counted counters 1h",
        "counted daemon_counters 20m",
        "counted dcgm_counters 10m",
        "counted dcgm_counters 1h",
        "counted gpu_counters 10m",
        "counted nvlink_counters 1h",
    ]
    for _ in range(3):
        here.clock.elapsed += 13 * HOUR
        here.apply()
    assert looks() == before
    here.machine("n0").reboot()
    here.clock.elapsed += HOUR
    here.apply()
    assert len(looks()) == len(before)
    assert not set(looks()) & set(before), "a boot drops them"
