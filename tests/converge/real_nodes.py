"""Nodes on this machine that are apart as real ones are: networks, /var/lib, /run and a real sshd of their own each.

Each may log in to the others, as root of nodes that serve together may. They are namespaces of the kernel. Two networks
join them: one that we reach them by, and one between them alone. All of it goes when its processes go, and they are
killed when we end, however that is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.drivers.ssh import SshHost
from tests.drivers.ssh.conftest import NODE, NOW, Keys, private

NEEDED = ("unshare", "nsenter", "setpriv", "ip", "sshd", "curl")
_CONFIG = """\
Port 22
HostKey {home}/host
HostCertificate {home}/host-cert.pub
AuthorizedKeysFile {home}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
MaxStartups 100
Subsystem sftp internal-sftp
"""


@dataclass
class RealNode:
    """`address`: where we reach it. `fast`: its address on the network between nodes. `pid`: holds its namespaces."""

    name: str
    address: str
    fast: str
    pid: int
    keys: Keys
    started: list[subprocess.Popen[bytes]]

    def inside(self, *argv: str) -> list[str]:
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(self.pid), "-n", "-m", *argv]

    def start(self, *argv: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as sink:
            process = subprocess.Popen(self.inside(*argv), stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def run(self, *argv: str) -> str:
        return subprocess.run(self.inside(*argv), check=True, capture_output=True, text=True).stdout

    def host(self) -> SshHost:
        return SshHost(
            NODE, self.address, port=22, user="root", private_key=private(self.keys.login),
            authorities=[self.keys.trust], connect_timeout=5.0, now=lambda: NOW,
        )  # fmt: skip


def missing() -> str:
    """Return why there can be no such nodes here; "" where there can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    lacking = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    if os.getuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode:
        return "namespaces of a network need root, and a kernel that lets it have them"
    return ""


def _hold() -> subprocess.Popen[bytes]:
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--propagation", "private", "sleep", "inf"]
    )
    own = Path("/proc/self/ns/net").stat().st_ino
    for _ in range(200):
        if Path(f"/proc/{holder.pid}/ns/net").stat().st_ino != own and b"sleep" in _command(holder.pid):
            return holder
        time.sleep(0.02)
    raise TimeoutError("no namespaces")


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _ip(pid: int | None, *words: str) -> None:
    inside = [] if pid is None else ["nsenter", "-t", str(pid), "-n"]
    subprocess.run([*inside, "ip", *words], check=True, capture_output=True)


@contextmanager
def real_nodes(names: Sequence[str], keys: Keys, home: Path) -> Iterator[list[RealNode]]:
    """Yield running nodes of these names, which the machine has no trace of afterwards."""
    if why := missing():
        pytest.skip(why)
    texts = {
        "host": private(keys.host),
        "authorized": keys.login.export_public_key().decode(),
        "login": private(keys.login),
        "known": f"* {keys.host.export_public_key().decode()}",
        "client": f"IdentityFile {home}/login\nUserKnownHostsFile {home}/known\nStrictHostKeyChecking yes\n",
    }
    for name, text in texts.items():
        (home / name).write_text(text)
        (home / name).chmod(0o600)
    (home / "host-cert.pub").write_bytes(keys.certificate.export_certificate())
    (home / "config").write_text(_CONFIG.format(home=home))
    net = os.getpid() % 200 + 20
    held = [_hold() for _ in range(len(names) + 1)]
    nodes: list[RealNode] = []
    try:
        switch = held[0].pid
        for bridge in ("slow", "fast"):
            _ip(switch, "link", "add", bridge, "type", "bridge")
            _ip(switch, "link", "set", bridge, "up")
        ours = f"rn{os.getpid() % 100000}"
        _ip(None, "link", "add", ours, "type", "veth", "peer", "name", "uplink", "netns", str(switch))
        _ip(None, "address", "add", f"10.88.{net}.1/24", "dev", ours)
        _ip(None, "link", "set", ours, "up")
        _ip(switch, "link", "set", "uplink", "up", "master", "slow")
        for at, name in enumerate(names):
            pid = held[at + 1].pid
            node = RealNode(name, f"10.88.{net}.{at + 10}", f"10.89.{net}.{at + 10}", pid, keys, [])
            for bridge, address in (("slow", node.address), ("fast", node.fast)):
                _ip(switch, "link", "add", f"{bridge}{at}", "type", "veth", "peer", "name", bridge, "netns", str(pid))
                _ip(switch, "link", "set", f"{bridge}{at}", "up", "master", bridge)
                _ip(pid, "address", "add", f"{address}/24", "dev", bridge)
                _ip(pid, "link", "set", bridge, "up")
            _ip(pid, "link", "set", "lo", "up")
            for folder in ("/var/lib", "/run", "/srv"):
                node.run("mount", "-t", "tmpfs", "-o", "mode=755", "none", folder)
            node.run("mkdir", "/run/sshd")
            node.run("mount", "-t", "tmpfs", "none", "/etc/ssh/ssh_config.d")
            node.run("cp", str(home / "client"), "/etc/ssh/ssh_config.d/reconciler.conf")
            sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
            node.start(str(sshd), "-D", "-e", "-f", str(home / "config"), log=home / f"{name}.log")
            nodes.append(node)
        yield nodes
    finally:
        for process in [*(one for node in nodes for one in node.started), *held]:
            process.kill()
            process.wait(5)
