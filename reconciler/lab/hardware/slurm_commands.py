"""The commands of the lab's Slurm, in the words and formats of the real ones (recorded from 22.05.8 of Debian 12)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

from reconciler.lab.hardware.slurm import SlurmTruth
from reconciler.lab.hardware.slurm_objects import LabJob, LabNode, LabReservation, SlurmError
from reconciler.lab.hardware.slurm_tables import sbatch, sinfo, squeue
from reconciler.model.gate import CommandResult
from reconciler.spec.ranges import expand

_NODE: Final = """NodeName={name} Arch=x86_64 CoresPerSocket=56\x20
   CPUAlloc={alloc} CPUEfctv=224 CPUTot=224 CPULoad=0.01
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:h100:8(S:0-1)
   NodeAddr={name} NodeHostName={name} Version=22.05.8
   OS=Linux 6.8.0-48-generic #48-Ubuntu SMP PREEMPT_DYNAMIC\x20
   RealMemory=2000000 AllocMem=0 FreeMem=1900000 Sockets=2 Boards=1
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main\x20
   BootTime=2027-01-01T00:00:00 SlurmdStartTime=2027-01-01T00:00:10
   LastBusyTime=2027-01-01T00:00:10
   CfgTRES=cpu=224,mem=2000000M,billing=224
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
{reason}
"""


_RESERVATION: Final = (
    "ReservationName={name} StartTime={start} EndTime={end} Duration={duration} Nodes={nodes} NodeCnt={count} "
    "CoreCnt={cores} Features=(null) PartitionName=(null) Flags={flags} TRES=cpu={cpus} Users={users} Groups=(null) "
    "Accounts=(null) Licenses=(null) State={state} BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
)
_TIME: Final = "%Y-%m-%dT%H:%M:%S"
ENVIRONMENT: Final = ("LC_ALL=", "TZ=", "SLURM_TIME_FORMAT=")
_LOADS: Final = {  # what each program says before that slurmctld does not answer
    "sinfo": "slurm_load_partitions: ",
    "squeue": "slurm_load_jobs error: ",
    "sbatch": "sbatch: error: Batch job submission failed: ",
}
_NO_RESERVATIONS: Final = "No reservations in the system\n"


class SlurmCommands:
    """`date`: the date of an instant of the machines' clock."""

    def __init__(self, truth: SlurmTruth, date: Callable[[float], datetime]) -> None:
        self._truth = truth
        self._date = date

    def run(self, argv: Sequence[str], user: str = "root") -> CommandResult:
        """Run a command line, which may begin with `env` and its settings."""
        words = [word for word in argv if word != "env" and not word.startswith(ENVIRONMENT)]
        program = PurePosixPath(words[0]).name if words else ""
        commands: dict[str, Callable[[Sequence[str], str], str]] = {
            "scontrol": self._scontrol, "squeue": self._squeue, "scancel": self._scancel,
            "sinfo": lambda arguments, _: sinfo(self._truth, arguments, self._date),
            "sbatch": lambda arguments, user: sbatch(self._truth, arguments, user),
        }  # fmt: skip
        if program not in commands:
            return CommandResult(127, "", f"env: '{program}': No such file or directory\n")
        try:
            return CommandResult(0, commands[program](words[1:], user))
        except SlurmError as error:
            where = _LOADS.get(program, "") if str(error).startswith("Unable to contact") else ""
            return CommandResult(1, "", f"{where}{error}\n")

    def _scontrol(self, arguments: Sequence[str], user: str) -> str:
        match list(arguments):
            case ["show", "node", *name]:
                return "\n".join(self._shown(node) for node in self._truth.nodes(*name)) + "\n"
            case ["show", "reservation", "-o"]:
                return "".join(map(self._reservation, self._truth.reservations())) or _NO_RESERVATIONS
            case ["show", "reservation"]:
                shown = [_in_lines(self._reservation(one)) for one in self._truth.reservations()]
                return "\n".join(shown) or _NO_RESERVATIONS
            case ["ping"]:
                self._truth.nodes()
                return "Slurmctld(primary) at slurmctld is UP\n"
            case ["create", "reservation", *settings]:
                return self._reserve(_given(settings))
            case ["update", named, *settings] if named.startswith("reservationname="):
                given = _given(settings)
                self._truth.move(_given([named])["reservationname"], *self._span(given))
                return "Reservation updated.\n"
            case ["delete", named] if named.startswith("reservationname="):
                self._truth.unreserve(_given([named])["reservationname"])
                return ""
            case ["update", *settings]:
                given = _given(settings)
                for node in expand(given.get("nodename", "")):
                    self._truth.update(node, given.get("state", "").lower(), given.get("reason", ""), user)
                return ""
            case ["requeue", "Incomplete", number] | ["requeue", number]:
                self._truth.requeue(int(number))
                return ""
            case ["delete", setting]:
                raise SlurmError(f"{setting}: Requested operation not supported on this system")
            case other:
                raise SlurmError(f"invalid keyword: {' '.join(other)}")

    def _reserve(self, given: Mapping[str, str]) -> str:
        name, nodes = given["reservationname"], tuple(given["nodes"].split(","))
        flags = tuple(flag for flag in given.get("flags", "").split(",") if flag)
        self._truth.reserve(LabReservation(name, nodes, *self._span(given), flags, given["users"]))
        return f"Reservation created: {name}\n"

    def _span(self, given: Mapping[str, str]) -> tuple[float, float]:
        """Return a span by the machines' clock."""
        at = datetime.strptime(given["starttime"], _TIME).replace(tzinfo=UTC)
        start = self._truth.now() + (at - self._date(self._truth.now())).total_seconds()
        return start, start + 60.0 * int(given["duration"])

    def _reservation(self, one: LabReservation) -> str:
        minutes, many = round((one.end - one.start) / 60), len(one.nodes)
        return _RESERVATION.format(
            name=one.name, start=f"{self._date(one.start):{_TIME}}", end=f"{self._date(one.end):{_TIME}}",
            duration=f"{minutes // 60:02}:{minutes % 60:02}:00", nodes=",".join(one.nodes), count=many,
            cores=112 * many, flags=",".join((*one.flags, "SPEC_NODES")), cpus=224 * many, users=one.users,
            state="ACTIVE" if one.start <= self._truth.now() else "INACTIVE",
        )  # fmt: skip

    def _squeue(self, arguments: Sequence[str], _user: str) -> str:
        if list(arguments) != ["--json"]:
            return squeue(self._truth, arguments)
        meta = {"plugin": {"type": "openapi/v0.0.38", "name": "Slurm OpenAPI v0.0.38"}}
        return json.dumps({"meta": meta, "errors": [], "jobs": [self._job(job) for job in self._truth.jobs()]})

    def _scancel(self, arguments: Sequence[str], _user: str) -> str:
        *options, number = arguments
        signal = next((option.partition("=")[2] for option in options if option.startswith("--signal=")), "")
        if signal:
            self._truth.signal(int(number), signal)
        else:
            self._truth.cancel(int(number))
        return ""

    def _shown(self, node: LabNode) -> str:
        state = "+".join(self._truth.states(node))
        alloc = 224 if state.startswith(("MIXED", "ALLOCATED")) else 0
        at = f"{self._date(node.at):{_TIME}}"
        reason = f"   Reason={node.reason} [{node.by}@{at}]" if node.reason else ""
        return _NODE.format(name=node.name, alloc=alloc, state=state, reason=reason)

    def _job(self, job: LabJob) -> Mapping[str, Any]:
        ends = job.started + job.limit_s if job.state == "RUNNING" else job.ended
        return {
            "job_id": job.id, "job_state": job.state, "nodes": ",".join(job.nodes), "restart_cnt": job.restarts,
            "user_name": job.user, "comment": job.comment, "end_time": int(self._date(ends).timestamp()),
            "requeue": job.requeue, "batch_flag": True, "partition": "main",
        }  # fmt: skip


def _given(settings: Sequence[str]) -> dict[str, str]:
    """Return the settings, whose names scontrol takes in any case."""
    pairs = [setting.partition("=") for setting in settings]
    return {name.lower(): value for name, _, value in pairs}


def _in_lines(record: str) -> str:
    """Return the one line of a reservation as scontrol breaks it."""
    for word in ("Nodes=", "TRES=", "Users=", "MaxStartDelay="):
        record = record.replace(f" {word}", f"\n   {word}", 1)
    return record
