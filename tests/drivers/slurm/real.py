"""A real Slurm on loopback: munged, slurmctld, and three slurmd that differ by name and port (`slurmd -N`).

Everything runs as the user of the tests, in one folder, in the foreground, and ends with `stop`.

On a loaded machine its programs are late, not wrong. So Slurm gives its daemons and clients minutes before it takes
them for dead, jobs end when a test says so, and tests wait for a state for as long as it takes.
"""

from __future__ import annotations

import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from reconciler.model.gate import CommandResult

NODES = ("n0", "n1", "n2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "scancel", "sbatch")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_CONF = """
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=0
SlurmdTimeout={silent_s}
ResumeTimeout=40
MessageTimeout=60
KillWait=5
RebootProgram=/bin/true
SchedulerParameters=bf_interval=5,sched_interval=2
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_PATIENT_S, _IMPATIENT_S = 600, 10  # until a slurmd that does not answer is taken for dead
_PORTS = range(15000, 30000)  # below those that the kernel gives to clients, which could take one meanwhile
ENOUGH_S = 300.0  # for what a loaded machine does in seconds
# What a batch job does: it is ready, and ends by itself when it is told to.
WORKS = 'touch "$SLURM_JOB_ID.ready"; while [ ! -e "$SLURM_JOB_ID.ends" ]; do sleep 0.2; done'


def missing() -> str:
    """Return the first program of Slurm that is not installed; "" if all are."""
    return next((name for name in PROGRAMS if shutil.which(name, path=_PATH) is None), "")


class RealSlurm:
    """`folder`: must be on a path short enough for a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = _free_ports(1 + len(NODES))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self._configure(_PATIENT_S)
        self._environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def _configure(self, silent_s: int) -> None:
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
            for name, port in zip(NODES, self._ports[1:], strict=True)
        )
        values = {"ctld": self._ports[0], "user": getpass.getuser(), "folder": self.folder}
        (self.folder / "slurm.conf").write_text(_CONF.format(**values, silent_s=silent_s, nodes=nodes))

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Let slurmctld give up a node after seconds of silence. A loaded machine may be as slow as that."""
        for silent_s, body in ((_IMPATIENT_S, True), (_PATIENT_S, False)):
            self._configure(silent_s)
            self.done("scontrol", "reconfigure")
            if body:
                yield

    def start(self) -> None:
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
        files |= {"log-file": "munged.log", "seed-file": "munge.seed"}
        options = [f"--{name}={self.folder / file}" for name, file in files.items()]
        self._start("munged", ["munged", "--foreground", "--force", *options])
        _until((self.folder / "munge.sock").exists, "munged listens")
        self.start_controller()
        for name in NODES:
            self.start_daemon(name)
        self.idle()

    def idle(self) -> None:
        """Wait until all nodes are idle, with no job left, whatever there was before."""

        def all_idle() -> bool:
            jobs = self.call("squeue", "--noheader")
            if jobs.returncode == 0 and not jobs.stdout and all(self.state(name) == {"IDLE"} for name in NODES):
                return True
            self.call("scancel", "--full", "--signal=KILL", "--state=RUNNING")
            self.call("scancel", "--state=PENDING")
            for name in NODES:  # a node that is idle refuses it, and so would the others of one command
                self.call("scontrol", "update", f"nodename={name}", "state=resume")
            return False

        _until(all_idle, "all nodes are idle")

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D", "-i"])
        _until(lambda: self.call("scontrol", "ping").returncode == 0, "slurmctld answers")

    def start_daemon(self, node: str) -> None:
        (self.folder / f"spool-{node}").mkdir(exist_ok=True)
        self._start(node, ["slurmd", "-D", "-N", node])

    def kill(self, what: str) -> None:
        """Kill slurmctld or the slurmd of a node, as a power cut would."""
        process = self._running.pop(what)
        process.kill()
        process.wait()

    def stop(self) -> None:
        with ExitStack() as stack:
            for process in self._running.values():
                stack.callback(_end, process)
            if "slurmctld" in self._running:
                self.call("scancel", "--user", getpass.getuser())
                time.sleep(1)

    def _start(self, name: str, argv: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(
                argv, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )

    # --- what a person types ---

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env=self._environment, capture_output=True, text=True, timeout=ENOUGH_S, check=False
        )

    def done(self, *argv: str) -> str:
        found = self.call(*argv)
        assert found.returncode == 0, (argv, found.stdout, found.stderr)
        return found.stdout.strip()

    def batch(self, *options: str, script: str = WORKS) -> str:
        """Submit a batch job and return its number once its program is ready for signals."""
        out = ("--output", str(self.folder / "job-%j.out"), "--chdir", str(self.folder))
        number = self.done("sbatch", "--parsable", *out, "--time=120", *options, "--wrap", script)
        _until((self.folder / f"{number}.ready").exists, f"job {number} runs")
        return number

    def end(self, number: str) -> None:
        """Let a job end by itself."""
        (self.folder / f"{number}.ends").touch()

    def job_state(self, number: str) -> str:
        return self._field("job", number, "JobState=")

    def state(self, node: str) -> set[str]:
        return set(self._field("node", node, "State=").rstrip("*").split("+"))

    def reason(self, node: str) -> str:
        lines = self.done("scontrol", "show", "node", node).splitlines()
        return next((line.strip().removeprefix("Reason=") for line in lines if line.startswith("   Reason=")), "")

    def _field(self, kind: str, name: str, field: str) -> str:
        words = self.call("scontrol", "show", kind, name).stdout.split()
        return next((word.removeprefix(field) for word in words if word.startswith(field)), "")


class LocalLogin:
    """The machine of the tests as the login host. `pause_s`: each command takes so long, by the wall clock."""

    def __init__(self, slurm: RealSlurm, pause_s: float = 0.0) -> None:
        self._slurm = slurm
        self._pause_s = pause_s
        self.ran: list[tuple[str, ...]] = []

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:  # noqa: ARG002 - the port's signature
        time.sleep(self._pause_s)  # noqa: ASYNC251 - the clock of these tests is virtual, and Slurm's is not
        self.ran.append(tuple(argv))
        found = self._slurm.call(*argv)
        return CommandResult(found.returncode, found.stdout, found.stderr)

    async def close(self) -> None:
        """Nothing is open."""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until(holds: Callable[[], bool], what: str, seconds: float = ENOUGH_S) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


def _free_ports(number: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == number:
            return found
    raise AssertionError("no ports are free")


until = _until
