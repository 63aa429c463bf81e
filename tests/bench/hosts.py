"""Facts of hosts over one real sshd: ours beside ansible's and pyinfra's, in CPU of the controller and of the far side.

All hosts are this machine, with an nvidia-smi that prints what one with eight GPUs does. A peer's cost of a host is
what more hosts cost it: its start-up counts for nothing. Its connections are new, so that ours are told new and kept.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncssh

from reconciler.drivers.ssh import SshHost
from reconciler.lab.wire.facts import nvidia_smi
from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.observed import Answered
from tests.bench import measure
from tests.bench.report import Table
from tests.bench.wire import cpu_of
from tests.drivers.ssh.conftest import NODE, NOW, Keys, certify, private, started
from tests.lab.machines import Time, example_lab

SYSCTLS, SERVICES = ("vm.swappiness", "kernel.ostype"), ("ssh", "cron")
PYINFRA_FACTS = (
    "server.Hostname", "server.Kernel", "server.KernelVersion", "server.Arch", "server.LinuxDistribution",
    "server.Date", "server.Mounts", "server.Sysctl", "hardware.Cpus", "hardware.Memory", "hardware.BlockDevices",
    "hardware.NetworkDevices",
)  # fmt: skip
GPUS = 8
_SHOWN: Mapping[str, nvidia_smi.Show] = {
    "-q -x": nvidia_smi.query_xml,
    "-L": nvidia_smi.listing,
    "nvlink -s": nvidia_smi.nvlink_status,
    "nvlink -e": nvidia_smi.nvlink_errors,
}
_PASSES = 3  # over kept connections
_PATIENCE_S = 20.0  # for sshd to see the last of its sessions end


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU milliseconds a host."""

    ours: float
    far: float


@dataclass(frozen=True, slots=True)
class Bench:
    """`home`: where the key of the login and the inventories are. `sshd`: its process."""

    home: Path
    keys: Keys
    port: int
    sshd: int

    @contextmanager
    def spending(self, hosts: int, found: list[Cost]) -> Iterator[None]:
        """Measure a block that reads so many hosts and closes its connections."""
        far = cpu_of(self.sshd)
        with measure.spending() as spent:
            yield
        _await_end_of_sessions(self.sshd)
        found.append(Cost(1000 * (spent.cpu + spent.children) / hosts, 1000 * (cpu_of(self.sshd) - far) / hosts))


def section(hosts: int) -> list[Table]:
    authority, host, login = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))
    keys = Keys(authority, host, certify(authority, host, NODE), login)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        (home / "login").write_text(private(login))
        (home / "login").chmod(0o600)
        path = f"{_with_gpus(home / 'bin')}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        with started(home / "sshd", keys, f"MaxSessions 100\nSetEnv PATH={path}\n") as server:
            bench = Bench(home, keys, server.port, server.pid)
            new, kept = ours(bench, hosts)
            peers = {
                "ansible, its module setup": peer(bench, hosts, _ansible),
                f"pyinfra, {len(PYINFRA_FACTS)} facts": peer(bench, hosts, _pyinfra),
            }
    rows = [
        (name, cost.ours, cost.far, cost.ours / new.ours, cost.ours / kept.ours, kept.far / cost.far)
        for name, cost in {"ours, new connections": new, "ours, connections kept": kept, **peers}.items()
        if cost is not None
    ]
    return [
        Table(
            f"Facts of {hosts} hosts from one real sshd: CPU milliseconds per host",
            ("reader", "controller", "far side", "ours, new: times less", "ours, kept", "our far side / its"),
            rows,
            (
                "goals, controller: a tenth of ansible, a third of pyinfra; far side: no more than ansible",
                "far side: sshd and all that it starts, the login included where connections are new",
                "pyinfra is read where it is on PATH, or PYINFRA names it: our environment does not have it",
            ),
        )
    ]


def ours(bench: Bench, hosts: int) -> tuple[Cost, Cost]:
    """Return what a host costs us with a login, and over a connection that is kept."""
    new: list[Cost] = []
    asyncio.run(_read(bench, 1, 1))  # modules are loaded, patterns compiled
    with bench.spending(hosts, new):
        asyncio.run(_read(bench, hosts, 1))
    with bench.spending(hosts, new):
        asyncio.run(_read(bench, hosts, 1 + _PASSES))
    kept = [(more - one) / _PASSES for one, more in ((new[0].ours, new[1].ours), (new[0].far, new[1].far))]
    return new[0], Cost(*kept)


