"""A real OpenSSH server on loopback, with a host certificate, and hosts that talk to it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from reconciler.drivers.ssh import SshHost

NODE = "gpu-a001"
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


@dataclass(frozen=True)
class Keys:
    """`authority` signs host keys; `host` is the server's, with `certificate`; `login` opens it."""

    authority: asyncssh.SSHKey
    host: asyncssh.SSHKey
    certificate: asyncssh.SSHCertificate
    login: asyncssh.SSHKey

    @property
    def trust(self) -> str:
        return self.authority.export_public_key().decode()


def certify(authority: asyncssh.SSHKey, host: asyncssh.SSHKey, *principals: str, **options: Any) -> Any:
    return authority.generate_host_certificate(host, principals[0], principals=principals, **options)


@pytest.fixture(scope="session")
def keys() -> Keys:
    authority, host, login = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))
    return Keys(authority, host, certify(authority, host, NODE), login)


def private(key: asyncssh.SSHKey) -> str:
    return key.export_private_key().decode()


@dataclass(frozen=True)
class Server:
    port: int
    user: str
    log: Path
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("sshd") / "home", keys) as server:
        yield server


@contextmanager
def started(home: Path, keys: Keys, more: str = "") -> Iterator[Server]:
    """Run a server, with `more` lines of configuration."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("sshd (OpenSSH server) is not installed")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates privileges; root's sshd refuses to run without
    home.mkdir()
    (home / "host").write_text(private(keys.host))
    (home / "host").chmod(0o600)
    (home / "host-cert.pub").write_bytes(keys.certificate.export_certificate())
    (home / "authorized").write_bytes(keys.login.export_public_key())
    port = free_port()
    (home / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nHostCertificate {home}/host-cert.pub\n"
        f"AuthorizedKeysFile {home}/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        f"PermitRootLogin prohibit-password\nPidFile none\nMaxStartups 100\n{more}"
    )
    log = home / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen([program, "-D", "-e", "-f", str(home / "config")], stderr=sink)
    try:
        await_banner(process, port, log)
        yield Server(port, getpass.getuser(), log, process.pid)
    finally:
        process.terminate()
        process.wait(5)


def await_banner(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(100):
        if process.poll() is not None:
            pytest.skip(f"sshd does not run here: {log.read_text()}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
                if probe.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.05)
    pytest.fail(f"sshd does not listen: {log.read_text()}")


HostFactory = Callable[..., SshHost]


@pytest.fixture
def make_host(keys: Keys) -> HostFactory:
    """SshHost for the given port, with the right keys unless told otherwise."""

    def make(port: int, **changes: Any) -> SshHost:
        options: dict[str, Any] = {
            "port": port,
            "user": getpass.getuser(),
            "private_key": private(keys.login),
            "authorities": [keys.trust],
            "connect_timeout": 5.0,
            "now": lambda: NOW,
        }
        return SshHost(changes.pop("node", NODE), "127.0.0.1", **(options | changes))

    return make


@asynccontextmanager
async def closing(host: SshHost) -> AsyncIterator[SshHost]:
    try:
        yield host
    finally:
        await host.close()
