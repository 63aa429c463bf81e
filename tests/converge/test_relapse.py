"""Pauses after failures, and after actions whose effect did not last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reconciler.converge.run import Ended
from reconciler.lab.hardware.machine import Machine
from reconciler.model.plan import BlockCode
from tests.converge.world import World

DROPPED = "SriovGlobalEnable"


def test_a_setting_that_does_not_hold_is_set_less_and_less_often(world: Callable[..., World]) -> None:
    here = world(nodes=1)
    here.adopt()
    here.apply()
    machine: Machine = here.machine("n0")
    restarts = []
    for _ in range(48):  # somebody sets it back every hour
        machine.state.bios[DROPPED] = "Disabled"
        report = here.apply(wait_s=0.0)
        restarts.append(sum(done.action == "soft_restart" for done in report.executed))
        here.clock.elapsed += 3600.0
    assert restarts[:2] == [1, 1], "twice at once: people do such things"
    assert 3 <= sum(restarts) <= 6, restarts
    machine.state.bios[DROPPED] = "Disabled"
    waiting = here.plan().nodes["n0"].blocked
    assert waiting is not None
    assert waiting.code is BlockCode.BACKOFF
    assert "does not hold" in waiting.detail
    assert f"bios.{DROPPED}" in waiting.detail
    assert here.serves("n0"), "it waits in service"
    here.ledger.hold("n0", "a new board", "amy", None, here.clock.now())
    here.ledger.release("n0", "amy", here.clock.now())
    assert here.plan().nodes["n0"].blocked is None, "a person has seen to it"


def test_what_the_spec_changed_since_is_no_relapse(world: Callable[..., World]) -> None:
    here = world(nodes=1)
    here.adopt()
    here.apply()
    for value in ("2", "3", "4", "5"):
        node = here.fleet.nodes["n0"]
        profile = replace(
            node.profile, digest=value, host=replace(node.profile.host, sysctls={"vm.swappiness": value})
        )  # fmt: skip
        here.fleet = replace(here.fleet, nodes={"n0": replace(node, profile=profile)})
        assert here.apply().results["n0"].state is Ended.DONE


def test_what_a_boot_loses_is_no_relapse(world: Callable[..., World]) -> None:
    here = world(nodes=1)
    here.adopt()
    here.apply()
    machine: Machine = here.machine("n0")
    for _ in range(4):  # an image with a sealed root has the default again after each boot
        machine.reboot()
        here.clock.elapsed += 900.0
        machine.sysctl_write("vm.swappiness", "60")
        report = here.apply(wait_s=0.0)
        assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    machine.sysctl_write("vm.swappiness", "60")
    here.apply(wait_s=0.0)
    machine.sysctl_write("vm.swappiness", "60")
    waiting = here.plan().nodes["n0"].blocked
    assert waiting is not None, "what somebody sets back in one boot is"
    assert "configure_host was done 2 times" in waiting.detail


def test_a_pause_of_one_action_keeps_no_other_back_that_nobody_notices(world: Callable[..., World]) -> None:
    here = world(nodes=1)
    here.adopt()
    here.apply()
    machine: Machine = here.machine("n0")
    for _ in range(3):
        machine.state.bios[DROPPED] = "Disabled"
        here.apply(wait_s=0.0)
    assert here.plan().nodes["n0"].blocked is not None
    machine.sysctl_write("vm.swappiness", "60")
    plan = here.plan().nodes["n0"]
    assert plan.blocked is None
    assert [action.id for action in plan.actions] == ["configure_host"]
    here.apply(wait_s=0.0)
    assert machine.system().sysctls["vm.swappiness"] == "1"
    left = here.plan().nodes["n0"].blocked
    assert left is not None
    assert "soft_restart was done 2 times" in left.detail, "which waits on"
    assert here.serves("n0")
