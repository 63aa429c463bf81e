"""A ledger that was restored from a backup repeats nothing: what the machines show decides (pitfall M8)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.converge.world import World

DISRUPTING = ("power_cycles", "boots", "installs", "flashes", "bios_writes")


def copied(source: Path, target: Path) -> None:
    """Copy a ledger as a backup does, while somebody may be writing to it."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


@pytest.mark.parametrize("during", [None, "update_firmware", "reimage"])
def test_a_ledger_that_was_restored_repeats_nothing(
    world: Callable[..., World], tmp_path: Path, during: str | None
) -> None:
    """The backup is of before the run, or holds an action as begun that has long ended."""
    drift = ["old_image", "bios_off", {"old_firmware": {"component": "nic0"}}]
    here = world(nodes=1, drift={"n0": drift})
    here.adopt()
    backup = tmp_path / "backup.sqlite"
    copied(here.where / "ledger.sqlite", backup)

    async def backed_up() -> None:
        work = asyncio.create_task(here.applying())
        if during is not None:
            await here.started(during)
            await here.clock.sleep(30)
            copied(here.where / "ledger.sqlite", backup)
        await work

    here.run(backed_up())
    assert here.serves("n0")
    before = asdict(here.machine("n0").state.counters)

    here.ledger.close()
    here.ledger = SqlLedger(backup)
    here.clock.elapsed += 86400
    here.apply()
    after = asdict(here.machine("n0").state.counters)
    assert {name: after[name] for name in DISRUPTING} == {name: before[name] for name in DISRUPTING}
    assert here.serves("n0")
