"""Power cuts in one first install: however much is on the disk, nothing of it boots, and the next run installs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.machine.fleet import Fleet
from tests.machine.machine import Machine
from tests.machine.operations import Figure, applying, timed, version_of, wait_until, written_of

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]

_SHARES = (0.1, 0.5, 0.9)


def cut(machine: Machine, fleet: Fleet, share: float, size: int) -> None:
    """Take the power away once this share of the image's bytes was sent to the disk."""
    began = time.monotonic()
    with applying(fleet) as apply:
        wait_until(apply, fleet, "it writes", lambda: machine.console.seen("] writing:", since=began))
        wait_until(apply, fleet, f"{share:.0%} is written", lambda: machine.sent_bytes() >= share * size)
        machine.cut_power()
        assert machine.console.seen("] written:", since=began) is None, "the power was cut too late"
        assert machine.partitions() == [], "the table comes last"


def test_the_next_run_installs_after_each_power_cut_in_the_write(
    machine: Machine, home: Path, fleet: Fleet, images: None, figure: Figure
) -> None:
    new = Fleet(home / "cuts", fleet.pki, fleet.builds)
    new.make()
    if machine.is_on():
        machine.cut_power()
    machine.build()
    new.want("A new machine", version="A")
    size = written_of(new.images, "A")
    for share in _SHARES:
        cut(machine, new, share, size)
    timed(
        figure, f"empty disk -> A, after power cuts at {', '.join(f'{share:.0%}' for share in _SHARES)}", machine, new
    )
    assert version_of(new) == "A"
    assert new.run("plan", "--detailed-exitcode").code == 0
