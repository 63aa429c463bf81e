"""From an empty disk to an image in service, and on to the next one, as an operator does it."""

from __future__ import annotations

import os
import time

import pytest

from tests.machine.fleet import Fleet
from tests.machine.machine import NAME, Machine
from tests.machine.operations import (
    Figure,
    applying,
    canary,
    leave_a_canary,
    timed,
    version_of,
    wait_until,
)

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]

_SOME_BYTES = 32 << 20
# Longer than a run's lease. An hour takes no core: MACHINE_AWAY_S=3600 make machine ARGS='-k "becomes or stays_away"'
_AWAY_S = float(os.environ.get("MACHINE_AWAY_S", "75"))


@pytest.mark.brief
def test_a_power_cut_in_the_first_write_leaves_nothing_that_boots(machine: Machine, fleet: Fleet, images: None) -> None:
    """The next run installs, as the next test shows. Cuts at other shares of the write: test_6_power_cuts.py."""
    fleet.want("A new machine", version="A")
    began = time.monotonic()
    with applying(fleet) as apply:
        wait_until(apply, fleet, "it writes", lambda: machine.console.seen("] writing:", since=began))
        wait_until(apply, fleet, "some is written", lambda: machine.sent_bytes() > _SOME_BYTES)
        machine.cut_power()
    assert machine.partitions() == []


@pytest.mark.brief
def test_an_empty_disk_becomes_a_node_in_service(machine: Machine, fleet: Fleet, images: None, figure: Figure) -> None:
    """Its TPM has proved what booted: the installer's medium, and then the image, each under a nonce of its own."""
    fleet.want("A new machine", version="A")
    timed(figure, "empty disk -> A", machine, fleet)
    assert version_of(fleet) == "A"
    assert "now in service" in fleet.run("explain", NAME).text
    assert "attested" in fleet.run("history", NAME).text
    assert fleet.run("plan", "--detailed-exitcode").code == 0  # nothing to do


@pytest.mark.brief
def test_the_next_image_and_a_bios_value_at_once(machine: Machine, fleet: Fleet, images: None, figure: Figure) -> None:
    kept = leave_a_canary(fleet)
    fleet.want("B, without turbo", version="B", turbo="Disabled")
    timed(figure, "A -> B and a BIOS value", machine, fleet)
    assert (version_of(fleet), canary(fleet)) == ("B", kept)
    assert fleet.run("plan", "--detailed-exitcode").code == 0


def test_back_to_the_first_image_though_the_power_is_cut_in_the_write(
    machine: Machine, fleet: Fleet, images: None, figure: Figure
) -> None:
    kept = canary(fleet)
    fleet.revert()
    began = time.monotonic()
    with applying(fleet) as apply:
        wait_until(apply, fleet, "it writes", lambda: machine.console.seen("] writing:", since=began))
        wait_until(apply, fleet, "some is written", lambda: machine.sent_bytes() > _SOME_BYTES)
        machine.cut_power()
    timed(figure, "back to A, by git revert, after a power cut in the write", machine, fleet)
    assert (version_of(fleet), canary(fleet)) == ("A", kept)


def test_a_reconciler_that_is_killed_in_the_write_and_stays_away_goes_on(
    machine: Machine, fleet: Fleet, images: None, figure: Figure
) -> None:
    """The installer waits for its server, and writes once."""
    fleet.want("B again", version="B")
    began = time.monotonic()
    with applying(fleet) as apply:
        wait_until(apply, fleet, "it writes", lambda: machine.console.seen("] writing:", since=began))
    time.sleep(_AWAY_S)
    timed(figure, f"A -> B, the reconciler killed in the write and away for {_AWAY_S:.0f} s", machine, fleet)
    assert version_of(fleet) == "B"
    assert machine.console.count("] writing:", since=began) == 1


def test_a_node_that_is_well_writes_the_next_image_itself(
    machine: Machine, fleet: Fleet, images: None, figure: Figure
) -> None:
    """One reboot, and no installer."""
    kept = canary(fleet)
    began = time.monotonic()
    fleet.want("A, written by B", version="A", in_place=True)
    timed(figure, "B -> A in place", machine, fleet)
    assert (version_of(fleet), canary(fleet)) == ("A", kept)
    assert machine.console.seen("[installer", since=began) is None
    fleet.want("B, written by A", version="B", in_place=True)
    timed(figure, "A -> B in place", machine, fleet)
    assert version_of(fleet) == "B"
