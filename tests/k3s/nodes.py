"""Nodes on this machine, each with a real sshd, and with /etc, /var/lib, /run, processes and a network of its own.

They are namespaces of the kernel, and whoever is in one is root there: what takes K3s off a node can harm nothing of
this machine. All of it goes when its processes go, and they are killed when we end, however that is.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

NEEDED = ("unshare", "nsenter", "setpriv", "ip", "sshd", "curl", "openssl", "findmnt", "kubectl")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The first process of a node. /sys/fs/cgroup is hidden: containers of this machine are nothing that a node may end. So
# is root's .bashrc, which bash reads when sshd starts it: that of a machine for building may wait for a lock.
_BEGIN = """set -e
for folder in /var/lib /run /usr/local/sbin /sys/fs/cgroup
do mount -t tmpfs -o mode=755 none $folder; done
mkdir /run/sshd
for folder in /etc /usr/local/bin
do upper=/var/lib/overlay$folder; mkdir -p $upper/upper $upper/work
mount -t overlay -o lowerdir=$folder,upperdir=$upper/upper,workdir=$upper/work none $folder; done
: > /etc/fstab
sed -i 's/^root:!*:/root:*:/' /etc/shadow
rm -f /usr/local/bin/k3s
printf '%s\\n%s\\n' "$1" "$2/lab.socket" > /run/node
cp "$2/ask" /usr/local/sbin/shell
cp "$2/ask" /usr/local/sbin/systemctl
cp "$2/ask" /usr/local/sbin/journalctl
for file in .bashrc .ssh/rc; do [ ! -e "$HOME/$file" ] || mount --bind /dev/null "$HOME/$file"; done
ip link set lo up
exec sshd -D -e -f "$2/$1.sshd"
"""
_CONFIG = """\
Port 22
HostKey {home}/{name}.key
HostCertificate {home}/{name}.key-cert.pub
AuthorizedKeysFile {home}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
MaxStartups 100
MaxSessions 50
SetEnv PATH={path}
ForceCommand /usr/local/sbin/shell
"""


@dataclass(frozen=True)
class Node:
    """`holder`: the process whose end is that of the node. `pid`: the first one within it."""

    name: str
    address: str
    holder: subprocess.Popen[bytes]
    pid: int

    def root(self, path: str) -> Path:
        """Return where a file of the node is for us."""
        return Path(f"/proc/{self.pid}/root{path}")

    def inside(self, *argv: str) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-p", "env", f"PATH={_PATH}", *argv]

    def run(self, program: str) -> None:
        """Run a program of sh, whose processes may stay."""
        subprocess.run(self.inside("sh", "-c", program), check=True, stdin=subprocess.DEVNULL, capture_output=True)


def missing() -> str:
    """Return why there can be no such nodes here; "" where there can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if lacking := [name for name in NEEDED if shutil.which(name, path=path) is None]:
        return f"not installed: {', '.join(lacking)}"
    tried = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    if os.getuid() != 0 or subprocess.run(tried, capture_output=True).returncode:
        return "namespaces need root, and a kernel that lets it have them"
    return ""


@dataclass(frozen=True)
class Login:
    """What a node's sshd shows: its private key and certificate."""

    private: str
    certificate: str


@contextmanager
def running(logins: dict[str, Login], authorized: str, home: Path) -> Iterator[dict[str, Node]]:
    """Yield running nodes by name. `authorized`: the key that opens them. `home`: has `ask`; the nodes read from it."""
    (home / "authorized").write_text(authorized)
    net = f"10.88.{os.getpid() % 200 + 20}"
    nodes: dict[str, Node] = {}
    switch = _process("unshare", "--net", "sleep", "inf")
    try:
        _differs(switch.pid)
        _ip(switch.pid, "link", "add", "nodes", "type", "bridge")
        _ip(switch.pid, "link", "set", "nodes", "up")
        ours = f"k3s{os.getpid() % 100000}"
        _ip(None, "link", "add", ours, "type", "veth", "peer", "name", "uplink", "netns", str(switch.pid))
        _ip(None, "address", "add", f"{net}.1/24", "dev", ours)
        _ip(None, "link", "set", ours, "up")
        _ip(switch.pid, "link", "set", "uplink", "up", "master", "nodes")
        for at, (name, login) in enumerate(logins.items()):
            nodes[name] = _begin(name, f"{net}.{at + 10}", login, home)
            holder = nodes[name].holder.pid
            _ip(switch.pid, "link", "add", f"n{at}", "type", "veth", "peer", "name", "eth0", "netns", str(holder))
            _ip(switch.pid, "link", "set", f"n{at}", "up", "master", "nodes")
            _ip(holder, "address", "add", f"{net}.{at + 10}/24", "dev", "eth0")
            _ip(holder, "link", "set", "eth0", "up")
        for node in nodes.values():
            _await_banner(node, home / f"{node.name}.log")
        yield nodes
    finally:
        for process in [*(node.holder for node in nodes.values()), switch]:
            process.kill()
            process.wait(10)


def gateway(nodes: dict[str, Node]) -> str:
    """Return the address under which the nodes reach us."""
    return next(iter(nodes.values())).address.rpartition(".")[0] + ".1"


def _begin(name: str, address: str, login: Login, home: Path) -> Node:
    for path, text in ((f"{name}.key", login.private), (f"{name}.key-cert.pub", login.certificate)):
        (home / path).write_text(text)
        (home / path).chmod(0o600)
    (home / f"{name}.sshd").write_text(_CONFIG.format(home=home, name=name, path=_PATH))
    program = _BEGIN.replace("exec sshd", f"exec {shutil.which('sshd', path=_PATH)}")
    apart = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
    with (home / f"{name}.log").open("ab") as log:
        holder = _process("unshare", *apart, "sh", "-c", program, "sh", name, str(home), log=log)
    _differs(holder.pid)
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    return Node(name, address, holder, int(_until(lambda: children.read_text().split()[:1], f"{name} begins")[0]))


def _process(*argv: str, log: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    words = ["setpriv", "--pdeathsig", "KILL", *argv]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _differs(pid: int) -> None:
    own = Path("/proc/self/ns/net").stat().st_ino
    _until(lambda: ["yes"] if Path(f"/proc/{pid}/ns/net").stat().st_ino != own else [], "a network of its own")


def _until(look: Callable[[], list[str]], what: str) -> list[str]:
    for _ in range(500):
        if found := look():
            return found
        time.sleep(0.02)
    raise TimeoutError(what)


def _ip(pid: int | None, *words: str) -> None:
    within = [] if pid is None else ["nsenter", "-t", str(pid), "-n"]
    subprocess.run([*within, "ip", *words], check=True, capture_output=True)


def _await_banner(node: Node, log: Path) -> None:
    for _ in range(200):
        try:
            with socket.create_connection((node.address, 22), timeout=2) as probe:
                if probe.recv(4) == b"SSH-":
                    return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"the sshd of {node.name} does not answer: {log.read_text()}")
