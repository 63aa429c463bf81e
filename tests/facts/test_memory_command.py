"""The command that reads EDAC's counters, on a tree of files as the kernel lays it out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts.memory import COMMAND, DIMM_ERRORS
from reconciler.model.gate import CommandResult
from reconciler.model.observed import DimmErrors

EDAC = "/sys/devices/system/edac/mc"


def read(tree: Path) -> CommandResult:
    done = subprocess.run(
        ["sh", "-c", COMMAND.replace(EDAC, str(tree))], capture_output=True, text=True, timeout=20, check=False
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def module(tree: Path, place: str, corrected: str, uncorrected: str, label: str = "") -> None:
    folder = tree / place
    folder.mkdir(parents=True)
    for name, text in (("dimm_ce_count", corrected), ("dimm_ue_count", uncorrected), ("dimm_label", label)):
        (folder / name).write_text(f"{text}\n")


def test_modules_with_errors_are_printed_and_all_are_counted(tmp_path: Path) -> None:
    module(tmp_path, "mc0/dimm0", "0", "0", "CPU1_DIMM_A1")
    module(tmp_path, "mc0/dimm1", "7", "0", "CPU1 DIMM B1")
    module(tmp_path, "mc1/rank3", "0", "2")
    (tmp_path / "mc1" / "dimm9").mkdir()  # an empty slot has no counters
    answer = read(tmp_path)
    assert answer.stdout.endswith("== 3 modules\n")
    assert DIMM_ERRORS.read({"dimm_errors": answer}).value == (
        DimmErrors("mc0/dimm1", "CPU1 DIMM B1", 7, 0),
        DimmErrors("mc1/rank3", None, 0, 2),
    )


@pytest.mark.parametrize("there", [True, False])
def test_without_a_driver_nothing_is_known(tmp_path: Path, *, there: bool) -> None:
    answer = read(tmp_path if there else tmp_path / "nothing")
    found = DIMM_ERRORS.read({"dimm_errors": answer})
    assert found.value is None
    assert "unsupported" in found.notes["dimm_errors"]
