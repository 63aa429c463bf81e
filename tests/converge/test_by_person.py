"""A node without a BMC is drained and held until a person has reimaged it, and comes back through its gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.model.backup import DesiredBackup
from reconciler.model.desired import Desired, DesiredInventory, Endpoints
from reconciler.model.outcome import Declined, Done
from reconciler.planner.node.actions import ACTIONS
from tests.converge.test_backup import BACKUP, DATA, NEW, each, to_new_image
from tests.converge.test_k3s_killed import killed_at, surviving
from tests.converge.world import PROFILE, SIGNATURES, World

Worlds = Callable[..., World]
HOUR = 3600.0
BARE = replace(
    PROFILE, firmware=(), bios={}, secure_boot=None, boot_order=None, digest="bare",
    inventory=DesiredInventory(gpus=4, nvlinks_per_gpu=18),
)  # fmt: skip


def by_person(world: Worlds, backup: DesiredBackup | None = None, **changes: Any) -> World:
    """A fleet of two without BMCs, in service."""

    def bare(node: Desired) -> Desired:
        return replace(node, endpoints=Endpoints(None, node.endpoints.host), by_person=True)

    profile = replace(BARE, backup=backup)
    signatures = {**SIGNATURES, (NEW.name, NEW.version): True}
    here = world(nodes=2, profile=profile, each=bare, signatures=signatures, **changes)
    here.adopt()
    for name in here.fleet.nodes:
        here.machine(name).disk().files |= DATA
    return here


def person_reimages(here: World, name: str, version: str = NEW.version) -> None:
    """Boot a stick, write this version over the disk and boot it, as a person does."""
    machine = here.machine(name)
    disk = machine.disk()
    disk.version, disk.sha256, disk.files = version, NEW.sha256 if version == NEW.version else "0" * 64, {}
    machine.reboot()
    here.clock.elapsed += HOUR


def test_it_is_drained_and_held_and_comes_back_when_a_person_has_reimaged_it(world: Worlds) -> None:
    here = by_person(world)
    to_new_image(here, "n0")
    planned = [action.name for action in here.plan().nodes["n0"].actions]
    assert planned.index("drain") < planned.index("hold_for_reimage") < planned.index("await_reimage"), planned
    report = here.apply(wait_s=0.0)
    assert (here.serves("n0"), here.marked("n0")) == (False, True)
    assert (
        "drained and held until a person reimages it: write image ubuntu-gpu 2026.12.0" in report.results["n0"].detail
    )
    for _ in range(3):
        here.apply(wait_s=0.0)
    assert here.did("n0") == ["mark", "drain", "hold_for_reimage"]  # nothing more is tried while nobody came
    person_reimages(here, "n0")
    here.apply(wait_s=10 * HOUR)
    assert here.serves("n0")
    did = here.did("n0")
    assert did.index("await_reimage") < did.index("run_gate") < did.index("admit"), did
    assert not [node.node for node in here.plan().nodes.values() if node.actions]


def test_what_it_had_is_saved_before_a_person_may_write_and_back_before_the_gate(world: Worlds) -> None:
    here = by_person(world, BACKUP)
    to_new_image(here, "n0")
    here.apply(wait_s=0.0)
    assert here.did("n0") == ["mark", "drain", "back_up", "hold_for_reimage"]
    person_reimages(here, "n0")
    here.apply(wait_s=10 * HOUR)
    did = here.did("n0")
    assert did.index("await_reimage") < did.index("restore_backup") < did.index("run_gate"), did
    assert DATA.items() <= here.machine("n0").disk().files.items()
    assert here.serves("n0")


def test_another_image_than_the_wanted_one_is_not_taken_in(world: Worlds) -> None:
    here = by_person(world)
    to_new_image(here, "n0")
    here.apply(wait_s=0.0)
    person_reimages(here, "n0", "2026.10.9")
    report = here.apply(wait_s=0.0)
    assert "drained and held until a person reimages it" in report.results["n0"].detail
    assert "await_reimage" not in here.did("n0")
    assert not here.serves("n0")


def test_another_machine_is_left_alone(world: Worlds) -> None:
    here = by_person(world)
    each(here, lambda node: replace(node, serial="SN-other"), "n0")
    to_new_image(here, "n0")
    report = here.apply(wait_s=0.0)
    assert here.did("n0") == []
    assert "the spec says SN-other: is this the right machine?" in report.results["n0"].detail


def test_the_hold_ends_where_the_image_is_wanted_no_more(world: Worlds) -> None:
    here = by_person(world)
    before = here.fleet
    to_new_image(here, "n0")
    here.apply(wait_s=0.0)
    here.fleet = before
    here.apply(wait_s=10 * HOUR)
    assert here.serves("n0")
    assert "await_reimage" not in here.did("n0")


def without_image(here: World) -> None:
    each(here, lambda node: replace(node, profile=replace(node.profile, image=None, digest="no image")), "n0")


def test_without_an_image_nobody_waits_for_a_person(world: Worlds) -> None:
    """A pool that names no image has nodes whose system the reconciler leaves to others."""
    here = by_person(world)
    without_image(here)
    here.apply(wait_s=0.0)
    person_reimages(here, "n0", "2030.1.0")
    here.apply(wait_s=10 * HOUR)
    assert here.serves("n0")
    assert here.did("n0") == ["mark", "drain", "run_gate", "admit"], "it restarted, so it is tested anew, and no more"


@pytest.mark.parametrize("written", [False, True])
def test_the_hold_ends_where_the_spec_names_no_image_any_more(world: Worlds, written: bool) -> None:
    """What a person has written meanwhile is taken in all the same: its data is put back, and it is tested."""
    here = by_person(world, BACKUP)
    to_new_image(here, "n0")
    here.apply(wait_s=0.0)
    assert here.did("n0")[-1] == "hold_for_reimage"
    if written:
        person_reimages(here, "n0")
    without_image(here)
    here.apply(wait_s=10 * HOUR)
    assert here.serves("n0"), here.plan().nodes["n0"].blocked
    assert ("await_reimage" in here.did("n0"), "restore_backup" in here.did("n0")) == (written, written)
    assert DATA.items() <= here.machine("n0").disk().files.items()


def test_nothing_is_done_to_its_power_or_disk(world: Worlds) -> None:
    """Neither for an image, nor for its health, nor when it is off."""
    for prepare in (lambda _: None, lambda machine: machine.inject("xid", code=79), lambda machine: machine.poweroff()):
        here = by_person(world)
        prepare(here.machine("n0"))
        here.clock.elapsed += HOUR
        to_new_image(here)
        here.apply(wait_s=0.0)
        for name in here.fleet.nodes:
            planned = {action.name for action in here.plan().nodes[name].actions} | {
                one.partition("!")[0] for one in here.did(name)
            }
            needs_bmc = {one for one in planned if "identity_ok" in ACTIONS[one].requires}
            assert needs_bmc == set()
            assert here.machine(name).state.counters.power_cycles == 0
            assert here.machine(name).state.counters.installs == 0


def test_neither_action_trusts_the_plan(world: Worlds) -> None:
    here = world(nodes=1)
    each(here, lambda node: replace(node, by_person=True))
    assert isinstance(here.act("await_reimage"), Declined)
    assert isinstance(here.act("hold_for_reimage"), Done)
    outcome = here.act("await_reimage")
    assert isinstance(outcome, Declined)
    assert outcome.detail == "no person has reimaged it yet"


@pytest.mark.parametrize("number", [1, 2, 4, 6, 8, 11])
def test_a_run_that_dies_anywhere_is_gone_on_with(world: Worlds, number: int) -> None:
    here = by_person(world, BACKUP)
    to_new_image(here, "n0")
    with killed_at(number), surviving():
        here.apply(wait_s=0.0)
    here.apply(wait_s=0.0)
    assert here.did("n0")[-1] == "hold_for_reimage"
    person_reimages(here, "n0")
    with killed_at(number), surviving():
        here.apply(wait_s=10 * HOUR)
    here.apply(wait_s=10 * HOUR)
    assert DATA.items() <= here.machine("n0").disk().files.items()
    assert here.serves("n0")
