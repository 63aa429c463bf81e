"""A machine for soaks with a real systemd, as process 1 of namespaces of its own, and a real sshd as one of its units.

It shares kernel, programs and loopback network with this machine, and none of its state. Its disk is a folder, which
outlives it. Its boot id, which would be that of the kernel, is a file that each boot writes anew.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

import asyncssh

_PROGRAMS = ("setpriv", "unshare", "nsenter", "mount", "systemd-run", "systemctl")
_SYSTEMD, _SSHD = Path("/lib/systemd/systemd"), Path("/usr/sbin/sshd")
_BOOTED_S = 60.0

# $1: the folder. Units of the distribution are hidden: of a whole boot, soaks need nothing.
_BOOT = """set -e
mount --make-rprivate /
mount -t tmpfs none /run; mkdir /run/machine /run/sshd; mount --bind "$1" /run/machine
for place in /etc/systemd /lib/systemd/system /var/lib /tmp; do mount -t tmpfs none $place; done
mkdir -p /etc/systemd/system /var/lib/reconciler; mount --bind /run/machine/disk /var/lib/reconciler
mount --bind /run/machine/boot_id /proc/sys/kernel/random/boot_id
umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
cd /lib/systemd/system
for name in sysinit basic shutdown umount; do printf '[Unit]\\nDefaultDependencies=no\\n' >$name.target; done
printf '[Unit]\\nDefaultDependencies=no\\nWants=sshd.service\\n' >soak.target
serve='/usr/sbin/sshd -D -e -f /run/machine/sshd'
printf '[Unit]\\nDefaultDependencies=no\\n[Service]\\nExecStart=%s\\n' "$serve" >sshd.service
cd /
exec env -i container=soak PATH="$PATH" /lib/systemd/systemd --system --unit=soak.target --show-status=no
"""


class NoMachine(Exception):
    """There can be no such machine here. The text says why."""


class SoakMachine:
    """Made off; `boot` switches it on, and `cut_power` off."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in _PROGRAMS if shutil.which(name) is None]
        missing += [str(path) for path in (_SYSTEMD, _SSHD) if not path.exists()]
        if missing or os.geteuid() != 0:
            raise NoMachine(f"it takes root and {', '.join(missing) or 'namespaces'}")
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "disk").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        key, host_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        self.key = key.export_private_key().decode()
        (folder / "authorized").write_bytes(key.export_public_key())
        host_key.write_private_key(folder / "host_key")
        (folder / "host_key").chmod(0o600)
        (folder / "boot.sh").write_text(_BOOT)
        (folder / "sshd").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey /run/machine/host_key\nPidFile none\nUsePAM no\n"
            "AuthorizedKeysFile /run/machine/authorized\nStrictModes no\nPermitRootLogin prohibit-password\n"
        )

    @property
    def disk(self) -> Path:
        """Return what the machine has as /var/lib/reconciler."""
        return self.folder / "disk"

    def boot(self) -> None:
        """Switch it on, and return when its sshd answers. Raise NoMachine where namespaces are forbidden."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        spaces = ("--pid", "--mount-proc", "--mount", "--uts", "--ipc", "--cgroup")
        apart = ("setpriv", "--pdeathsig", "KILL", "--", "unshare", "--fork", "--kill-child", *spaces)
        with (self.folder / "console").open("wb") as console:
            self._process = subprocess.Popen(
                [*apart, "sh", self.folder / "boot.sh", self.folder],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        until = time.monotonic() + _BOOTED_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.cut_power()
                raise NoMachine((self.folder / "console").read_text(errors="replace")[-500:] or "it does not boot")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def cut_power(self) -> None:
        """End all of its processes at once: the kernel does so where process 1 of a namespace is killed.

        Process 1 is gone only when all others are, and unshare waits for it. So the next boot finds its port free.
        """
        if self._process is not None:
            os.kill(self._init() or self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _init(self) -> int | None:
        """Return the number that the machine's process 1 has here; None where it has none any more."""
        assert self._process is not None
        try:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def run(self, *argv: str) -> str:
        """Run a command on it, as somebody at its console does, and return what it printed."""
        enter = ("nsenter", "-t", str(self._init()), "-m", "-p", "-C", "-i", "-u")
        done = subprocess.run([*enter, *argv], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout
