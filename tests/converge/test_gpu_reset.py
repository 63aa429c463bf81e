"""The mild rungs: a reset of the GPUs and a restart of a service. Each heals its own faults alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.health.ladder import REMEDIATION
from reconciler.model.desired import DesiredInventory, Profile, Rung
from reconciler.model.outcome import Done, Transient
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
LADDER = (Rung("restart_service"), Rung("gpu_reset"), Rung("soft_restart"), Rung("power_cycle"))
TREATED = replace(PROFILE, digest="treated", remediation=replace(PROFILE.remediation, ladder=LADDER))


def done(here: World) -> list[str]:
    return [word for word in here.did("n0") if not word.startswith(("mark", "drain", "join"))]


def healed(world: Worlds, faults: Mapping[str, Any], profile: Profile = TREATED) -> World:
    here = world(nodes=2, profile=profile, faults={"n0": faults})
    here.adopt()
    here.apply()
    return here


@pytest.mark.parametrize(
    ("fault", "given", "rungs"),
    [
        ("xid", {"code": 119, "heals": "reset"}, ["gpu_reset"]),
        ("xid", {"code": 119, "heals": "boot"}, ["gpu_reset", "soft_restart"]),
        ("xid", {"code": 119, "heals": "cold"}, ["gpu_reset", "soft_restart", "power_cycle"]),
        ("xid", {"code": 79, "heals": "boot"}, ["soft_restart"]),  # no reset is the proof for this code
        ("ecc_errors", {"gpu": 2}, ["gpu_reset"]),
        ("gpu_cell", {"cell": "recovery_action", "text": "Reset"}, ["gpu_reset"]),
        ("gpu_cell", {"cell": "recovery_action", "text": "Reboot"}, ["soft_restart", "power_cycle"]),
        ("fabric_manager", {}, ["restart_service:nvidia-fabricmanager"]),
    ],
)
def test_each_fault_is_healed_by_the_mildest_rung_that_heals_it(
    world: Worlds, fault: str, given: dict[str, Any], rungs: list[str]
) -> None:
    here = healed(world, {fault: given})
    assert done(here) == [*rungs, "run_gate", "admit"]
    assert here.serves("n0")
    assert here.machine("n0").state.counters.boots == len(set(rungs) & {"soft_restart", "power_cycle"})
    assert here.did("n1") == []


@pytest.mark.parametrize(
    ("fault", "given"),
    [
        ("xid", {"code": 119, "persistent": True}),
        ("fabric_manager", {"persistent": True}),
        ("ecc_errors", {"gpu": 2, "persistent": True}),
    ],
)
def test_what_comes_back_climbs_the_ladder_and_stays_out(world: Worlds, fault: str, given: dict[str, Any]) -> None:
    here = healed(world, {fault: given})
    assert not here.serves("n0")
    assert here.marked("n0")
    assert not here.gate.runs
    assert [word for word in done(here) if not word.startswith("restart_service")][-2:] == [
        "soft_restart",
        "power_cycle",
    ]


def test_a_fault_that_returns_after_its_reset_is_a_new_one(world: Worlds) -> None:
    """The reset answered what was logged before it, and nothing that is logged after it, even when the log rotates."""
    assert TREATED.remediation is not None
    only = replace(TREATED, digest="only", remediation=replace(TREATED.remediation, ladder=(Rung("gpu_reset", 2),)))
    here = healed(world, {"xid": {"code": 119, "heals": "reset"}}, only)
    assert here.serves("n0")
    machine = here.machine("n0")
    machine.inject("xid", code=119, persistent=True)
    here.apply()
    assert done(here) == ["gpu_reset", "run_gate", "admit", "gpu_reset"]
    here.apply()
    machine.clear("xid")
    machine.system().kernel_log[:] = ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06"]
    here.clock.elapsed += 3600
    here.apply()
    assert not here.serves("n0"), "silence is no healing"


def test_what_was_treated_is_on_record_and_bounds_its_class(world: Worlds) -> None:
    """The attempt counts for the class of the signal that the node showed, and for no later one."""
    assert TREATED.remediation is not None
    once = replace(TREATED.remediation, ladder=(Rung("gpu_reset", 3),), most_of_class=(("persistent", 1),))
    here = healed(world, {"xid": {"code": 119, "heals": "reset"}}, replace(TREATED, digest="once", remediation=once))
    treated = [one.treated for one in here.ledger.node("n0").attempts if one.cause == REMEDIATION]
    assert treated == [("health.xid_119",)]
    here.machine("n0").inject("xid", code=119, persistent=True)
    here.apply()
    assert done(here) == ["gpu_reset", "run_gate", "admit"]
    assert not here.serves("n0")


def act(here: World, **context: Any) -> Any:
    """Reset the GPUs of a node that was drained."""
    here.machine("n0").gpu_clients = lambda: False
    return here.act("gpu_reset", **context)


def lines(here: World) -> list[str]:
    return [line for line in here.machine("n0").system().kernel_log if "reconciler-gpu-reset" in line]


def test_linked_gpus_are_reset_all_at_once(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"xid": {"code": 119, "gpu": 2}}})
    assert act(here) == Done("GPU 0, 1, 2, 3 reset")
    assert [line.count("nvswitch") for line in lines(here)] == [1, 1]
    assert here.machine("n0").state.counters.gpu_resets == 1


def test_of_gpus_without_links_those_that_are_ill_are_reset(world: Worlds) -> None:
    inventory = DesiredInventory(gpus=4, drives=3)
    here = world(
        nodes=1, profile=replace(PROFILE, digest="apart", inventory=inventory), faults={"n0": {"xid": {"gpu": 2}}}
    )
    for gpu in here.machine("n0").state.gpus:
        gpu.nvlinks = 0
    assert act(here) == Done("GPU 2 reset")


def test_a_gpu_in_use_is_not_reset(world: Worlds) -> None:
    here = world(nodes=1)
    here.machine("n0").gpu_clients = lambda: True
    assert here.act("gpu_reset") == Transient("processes use the GPUs: 4711, python3")
    assert lines(here) == []
    assert here.machine("n0").state.counters.gpu_resets == 0


def test_a_reset_that_is_refused_answers_nothing_in_the_log(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"gpu_reset_fails": {}}})
    outcome = act(here)
    assert isinstance(outcome, Transient)
    assert "in use by another client" in outcome.detail
    assert [line.split()[1] for line in lines(here)] == ["begins"]


def test_a_lost_gpu_is_left_to_the_next_rung(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"xid_79": {"gpu": 1}}})
    assert act(here) == Transient("GPU 1 is lost, and no reset reaches it")


def test_services_that_hold_gpus_are_stopped_for_it_and_started_again(world: Worlds) -> None:
    here = world(nodes=1)
    machine = here.machine("n0")
    machine.disk().services["nvidia-dcgm"] = True
    machine.service_set("nvidia-dcgm", active=True)
    assert isinstance(act(here), Done)
    assert machine.system().services_active["nvidia-dcgm"]


def test_a_run_that_died_leaves_no_service_stopped(world: Worlds) -> None:
    here = world(nodes=1)
    machine = here.machine("n0")
    machine.disk().services["nvidia-dcgm"] = True
    outcome = act(here, resumed={"stopped": ["nvidia-dcgm"]})
    assert isinstance(outcome, Done)
    assert machine.system().services_active["nvidia-dcgm"]


def test_a_service_is_restarted_and_seen_to_last(world: Worlds) -> None:
    here = world(nodes=1, faults={"n0": {"fabric_manager": {}}})
    assert here.act("restart_service", target="nvidia-fabricmanager") == Done(
        "nvidia-fabricmanager was restarted and is active"
    )
    assert all("fabric_state" not in gpu.cells for gpu in here.machine("n0").state.gpus)


def test_a_service_that_the_host_lacks_is_no_cure(world: Worlds) -> None:
    here = world(nodes=1)
    outcome = here.act("restart_service", target="nvidia-nothing")
    assert not isinstance(outcome, Done)
