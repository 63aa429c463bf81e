"""Power and restarts: the proof is a new boot id, and what was staged is in effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.model.outcome import Declined, Done, Permanent, Transient
from reconciler.model.vocab import NodeState
from reconciler.planner.node.actions import spec_of
from tests.converge.world import World

Worlds = Callable[..., World]


def boot_id(here: World, node: str = "n0") -> str:
    return here.machine(node).system().boot_id


@pytest.mark.parametrize("action", ["power_cycle", "soft_restart"])
def test_a_restart_gives_a_new_boot(world: Worlds, action: str) -> None:
    here = world(nodes=1)
    before = boot_id(here)
    assert isinstance(here.act(action), Done)
    assert boot_id(here) != before
    assert here.machine("n0").state.counters.boots == 1
    assert here.machine("n0").state.counters.power_cycles == (action == "power_cycle")


@pytest.mark.parametrize("action", ["power_cycle", "soft_restart"])
def test_a_restart_that_happened_before_the_last_run_died_is_not_repeated(world: Worlds, action: str) -> None:
    here = world(nodes=1)
    outcome = here.act(action, resumed={"boot_id": "before the restart"})
    assert outcome == Done("it had rebooted before the last run ended", changed=False)
    assert here.machine("n0").state.counters.boots == 0


def test_a_power_cycle_that_died_while_off_goes_on_from_there(world: Worlds) -> None:
    here = world(nodes=1)
    before = boot_id(here)
    here.machine("n0").power("force_off")
    here.clock.elapsed += 10
    assert isinstance(here.act("power_cycle", resumed={"boot_id": before}), Done)
    assert boot_id(here) != before
    assert here.machine("n0").state.counters.power_cycles == 1


def test_a_system_that_hangs_is_forced_off(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"host_hung": {}}})
    here.ledger.remember_identities({"n0": ("SN-n0", None)}, here.clock.now())
    assert isinstance(here.act("power_cycle"), Done)
    assert here.machine("n0").state.counters.power_cycles == 1


def test_a_shutdown_that_never_ends_is_escalated(world: Worlds) -> None:
    """C3: it hangs after we saw it answer."""
    here = world(nodes=1)

    async def cycle() -> Any:
        import asyncio

        action = asyncio.create_task(here.acting("power_cycle"))
        await asyncio.sleep(3.5)
        here.machine("n0").inject("host_hung")
        return await action

    assert isinstance(here.run(cycle()), Done)
    assert here.machine("n0").state.counters.power_cycles == 1


def test_power_on_is_repeated_through_a_window_of_conflicts(world: Worlds) -> None:
    """A7: 409 to On for a while after power-off."""
    here = world(nodes=1, faults={"n0": {"power_on_conflict": {"seconds": 35.0}}})
    assert isinstance(here.act("power_cycle"), Done)


def test_power_on(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["powered_off"]})
    outcome = here.act("power_on")
    assert outcome == Done("on, and the host answers")
    assert here.machine("n0").state.power == "on"
    assert here.act("power_on") == Done("on, and the host answers", changed=False)


@pytest.mark.parametrize("why", ["a cordon of somebody else", "a hold", "quarantine", "no plan"])
def test_a_machine_that_somebody_keeps_off_stays_off(world: Worlds, why: str) -> None:
    """Pitfall C1: no value of the spec is about power, so no pass puts it back."""
    cordon = ["foreign_cordon"] if why == "a cordon of somebody else" else []
    state = NodeState.QUARANTINED if why == "quarantine" else NodeState.ACTIVE
    here = world(nodes=1, drift={"n0": ["powered_off", *cordon]}, node={"state": state})
    here.adopt()
    if why == "a hold":
        here.ledger.hold("n0", "a fan is changed", "ops", None, here.clock.now())
    if why == "no plan":
        here.observe()
        here.plan()
    else:
        here.apply()
    assert here.machine("n0").state.power == "off"
    assert here.machine("n0").state.counters.boots == 0


def test_nothing_but_an_action_changes_power(world: Worlds) -> None:
    """Pitfall C1: each boot of a run is one that an action of its journal made."""
    drift = {"n0": ["powered_off"], "n1": ["old_image"], "n2": ["bios_off"], "n3": ["sysctl_off"]}
    here = world(nodes=5, drift=drift)
    here.adopt()
    here.apply()
    for name in here.fleet.nodes:
        booting = [action for action in here.did(name) if spec_of(action).boots]
        assert bool(booting) == (here.machine(name).state.counters.boots > 0), name
        assert bool(booting) == (name in ("n0", "n1", "n2"))


@pytest.mark.parametrize("action", ["power_cycle", "power_on"])
def test_an_order_that_is_accepted_and_ignored_is_no_restart(world: Worlds, action: str) -> None:
    """Pitfall A9."""
    off = ["powered_off"] if action == "power_on" else []
    here = world(nodes=1, drift={"n0": off}, faults={"n0": {"power_ignored": {"times": 0}}})
    outcome = here.act(action)
    assert isinstance(outcome, Transient)
    assert "did not power o" in outcome.detail
    assert here.machine("n0").state.counters.boots == 0


def test_a_restart_of_which_the_host_says_nothing_new_is_none(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfalls A9, I1: the command ends well, the host answers, and its boot id is the one of before."""
    here = world(nodes=1)
    monkeypatch.setattr(here.machine("n0"), "_enter_post", lambda **_: None)
    outcome = here.act("soft_restart")
    assert isinstance(outcome, Transient), outcome
    assert "did not come back" in outcome.detail


def test_a_machine_that_hangs_in_post_is_reported_in_bounded_time(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"post_hang": {"times": 5}}})
    began = here.clock.elapsed
    outcome = here.act("power_cycle")
    assert isinstance(outcome, Transient)
    assert "did not come back within 30m" in outcome.detail
    assert here.clock.elapsed - began < 2400


def test_a_restart_without_boot_id_is_not_started(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"ssh_refused": {}}})
    outcome = here.act("soft_restart")
    assert isinstance(outcome, Declined)
    assert here.machine("n0").state.counters.boots == 0


def test_a_restart_brings_in_staged_settings_and_says_when_it_did_not(world: Worlds) -> None:
    here = world(nodes=2, drift={"n*": ["bios_off"]})
    assert isinstance(here.act("set_bios", "n0"), Done)
    assert isinstance(here.act("soft_restart", "n0"), Done)
    assert here.machine("n0").state.bios["NumaNodesPerSocket"] == "NPS1"

    assert isinstance(here.act("set_bios", "n1"), Done)

    async def forget() -> Any:
        import asyncio

        action = asyncio.create_task(here.acting("soft_restart", "n1"))
        await asyncio.sleep(10)
        here.machine("n1").clear_pending_bios()
        return await action

    outcome = here.run(forget())
    assert isinstance(outcome, Permanent)
    assert "BIOS NumaNodesPerSocket is" in outcome.detail


def test_a_bmc_that_shows_another_machine_is_not_touched(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"wrong_machine": {}}})
    outcome = here.act("power_cycle")
    assert isinstance(outcome, Declined)
    assert outcome.code == "identity"
    assert here.machine("n0").state.power == "on"
    assert here.machine("n0").state.counters.boots == 0
