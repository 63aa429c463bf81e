"""The lab's Slurm: what its commands print, as recorded from the real ones, and a fleet that it schedules."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.drivers.slurm import jobs, nodes, reservations
from reconciler.lab import control
from reconciler.lab.hardware.slurm import REQUEUE_S, SlurmTruth
from reconciler.lab.hardware.slurm_commands import SlurmCommands
from reconciler.lab.up import running_lab
from reconciler.model.errors import UsageError
from tests.bench.wire import running_lab as lab_process
from tests.lab.machines import ROOT, Time, example_lab
from tests.lab.test_up import in_loop, options

EPOCH = datetime(2026, 11, 27, 11, 53, tzinfo=UTC)
# Printed by sinfo and squeue 22.05.8 after the same commands, with two CPUs to a node.
SINFO = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
main*        up   infinite      1   drng n2
main*        up   infinite      1    mix n0
main*        up   infinite      1  alloc n1
"""
NODE_LIST = """NODELIST   NODES PARTITION STATE\x20
n0             1     main* mix\x20\x20\x20
n1             1     main* alloc\x20
n2             1     main* drng\x20\x20
"""
REASONS = """REASON               USER      TIMESTAMP           NODELIST
ask Ada, RMA 4711 an root      2026-11-27T11:53:31 n2
"""
SQUEUE = """             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                 1      main     wrap     root PD       0:00      1 (BeginTime)
                 4      main     wrap     root PD       0:00      2 (Resources)
                 5      main     wrap     root PD       0:00      1 (Priority)
                 6      main     wrap     root PD       0:00      1 (ReqNodeNotAvail, UnavailableNodes:n2)
                 2      main     wrap     root  R       0:09      1 n1
                 3      main     wrap     root  R       0:09      1 n2
"""


