"""A machine that never answered is wiped only by consent, which names one machine and is spent once it has served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.model.errors import Position
from reconciler.model.install import InstallPhase
from reconciler.model.vocab import NodeState, Provision
from tests.converge.test_install_watch import STARTS_S, reported
from tests.converge.world import World

Worlds = Callable[..., World]
BLANK = {"n0": ["blank"]}
LINE = Position("pools/train.yaml", 7, 5)
CONSENT = {"provision": Provision.BLANK, "provenance": {"node": LINE, "provision": replace(LINE, line=9)}}


def writes(here: World) -> int:
    return here.machine("n0").state.counters.writes


@pytest.mark.parametrize("power", ["off", "on"])
def test_a_blank_machine_is_installed_by_consent_without_being_booted_first(world: Worlds, power: str) -> None:
    here = world(nodes=2, drift=BLANK, node=CONSENT)
    here.adopt()
    if power == "on":
        here.machine("n0").power("on")
        here.clock.elapsed += 600  # it waits for somebody to give it a system
    planned = {action.name: action for action in here.plan().nodes["n0"].actions}
    assert "can't be seen: provision: blank (pools/train.yaml:9:5)" in "; ".join(planned["reimage"].because)
    assert "power_on" not in planned
    assert here.apply().results["n0"].state is Ended.DONE
    assert here.serves("n0")
    counters = here.machine("n0").state.counters
    assert (counters.writes, counters.boots) == (1, 2 if power == "off" else 3)


def test_without_consent_a_machine_that_never_answered_is_not_wiped(world: Worlds) -> None:
    """Its disk may hold what no backup has. The message says what to write, and where."""
    here = world(nodes=2, drift=BLANK, node={"provenance": {"node": LINE}})
    here.adopt()
    report = here.apply()
    assert report.results["n0"].state is not Ended.DONE
    here.clock.elapsed += 86400
    result = here.apply().results["n0"]
    assert "write `provision: blank` for it (pools/train.yaml:7:5)" in result.detail
    assert writes(here) == 0


def test_a_machine_whose_spec_has_no_serial_number_is_told_it(world: Worlds) -> None:
    here = world(nodes=2, drift=BLANK, node={"provenance": {"node": LINE}, "serial": None})
    here.adopt()
    here.machine("n0").power("on")
    here.clock.elapsed += 86400
    here.observe()
    here.apply()
    here.clock.elapsed += 86400
    serial = here.machine("n0").state.serial
    assert f"write `provision: blank` for it, with its `serial: {serial}`" in here.apply().results["n0"].detail
    assert writes(here) == 0


def test_the_consent_names_one_machine(world: Worlds) -> None:
    here = world(nodes=1, drift=BLANK, node=CONSENT, faults={"n0": {"wrong_machine": {}}})
    here.adopt()
    here.apply()
    assert writes(here) == 0


def test_consent_is_spent_when_the_node_enters_service(world: Worlds) -> None:
    """A node that served and is silent now is no blank one: a network that fails wipes nothing."""
    here = world(nodes=2, drift=BLANK, node=CONSENT)
    here.adopt()
    here.apply()
    assert here.serves("n0")
    assert here.lab.cluster is not None
    here.lab.cluster.remove_node("n0")
    here.machine("n0").power("force_off")
    here.clock.elapsed += 60
    here.machine("n0").inject("ssh_refused")
    here.apply()
    assert writes(here) == 1


def test_a_system_that_answers_is_none_of_a_blank_machine(world: Worlds) -> None:
    """SSH refuses us, or the BMC shows that a system runs: somebody's work may be on it."""
    here = world(nodes=2, drift={"n0": ["not_a_member"]}, node=CONSENT, faults={"n0": {"ssh_refused": {}}})
    here.apply()
    here.clock.elapsed += 86400
    here.apply()
    assert writes(here) == 0


def test_a_half_installed_machine_is_installed_again_and_not_booted_first(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["old_image"]}, faults={"n0": {"installer_fails": {"times": 1}}})
    here.adopt()
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE
    did = here.did("n0")
    assert did[did.index("reimage!transient") + 1] == "reimage"
    counters = here.machine("n0").state.counters
    assert (counters.writes, counters.installs, counters.boots) == (2, 1, 3)
    assert here.serves("n0")


@pytest.mark.parametrize("percent", [10, 50, 90])
@pytest.mark.parametrize("dies", [True, False], ids=["the run dies, too", "the run goes on"])
def test_after_a_power_cut_in_a_first_install_the_machine_is_installed_at_once(
    world: Worlds, percent: int, dies: bool
) -> None:
    """Nothing on its disk can boot before all of it is written: booting it would cost half an hour (contract v1)."""
    here = world(nodes=1, drift=BLANK, node=CONSENT)
    here.adopt()
    machine = here.machine("n0")

    async def cut() -> ApplyReport:
        work = asyncio.create_task(here.applying())
        while not reported(here, InstallPhase.WRITING, percent):
            await here.clock.sleep(5)
            machine.catch_up()
        machine.power("force_off")
        if dies:
            work.cancel()
            await asyncio.wait([work])
            here.lab.installs.dies(here.clock.elapsed)
            await here.clock.sleep(30)
            work = asyncio.create_task(here.applying())
        return await work

    began = here.clock.elapsed
    assert here.run(cut()).results["n0"].state is Ended.DONE
    assert here.serves("n0")
    assert writes(here) == 2
    assert machine.state.counters.boots == 3, "two installers and the image"
    assert here.clock.elapsed - began < 2 * (STARTS_S + TYPICAL.install_s + TYPICAL.post_s + TYPICAL.os_boot_s)


def test_a_half_installed_machine_is_a_known_cause_in_a_plan(world: Worlds) -> None:
    why = "no disk matches serial S1"
    fails = {"installer_fails": {"times": 1, "why": why, "cause": "root_disk"}}
    here = world(nodes=1, drift={"n0": ["old_image"]}, faults={"n0": fails})
    here.adopt()
    assert here.apply().results["n0"].state is Ended.FAILED
    here.clock.elapsed += 7200
    planned = here.plan().nodes["n0"]
    [action] = [action for action in planned.actions if action.name == "reimage"]
    assert f"maybe half-installed: the installer failed: {why}" in "; ".join(action.because)
    assert planned.actions[0] is action


@pytest.mark.parametrize("state", [NodeState.QUARANTINED, NodeState.RETIRED])
def test_consent_moves_no_node_that_the_spec_leaves_alone(world: Worlds, state: NodeState) -> None:
    here = world(nodes=1, drift=BLANK, node={**CONSENT, "state": state})
    here.apply()
    assert writes(here) == 0
