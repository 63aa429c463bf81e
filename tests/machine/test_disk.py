"""What is read of a disk's file, without a machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.machine.console import Console
from tests.machine.machine import SECTOR, Machine, holds_data

_SIZE = 64 << 20
_TABLE = "label: gpt\nstart=2048, size=2048, name=esp\nstart=4096, size=2048, name=root-a\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    console = Console(tmp_path / "console")
    console.close()
    made = Machine(tmp_path, tmp_path / "vars.fd", console)
    with made.disk.open("wb") as disk:
        disk.truncate(_SIZE)
    return made


def _write(machine: Machine, at: int, content: bytes) -> None:
    with machine.disk.open("r+b") as disk:
        disk.seek(at)
        disk.write(content)


def test_blocks_that_hold_zeros_are_no_data(machine: Machine) -> None:
    _write(machine, 3 << 20, bytes(1 << 16))
    assert machine.disk.stat().st_blocks
    assert not holds_data(machine.disk)
    _write(machine, _SIZE - 1, b"x")
    assert holds_data(machine.disk)


@pytest.mark.tool
def test_a_slot_is_what_an_install_alone_writes(machine: Machine) -> None:
    assert machine.slots() == {}
    subprocess.run(["sfdisk", "-q", str(machine.disk)], input=_TABLE, text=True, check=True)
    before = machine.slots()
    assert list(before) == ["root-a"]
    _write(machine, 2048 * SECTOR, b"a boot loader counts")
    assert machine.slots() == before
    _write(machine, 4096 * SECTOR, b"an installer writes")
    assert machine.slots() != before