async def _read(bench: Bench, hosts: int, passes: int) -> None:
    opened = [
        SshHost(
            NODE, "127.0.0.1", port=bench.port, user=getpass.getuser(), private_key=private(bench.keys.login),
            authorities=[bench.keys.trust], connect_timeout=30.0, facts_timeout=60.0, now=lambda: datetime.now(UTC),
        )
        for _ in range(hosts)
    ]  # fmt: skip
    for _ in range(passes):
        for host in opened:
            assert isinstance(found := await host.facts(SYSCTLS, SERVICES), Answered), found
            assert len(found.value.gpus or ()) == len(found.value.nvlinks_active or ()) == GPUS, found.value.unknown
    for host in opened:
        await host.close()


def _with_gpus(folder: Path) -> Path:
    """Write an nvidia-smi that prints, as fast as a file is read, what one with a driver and eight GPUs does."""
    machine = example_lab("clean", Time()).machines["gpu-a001"]
    context = FactContext(machine.state, 0.0, NOW)
    folder.mkdir()
    lines = ["#!/bin/sh", 'case "$*" in']
    for at, (words, show) in enumerate(_SHOWN.items()):
        (folder / f"shown-{at}").write_text(show(context).stdout)
        lines.append(f"'{words}') exec cat {folder}/shown-{at} ;;")
    (folder / "nvidia-smi").write_text("\n".join([*lines, "*) exit 2 ;;", "esac", ""]))
    (folder / "nvidia-smi").chmod(0o755)
    return folder


# --- peers -----------------------------------------------------------------------------------------------------------


def peer(bench: Bench, hosts: int, command: Callable[[Bench, int], list[str] | None]) -> Cost | None:
    """Return what one more host costs a peer; None where it is not installed."""
    found: list[Cost] = []
    for count in (1, 1 + hosts):
        words = command(bench, count)
        if words is None:
            return None
        with bench.spending(1, found):
            done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **_ENVIRONMENT})
        if done.returncode:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    one, all_of_them = found
    return Cost((all_of_them.ours - one.ours) / hosts, (all_of_them.far - one.far) / hosts)


_SSH = "-o ControlMaster=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
_ENVIRONMENT = {"ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_SSH_ARGS": _SSH, "ANSIBLE_PIPELINING": "True"}


def _ansible(bench: Bench, hosts: int) -> list[str] | None:
    program = Path(sys.executable).with_name("ansible")
    inventory = bench.home / f"ansible-{hosts}"
    own = f"ansible_host=127.0.0.1 ansible_port={bench.port} ansible_ssh_private_key_file={bench.home}/login"
    inventory.write_text("".join(f"h{at} {own} ansible_python_interpreter=/usr/bin/python3\n" for at in range(hosts)))
    return [str(program), "-i", str(inventory), "all", "-m", "setup"] if program.exists() else None


def _pyinfra(bench: Bench, hosts: int) -> list[str] | None:
    program = os.environ.get("PYINFRA") or shutil.which("pyinfra")
    inventory = bench.home / f"pyinfra_{hosts}.py"
    own = {
        "ssh_hostname": "127.0.0.1", "ssh_port": bench.port, "ssh_key": f"{bench.home}/login",
        "ssh_user": getpass.getuser(), "ssh_known_hosts_file": "/dev/null", "ssh_strict_host_key_checking": "off",
    }  # fmt: skip
    inventory.write_text(f"hosts = [(f'h{{at}}', {own!r}) for at in range({hosts})]\n")
    return [program, "-y", str(inventory), "fact", *PYINFRA_FACTS] if program else None


def _await_end_of_sessions(sshd: int) -> None:
    """Wait until the server has no children: what they used counts once they are over."""
    ends = time.monotonic() + _PATIENCE_S
    children = Path(f"/proc/{sshd}/task/{sshd}/children")
    while children.read_text(encoding="ascii").strip():
        if time.monotonic() > ends:
            raise RuntimeError("sessions of the SSH server do not end")
        time.sleep(0.05)
