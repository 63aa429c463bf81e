"""Images that the running system writes into its other slot: one reboot, no installer, and the same proof."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.model.desired import DesiredImage, DiskLayout
from reconciler.model.drift import ACTIONABLE
from reconciler.model.observed import Answered
from reconciler.model.outcome import Done, Transient
from reconciler.model.vocab import Provision
from tests.converge.world import IMAGE, PROFILE, SIGNATURES, World

Worlds = Callable[..., World]
GIB = 2**30
LAYOUT = DiskLayout(esp=GIB, root=20 * GIB, state=4 * GIB)
SLOTS = replace(IMAGE, layout=LAYOUT, preserve=("/state", "/data"))
OLD = {"n*": ["old_image"]}


def profile(image: DesiredImage = SLOTS) -> Any:
    return replace(PROFILE, digest=f"slots {image.version} {image.in_place} {image.preserve}", image=image)


@pytest.fixture
def slots(world: Worlds) -> Callable[..., World]:
    """Build a world whose nodes run an old image from slot a."""

    def build(image: DesiredImage = SLOTS, **changes: Any) -> World:
        here = world(**{"nodes": 1, "drift": OLD, "profile": profile(image), **changes})
        here.adopt()
        return here

    return build


def counted(here: World, node: str = "n0") -> tuple[int, int, int, int]:
    counters = here.machine(node).state.counters
    return counters.boots, counters.power_cycles, counters.writes, counters.installs


def running(here: World, node: str = "n0") -> tuple[str, str]:
    disk = here.machine(node).disk()
    return disk.version, disk.slot


def wants(here: World, image: DesiredImage) -> None:
    fleet = here.fleet
    nodes = {name: replace(node, profile=profile(image)) for name, node in fleet.nodes.items()}
    here.fleet = replace(fleet, nodes=nodes)
    here.signatures = {**SIGNATURES, (image.name, image.version): True}


def told(here: World) -> str:
    (item,) = [one for one in here.plan().nodes["n0"].drift if one.path == "image.version" and one.kind in ACTIONABLE]
    return item.detail


def test_a_node_that_is_well_takes_one_reboot_and_no_installer(slots: Worlds) -> None:
    here = slots()
    assert told(here) == "in place, by the running system"
    assert "reimage:slot" in [action.id for action in here.plan().nodes["n0"].actions]
    here.apply()
    assert "reimage:slot" in here.did("n0")
    assert "reimage" not in here.did("n0")
    assert counted(here) == (1, 0, 1, 1)
    assert running(here) == (IMAGE.version, "b")
    assert here.machine("n0").disk().nonce == here.ledger.node("n0").nonce
    assert here.serves("n0")
    assert here.gate.runs == ["n0"], "another image voids the certificate"
    assert here.did("n0").index("drain") < here.did("n0").index("reimage:slot") < here.did("n0").index("admit")


def test_the_way_back_is_one_reboot_and_writes_nothing(slots: Worlds) -> None:
    here = slots()
    before = here.machine("n0").disk()
    old = replace(SLOTS, version=before.version, sha256=before.sha256, contents={})
    here.apply()
    wants(here, old)
    here.fabric.bmc(here.fleet.nodes["n0"])  # the lab learns of the image
    here.apply()
    assert running(here) == (old.version, "a")
    assert counted(here) == (2, 0, 1, 1)
    assert here.serves("n0")


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (replace(SLOTS, in_place=False), "by the installer, which keeps /state and /data: the image asks for it"),
        (replace(SLOTS, preserve=("/state",)), "by the installer, which keeps /state: /data would be made anew"),
        (replace(SLOTS, preserve=()), "by the installer: /state and /data would be made anew"),
        (replace(SLOTS, layout=None, preserve=()), ""),
    ],
)
def test_what_the_spec_wants_otherwise_takes_the_installer(slots: Worlds, image: DesiredImage, why: str) -> None:
    here = slots(image)
    assert told(here) == why
    here.apply()
    assert "reimage" in here.did("n0")
    assert "reimage:slot" not in here.did("n0")
    assert running(here)[0] == IMAGE.version
    assert here.serves("n0")


OTHER = {"esp": GIB, "root": 10 * GIB, "state": 4 * GIB, "data": 1}


def test_another_layout_takes_the_installer_where_nothing_is_to_be_kept(slots: Worlds) -> None:
    here = slots(replace(SLOTS, preserve=()))
    here.machine("n0").disk().layout = dict(OTHER)
    assert told(here) == "by the installer: the disk was laid out with another root"
    here.apply()
    assert (running(here)[0], here.serves("n0")) == (IMAGE.version, True)


@pytest.mark.parametrize(
    ("layout", "why"),
    [(OTHER, "the disk was laid out with another root"), ({}, "the disk has no layout")],
)
def test_a_node_whose_install_would_lose_what_is_kept_stays_in_service(
    slots: Worlds, layout: dict[str, int], why: str
) -> None:
    """The installer would refuse the disk, and the node would be out of service by then."""
    here = slots()
    disk = here.machine("n0").disk()
    disk.slot, disk.layout = ("a" if layout else ""), dict(layout)
    result = here.apply().results["n0"]
    assert f"{why}; /state and /data would be lost" in result.detail, result
    assert (here.did("n0"), here.serves("n0"), counted(here)) == ([], True, (0, 0, 0, 0))


def test_a_blank_disk_has_nothing_to_lose(slots: Worlds) -> None:
    here = slots(drift={"n0": ["blank"]}, node={"provision": Provision.BLANK})
    here.apply()
    assert (running(here)[0], here.serves("n0")) == (IMAGE.version, True)


def test_a_bmc_without_virtual_media_needs_none(slots: Worlds) -> None:
    here = slots()
    here.machine("n0").state.has_media = False
    here.apply()
    assert running(here) == (IMAGE.version, "b")


def test_an_ill_node_takes_the_installer(slots: Worlds) -> None:
    here = slots()
    here.machine("n0").inject("ecc_errors", gpu=0)
    assert told(here).startswith("by the installer, which keeps /state and /data: the node is not well: ")


@pytest.mark.parametrize("phase", ["started", "writing", "written"])
def test_what_fails_in_place_goes_by_the_installer_next(slots: Worlds, phase: str) -> None:
    here = slots(faults={"n0": {"installer_fails": {"phase": phase, "times": 1}}})
    here.apply()
    did = here.did("n0")
    assert did.index("reimage:slot!transient") < did.index("reimage")
    assert running(here)[0] == IMAGE.version
    assert here.serves("n0")


def test_a_program_that_dies_is_noticed(slots: Worlds) -> None:
    here = slots(faults={"n0": {"installer_dies": {"times": 1}}})
    here.apply()
    assert "reimage:slot!transient" in here.did("n0")
    assert running(here)[0] == IMAGE.version


@pytest.mark.parametrize("image", [SLOTS, replace(SLOTS, in_place=False)])
def test_an_image_that_does_not_come_up_is_a_failed_attempt(slots: Worlds, image: DesiredImage) -> None:
    """The boot loader falls back, and image.json on the partition that both slots share still says the new one."""
    here = slots(image, faults={"n0": {"slot_fails": {"times": 0}}})
    old = running(here)
    here.apply(wait_s=0.0)
    assert running(here) == old
    assert not here.serves("n0")
    host = here.observe().nodes["n0"].host
    assert isinstance(host, Answered)
    seen = host.value.image
    assert seen is not None
    assert seen.slot is not None
    assert (seen.version, seen.slot.name, seen.slot.newer) == (*old, f"{IMAGE.name} {IMAGE.version}")
    failed = [one for one in here.ledger.node("n0").attempts if one.action == "reimage" and one.outcome != "done"]
    assert failed
    for one in failed:
        assert f"{IMAGE.version} did not come up: the boot loader fell back to slot a" in one.detail
        assert "\n" not in one.detail
    here.machine("n0").clear("slot_fails")
    here.apply()
    assert not here.serves("n0") or running(here)[0] == IMAGE.version


def test_an_image_that_fails_to_boot_after_it_was_proved_is_told_and_not_installed_again(slots: Worlds) -> None:
    here = slots()
    here.apply()
    assert running(here) == (IMAGE.version, "b")
    here.machine("n0").inject("slot_fails", later=True)
    here.act("power_cycle")
    before = counted(here)
    assert running(here)[1] == "a"
    here.apply()
    assert counted(here) == before
    plan = here.plan().nodes["n0"]
    assert plan.blocked is not None
    assert f"{IMAGE.version} did not come up: the boot loader fell back to slot a" in plan.blocked.detail


def test_a_lost_connection_does_not_end_the_program(slots: Worlds) -> None:
    here = slots()

    async def both() -> Any:
        return await asyncio.gather(here.acting("reimage", target="slot"), lose())

    async def lose() -> None:
        await here.clock.sleep(40)
        here.machine("n0").inject("ssh_refused")
        await here.clock.sleep(60)
        here.machine("n0").clear("ssh_refused")

    outcome, _ = here.run(both())
    assert isinstance(outcome, Done), outcome
    assert counted(here) == (1, 0, 1, 1)


@pytest.mark.parametrize("seconds", [1.0, 5.0, 20.0, 60.0, 150.0, 300.0, 420.0, 600.0, 700.0, 800.0])
def test_a_run_that_dies_at_any_time_repeats_no_write(slots: Worlds, seconds: float) -> None:
    """The program goes on by itself, and the next run finds it, or the system that it wrote."""
    here = slots()

    async def dies() -> None:
        task = asyncio.create_task(here.applying())
        await here.started("reimage")
        await here.clock.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    here.run(dies())
    here.apply()
    boots, cycles, writes, installs = counted(here)
    assert (boots, cycles, installs) == (1, 0, 1)
    assert writes <= 1
    assert running(here) == (IMAGE.version, "b")
    assert here.serves("n0")


def test_a_reboot_in_the_midst_leaves_what_runs(slots: Worlds) -> None:
    here = slots()
    old = running(here)

    async def both() -> Any:
        return await asyncio.gather(here.acting("reimage", target="slot"), reboot())

    async def reboot() -> None:
        await here.clock.sleep(60)
        here.machine("n0").reboot()

    outcome, _ = here.run(both())
    assert isinstance(outcome, Transient)
    assert running(here) == old
    assert "n0" not in here.machine("n0").state.idle_slots
    here.apply()
    assert running(here)[0] == IMAGE.version