class Site:
    """Three nodes, n0 to n2, of which tests move the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        machines = dict(list(example_lab("clean", Time()).machines.items())[:3])
        self.truth = SlurmTruth(machines, lambda: self.now, {name: f"n{at}" for at, name in enumerate(machines)})
        self.commands = SlurmCommands(self.truth, lambda at: EPOCH + timedelta(seconds=at))

    def __call__(self, *argv: str) -> str:
        ran = self.commands.run(argv)
        assert ran.exit_status == 0, ran.stderr
        return ran.stdout

    def error(self, *argv: str) -> str:
        ran = self.commands.run(argv)
        assert ran.exit_status != 0
        return ran.stderr


@pytest.fixture
def site() -> Site:
    return Site()


def played(site: Site) -> None:
    """Play what was typed at the real one when it printed the texts above."""
    long = ("--output=/dev/null", "--wrap", "sleep 100")
    site("sbatch", "-w", "n0", "--time=30", *long)
    site("sbatch", "--exclusive", "-w", "n1", "--time=1:30:00", "--no-requeue", *long)
    site("sbatch", "--exclusive", "-N", "1", *long)
    site("sbatch", "--exclusive", "-N", "2", *long)
    site("sbatch", "--exclusive", "--time=5", "-w", "n1", *long)
    site.now = 31.0
    site("scontrol", "update", "nodename=n2", "state=drain", "reason=ask Ada, RMA 4711 and a longer reason")


def test_its_tables_are_those_of_the_real_one(site: Site) -> None:
    played(site)
    assert site("sinfo") == SINFO
    assert site("sinfo", "-N") == NODE_LIST
    assert site("sinfo", "-R") == REASONS
    site("sbatch", "--exclusive", "-w", "n2", "--time=5", "--wrap", "sleep 100")
    site("scontrol", "requeue", "1")
    site.now = 35.0
    assert site("squeue").replace("0:35", "0:09") == SQUEUE
    assert site("squeue", "-h", "-t", "PD", "-w", "n0") == ""
    assert site("squeue", "-h", "-j", "2").split()[0] == "2"


def test_its_errors_are_those_of_the_real_one(site: Site) -> None:
    invalid = "sbatch: error: Batch job submission failed: Invalid node name specified\n"
    assert site.error("sbatch", "-w", "n9", "--wrap", "sleep 1") == invalid
    assert site.error("squeue", "-w", "n9") == "squeue: error: Invalid node name n9\n"
    unknown = "squeue: unrecognized option '--bogus'\nTry \"squeue --help\" for more information\n"
    assert site.error("squeue", "--bogus") == unknown
    assert site.error("scontrol", "show", "node", "n9") == "Node n9 not found\n"
    site.truth.down = True
    down = "Unable to contact slurm controller (connect failure)\n"
    assert site.error("sinfo") == f"slurm_load_partitions: {down}"
    assert site.error("squeue") == f"slurm_load_jobs error: {down}"
    assert site.error("sbatch", "--wrap", "sleep 1") == f"sbatch: error: Batch job submission failed: {down}"


def test_the_driver_reads_what_it_prints(site: Site) -> None:
    played(site)
    at = ("starttime=2026-11-27T11:53:00", "duration=90", "users=root", "flags=MAINT,IGNORE_JOBS")
    site("scontrol", "create", "reservation", "reservationname=x", "nodes=n0", *at)
    assert {node.name: node.flags for node in nodes.decode(site("scontrol", "show", "node"))} == {
        "n0": {"MIXED", "MAINTENANCE", "RESERVED"}, "n1": {"ALLOCATED"}, "n2": {"ALLOCATED", "DRAIN"},
    }  # fmt: skip
    assert [(job.id, job.nodes) for job in jobs.decode(site("squeue", "--json"))] == [
        (1, ("n0",)), (2, ("n1",)), (3, ("n2",)),
    ]  # fmt: skip
    (found,) = reservations.decode(site("scontrol", "show", "reservation", "-o"))
    assert (found.name, found.nodes, found.active) == ("x", ("n0",), True)
    assert found.end - found.start == timedelta(minutes=90)


def test_a_job_waits_for_nodes_and_for_the_end_of_a_reservation(site: Site) -> None:
    span = ("starttime=2026-11-27T13:00:00", "duration=60", "users=root", "flags=MAINT,IGNORE_JOBS")
    site("scontrol", "create", "reservation", "reservationname=x", "nodes=n0", *span)
    site("sbatch", "-w", "n0", "--time=2:00:00", "--wrap", "sleep 60")
    site("sbatch", "-w", "n0", "--time=30", "--wrap", "sleep 60")
    assert "(ReqNodeNotAvail, May be reserved for other job)" in site("squeue", "-j", "1")
    assert site("squeue", "-h", "-j", "2").split()[4] == "R"
    site("scontrol", "delete", "reservationname=x")
    assert site("squeue", "-h", "-j", "1").split()[4] == "R"


def test_a_requeued_job_begins_again_once_its_node_is_back(site: Site) -> None:
    site("sbatch", "-w", "n0", "--wrap", "sleep 600")
    site("scontrol", "update", "nodename=n0", "state=drain", "reason=x")
    site("scontrol", "requeue", "1")
    site.now = 3.0
    assert "BeginTime" in site("squeue")
    site.now = REQUEUE_S + 10
    assert "UnavailableNodes:n0" in site("squeue")
    site("scontrol", "update", "nodename=n0", "state=resume")
    assert site("squeue", "-h").split()[4] == "R"


@pytest.mark.parametrize(
    ("limit", "seconds"), [("30", 1800), ("2:30", 150), ("1:00:00", 3600), ("1-12", 129600), ("1-0:30:5", 88205)]
)
def test_time_limits_are_read_as_sbatch_reads_them(site: Site, limit: str, seconds: float) -> None:
    site("sbatch", f"--time={limit}", "--wrap", "sleep 1")
    assert site.truth.jobs()[0].limit_s == seconds
    assert "Invalid --time" in site.error("sbatch", "-t", "soon", "--wrap", "sleep 1")


def test_a_node_that_a_person_sets_down_loses_its_jobs(site: Site) -> None:
    site("sbatch", "-w", "n0", "--wrap", "sleep 600")
    site("scontrol", "update", "NodeName=n[0-1]", "State=DOWN", "Reason=broken")
    assert [job.state for job in site.truth.jobs()] == ["COMPLETING"]
    site.now = 3.0
    assert "down n[0-1]" in site("sinfo")
    assert [job.state for job in site.truth.jobs()] == ["PENDING"]


# --- in a running lab ------------------------------------------------------------------------------------------------


@pytest.mark.wire
@in_loop
async def test_a_generated_fleet_has_a_slurm_that_people_type_at(tmp_path: Path) -> None:
    async with running_lab(options(tmp_path, nodes=2, slurm=True)) as running:
        assert running.lab.slurm is not None

        def type_at(*argv: str) -> str:
            ran = control.run_slurm(tmp_path, argv, "ada")
            assert ran.exit_status == 0, ran.stderr
            return ran.stdout

        assert "2   idle gpu-[0001-0002]" in await asyncio.to_thread(type_at, "sinfo")
        await asyncio.to_thread(type_at, "scontrol", "update", "nodename=gpu-0001", "state=drain", "reason=mine")
        assert "ada" in await asyncio.to_thread(type_at, "sinfo", "-R")
        nowhere = ("lab", "slurm", "--dir", tmp_path, "--", "squeue", "-w", "nowhere")
        assert await asyncio.to_thread(reconciler, tmp_path, *nowhere, code=1) == ""
    async with running_lab(options(tmp_path / "kubernetes", nodes=2)):
        with pytest.raises(UsageError, match="has no Slurm"):
            await asyncio.to_thread(control.run_slurm, tmp_path / "kubernetes", ["squeue"], "ada")


@pytest.mark.wire
def test_a_fleet_of_slurm_converges_over_the_wire_and_no_job_is_lost(tmp_path: Path) -> None:
    with lab_process(2, "--slurm", time_scale=100.0) as (directory, _):
        batch = ("--exclusive", "-N", "2", "--time=2:00:00", "--wrap", "sleep 3600")
        number = int(slurm(directory, "sbatch", "--parsable", *batch))
        spec, ledger, plan = directory / "fleet-spec", tmp_path / "ledger.sqlite", tmp_path / "plan.json"
        told = reconciler(directory, "plan", spec, "--ledger", ledger, "--create-ledger", "--out", plan)
        assert "for 1 job of finite work, the last of which ends by " in told
        reconciler(directory, "apply", spec, "--ledger", ledger, "--plan", plan, "--yes", "--wait", "12h")
        assert "2   idle gpu-[0001-0002]" in slurm(directory, "sinfo")
        found = {job["job_id"]: job["job_state"] for job in json.loads(slurm(directory, "squeue", "--json"))["jobs"]}
        assert found[number] == "COMPLETED"


def slurm(directory: Path, *argv: str) -> str:
    return reconciler(directory, "lab", "slurm", "--dir", directory, "--", *argv)


def reconciler(directory: Path, *arguments: str | Path, code: int = 0) -> str:
    """Run a command against the lab; return what it prints."""
    environment = {**os.environ, "RECONCILER_ENDPOINTS": str(directory / "endpoints.json")}
    command = [sys.executable, "-m", "reconciler", *map(str, arguments)]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == code, (arguments, ran.returncode, ran.stdout, ran.stderr)
    return ran.stdout
