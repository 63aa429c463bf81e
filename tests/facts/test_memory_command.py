"""The commands that read EDAC's counters, on a tree of files as the kernel lays it out, and rasdaemon's records."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts.memory import COMMAND, DIMM_ERRORS, DIMM_RECORDS, RECORDS_COMMAND
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


# --- rasdaemon, by the real ras-mc-ctl --------------------------------------------------------------------------------

TOOL = shutil.which("ras-mc-ctl", path=f"{os.environ['PATH']}:/usr/sbin")
# Of rasdaemon 0.6.8 (ras-record.c): the tables that its ras-mc-ctl asks, with the columns that it names.
TABLES = {
    "mc_event": "timestamp err_count err_type err_msg label mc top_layer middle_layer lower_layer address grain "
    "syndrome driver_detail",
    "aer_event": "timestamp dev_name err_type err_msg",
    "extlog_event": "timestamp etype severity address fru_id fru_text cper_data",
    "mce_record": "timestamp mcgcap mcgstatus status addr misc ip tsc walltime cpu cpuid apicid socketid cs bank "
    "cpuvendor bank_name error_msg mcgstatus_msg mcistatus_msg mcastatus_msg user_action mc_location",
}
A1, B1 = "CPU_SrcID#1_MC#2_Chan#0_DIMM#0", "CPU 1 DIMM B1"


def records(tmp_path: Path, events: Sequence[tuple[float, str, str, int]], *, tables: int = 4) -> CommandResult:
    """Run our command with the real tool on a database of events: seconds ago, type, label, count."""
    if TOOL is None:
        pytest.skip("ras-mc-ctl is not installed: it is of the package rasdaemon")
    database = tmp_path / "ras-mc_event.db"
    with closing(sqlite3.connect(database)) as made, made:
        for name, columns in list(TABLES.items())[:tables]:
            made.execute(f"create table {name} (id INTEGER PRIMARY KEY, {', '.join(columns.split())})")
        for ago, kind, label, count in events:
            at = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(time.time() - ago))
            row = (at, count, kind, "memory read error", label, 2, 0, 0, -1, 1, 32, 0, "err_code:0x0101:0x0090")
            marks = ",".join("?" * len(row))
            made.execute(f"insert into mc_event ({','.join(TABLES['mc_event'].split())}) values ({marks})", row)
        made.execute("insert into aer_event (timestamp, dev_name, err_type) values ('x', '0000:9b:00.0', 'Corrected')")
    tool = tmp_path / "ras-mc-ctl"
    tool.write_text(Path(TOOL).read_text().replace("/var/lib/rasdaemon/ras-mc_event.db", str(database)))
    tool.chmod(0o755)
    ran = subprocess.run(
        ["/bin/sh", "-c", RECORDS_COMMAND],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "TZ": "Asia/Kolkata"},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return CommandResult(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.tool
def test_the_records_of_the_real_tool_are_summed_up(tmp_path: Path) -> None:
    week = 9 * 86400.0
    answer = records(
        tmp_path, [(1.0, "Uncorrected", A1, 2), (week, "Fatal", B1, 1), (90.0, "Deferred", B1, 1), *CORRECTED]
    )
    found = DIMM_RECORDS.read({"dimm_records": answer})
    assert found.notes == {}
    told = Counter[tuple[str | None, str, bool | None]]()
    for one in found.value or ():  # corrected ones may be of two hours
        told[one.label, one.kind, one.this_boot] += one.count
    assert told == {(A1, "Uncorrected", True): 2, (B1, "Deferred", True): 1, (A1, "Corrected", None): 5000}
    assert len(answer.stdout) < 1000, "a flood of corrected errors is counted on the host"


CORRECTED = [(5 * 3600.0 + 0.001 * at, "Corrected", A1, 1) for at in range(5000)]


@pytest.mark.tool
def test_a_database_without_errors_has_no_records_and_one_that_can_t_be_read_has_no_answer(tmp_path: Path) -> None:
    assert DIMM_RECORDS.read({"dimm_records": records(tmp_path, [])}).value == ()
    (tmp_path / "ras-mc_event.db").unlink()
    broken = records(tmp_path, [(1.0, "Fatal", A1, 1)], tables=2)
    assert DIMM_RECORDS.read({"dimm_records": broken}).value is None


@pytest.mark.tool
def test_a_type_that_we_do_not_know_makes_all_unknown(tmp_path: Path) -> None:
    found = DIMM_RECORDS.read({"dimm_records": records(tmp_path, [(1.0, "Poisoned", A1, 1)])})
    assert found.value is None
    assert "1 of 1 records" in found.notes["dimm_records"]


def test_lines_that_the_real_tool_has_printed_are_all_understood(samples: Path, tmp_path: Path) -> None:
    folder = samples / "ras-mc-ctl"
    for name, many in (("real0.6.8_faulty_errors.txt", 4), ("real0.6.8_healthy_errors.txt", 0)):
        tool = tmp_path / "ras-mc-ctl"
        tool.write_text(f"#!/bin/sh\ncat {folder / name}\n")
        tool.chmod(0o755)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        ran = subprocess.run(["/bin/sh", "-c", RECORDS_COMMAND], env=path, capture_output=True, text=True, check=True)
        assert ran.stdout.endswith(f"== {many} records\n")
        assert DIMM_RECORDS.read({"dimm_records": CommandResult(0, ran.stdout)}).notes == {}
