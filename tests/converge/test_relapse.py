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
