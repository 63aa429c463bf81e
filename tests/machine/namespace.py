"""Namespaces of its own for all that `make machine` starts: network, mounts and processes.

However it ends, nothing is left: with the first process of the namespace the kernel kills all others, and with the last
one the bridge, the taps and the mounts are gone. /etc, /run and /var are overlaid, so libvirt writes none of the host's
files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BRIDGE = "br-machine"
GATEWAY = "10.77.0.1"  # our side: BMC, install server, image server
PREFIX = 24
INSTALL_PORT = 8089
_ENTERED = "MACHINE_NAMESPACE"


def entered() -> bool:
    """Return whether this process is inside: the first of its process namespace is ours."""
    return _ENTERED in os.environ


def run_inside(command: Sequence[str]) -> int:
    """Run a command in new namespaces, and return its exit status when nothing of it is left."""
    # unshare ignores TERM and INT while it waits: it is killed when we end, and kills the first process inside.
    unshare = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--ipc",
        "--fork",
        "--kill-child=SIGKILL",
        "--mount-proc",
    ]
    first = [sys.executable, "-m", "tests.machine.namespace", *command]
    return subprocess.run([*unshare, *first], env={**os.environ, _ENTERED: "1"}, check=False).returncode


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _furnish() -> None:
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{GATEWAY}/{PREFIX}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", "/run"], check=True)
    changes = Path("/run/overlays")
    for folder in ("etc", "var"):
        upper, work = changes / folder / "upper", changes / folder / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir=/{folder},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "none", f"/{folder}"], check=True)


def _reap(command: Sequence[str]) -> int:
    """Run the command as a child, and reap every orphan: libvirt waits until a QEMU that ended has no process."""
    main = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == main.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    _furnish()
    sys.exit(_reap(sys.argv[1:]))
