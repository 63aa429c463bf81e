"""What is refused, in one line and before anything is written that a machine could boot: all on a blank machine."""

from __future__ import annotations

import time

import pytest

from tests.machine.bmc import DRIVE_SERIAL
from tests.machine.fleet import Fleet
from tests.machine.machine import NAME, Machine, holds_data
from tests.machine.operations import Figure, converge

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]


def refused(machine: Machine, fleet: Fleet, figure: Figure, step: str, why: str) -> None:
    """Converge, which says why it fails and leaves no partition table."""
    began = time.monotonic()
    applied = converge(fleet, "--wait", "0")
    figure(f"{step}: refused in {time.monotonic() - began:.0f} s")
    assert why in applied.text, f"{applied.text}\n{machine.console.tail()}"
    assert applied.code != 0
    assert machine.partitions() == []
    assert "out of service" in fleet.run("explain", NAME).text
    assert fleet.run("hold", NAME, "--reason", "the image server").code == 0  # as explain says, once that is put right
    assert fleet.run("release", NAME).code == 0


@pytest.mark.brief
def test_a_wrong_signature_writes_nothing(machine: Machine, fleet: Fleet, images: None, figure: Figure) -> None:
    """Let the spec give to the digest of B what the release key signed for A."""
    began = time.monotonic()
    fleet.want("A forged image", version="B", forged=True)
    applied = converge(fleet)
    figure(f"wrong signature: refused in {time.monotonic() - began:.0f} s")
    assert "the signature of image machine B does not verify" in applied.text
    assert not machine.is_on()
    assert not holds_data(machine.disk)


@pytest.mark.parametrize(
    ("file", "why"),
    [("corrupt", "the image"), ("A", "the image's digest is")],
    ids=["corrupt", "wrong digest"],
)
def test_an_image_that_is_not_the_signed_one(
    file: str, why: str, machine: Machine, fleet: Fleet, images: None, figure: Figure
) -> None:
    fleet.want(f"B, and its server has {file}", version="B", file=file)
    refused(machine, fleet, figure, f"image server with {file} in place of B", why)


@pytest.mark.parametrize(
    ("disks", "serial", "why"),
    [(2, DRIVE_SERIAL, "2 disks have"), (1, "another", "no disk has")],
    ids=["two disks", "no disk"],
)
def test_another_disk_than_the_declared_one(
    disks: int, serial: str, why: str, machine: Machine, fleet: Fleet, images: None, figure: Figure
) -> None:
    """The BMC tells the declared one, and the machine itself knows better."""
    machine.build(disks, serial)
    try:
        fleet.want(f"B, on {disks} disks called {serial}", version="B")
        refused(machine, fleet, figure, why, why)
        assert not holds_data(machine.disk)
    finally:
        machine.build()
