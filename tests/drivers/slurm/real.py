"""A real Slurm on loopback: munged, slurmctld, and three slurmd that differ by name and port (`slurmd -N`).

Everything runs as the user of the tests, in one folder, in the foreground, and ends with `stop`.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
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
SlurmdTimeout=10
ResumeTimeout=12
MessageTimeout=5
KillWait=5
RebootProgram=/bin/true
SchedulerParameters=bf_interval=5,sched_interval=2
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


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
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
            for name, port in zip(NODES, self._ports[1:], strict=True)
        )
        text = _CONF.format(ctld=self._ports[0], user=getpass.getuser(), folder=folder, nodes=nodes)
        (folder / "slurm.conf").write_text(text)
        self._environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
        files |= {"log-file": "munged.log", "seed-file": "munge.seed"}
        options = [f"--{name}={self.folder / file}" for name, file in files.items()]
        self._start("munged", ["munged", "--foreground", "--force", *options])
        _until((self.folder / "munge.sock").exists, "munged listens")
        self.start_controller()
        for name in NODES:
            self.start_daemon(name)
        _until(lambda: all(self.state(name) == {"IDLE"} for name in NODES), "all nodes are idle")

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
        return subprocess.run(argv, env=self._environment, capture_output=True, text=True, timeout=60, check=False)

    def done(self, *argv: str) -> str:
        found = self.call(*argv)
        assert found.returncode == 0, (argv, found.stdout, found.stderr)
        return found.stdout.strip()

    def batch(self, script: str, *options: str) -> str:
        """Submit a batch job and return its number once it runs."""
        wrap = ("--output", str(self.folder / "job-%j.out"), "--time=30", *options, "--wrap", script)
        number = self.done("sbatch", "--parsable", *wrap)
        _until(lambda: "JobState=RUNNING" in self.done("scontrol", "show", "job", number), f"job {number} runs")
        return number

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


def _until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


until = _until
