"""Nodes with GPUs of AMD: what amd-smi counts is found, and heals as its rows say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.model.desired import DesiredInventory, Profile, Rung
from tests.converge.world import IMAGE, PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
LADDER = (Rung("gpu_reset"), Rung("soft_restart"), Rung("power_cycle"))
MI300X: Profile = replace(
    PROFILE,
    digest="amd",
    image=replace(IMAGE, contents={"kernel": IMAGE.contents["kernel"]}),
    inventory=DesiredInventory(drives=3),
    gpu=None,
    remediation=replace(PROFILE.remediation, ladder=LADDER),
)


def world_of(world: Worlds, faults: Mapping[str, Any]) -> World:
    here = world(nodes=2, profile=MI300X)
    for name in here.fleet.nodes:
        machine = here.machine(name)
        machine.disk().driver = ""
        for gpu in machine.state.gpus:
            gpu.name = "AMD Instinct MI300X OAM"
    here.adopt()
    here.apply()
    assert here.did("n0") == []
    for kind, given in faults.items():
        here.machine("n0").inject(kind, **given)
    return here


def shown(here: World) -> list[str]:
    return [item.path for item in here.plan().nodes["n0"].drift if item.path.startswith("health.")]


def test_a_machine_of_amds_is_well_and_has_no_nvidia_smi(world: Worlds) -> None:
    here = world_of(world, {})
    facts = here.observe().nodes["n0"].host
    assert [gpu.index for gpu in facts.value.amd_gpus] == list(range(8))  # type: ignore[union-attr]
    assert shown(here) == []


@pytest.mark.parametrize(
    ("given", "rungs"),
    [
        ({}, ["soft_restart"]),  # counts are since the driver was loaded, and no reset of NVIDIA's is tried
        ({"heals": "cold"}, ["soft_restart", "power_cycle"]),
    ],
)
def test_errors_that_memory_could_not_correct_are_drained_and_treated(
    world: Worlds, given: dict[str, Any], rungs: list[str]
) -> None:
    here = world_of(world, {"ecc_errors": {"gpu": 5, "count": 2} | given})
    assert shown(here) == ["health.amd_ecc"]
    here.apply()
    assert [word for word in here.did("n0") if word in {rung.action for rung in LADDER}] == rungs
    assert here.serves("n0")
    assert shown(here) == []


def test_what_nobody_has_used_yet_is_reported_only(world: Worlds) -> None:
    here = world_of(world, {"ecc_errors": {"gpu": 5, "count": 0, "deferred": 3}})
    assert shown(here) == ["health.amd_deferred"]
    here.apply()
    assert here.did("n0") == []
    assert here.serves("n0")


def test_a_reset_that_failed_is_drained_and_booted_and_work_that_hung_is_told_only(world: Worlds) -> None:
    """Pitfall K1: a ring that timed out is mostly the work's; ROCm asks for a boot after a reset that failed."""
    here = world_of(world, {"kernel_event": {"event": "amd_ring_timeout"}})
    assert shown(here) == ["health.amd_ring_timeout"]
    here.apply()
    assert here.did("n0") == []
    here.machine("n0").inject("kernel_event", event="amd_reset_failed")
    here.apply()
    assert [word for word in here.did("n0") if word in {rung.action for rung in LADDER}] == ["soft_restart"]
    assert here.serves("n0")
    assert shown(here) == []


def test_memory_beyond_repair_waits_for_a_person(world: Worlds) -> None:
    here = world_of(world, {"kernel_event": {"event": "amd_bad_pages", "persistent": True}})
    here.apply()
    assert [word for word in here.did("n0") if word in {rung.action for rung in LADDER}] == []
    assert not here.serves("n0")
    assert "no action heals amd_bad_pages" in here.plan().nodes["n0"].situation


def test_a_gpu_that_is_gone_is_missed_and_a_certificate_binds_their_serial_numbers(world: Worlds) -> None:
    here = world(nodes=1, profile=replace(MI300X, inventory=DesiredInventory(drives=3, gpus=8)))
    machine = here.machine("n0")
    machine.disk().driver = ""
    for gpu in machine.state.gpus:
        gpu.name = "AMD Instinct MI300X OAM"
    here.adopt()
    here.apply()
    assert shown(here) == []
    bound = here.ledger.node("n0").certificate
    assert bound is not None
    assert bound.binding.gpu_serials == tuple(sorted(gpu.serial for gpu in machine.state.gpus))
    machine.state.gpus[3].lost = True
    assert "health.gpu_missing" in shown(here)
