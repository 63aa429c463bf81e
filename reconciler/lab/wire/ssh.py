"""The sshd of one lab machine, on loopback. It runs while the machine's system runs, and fails as the machine fails.

Machine.ssh_transport decides how a connection ends: no socket listens while no system runs or a fault refuses sshd; a
hung system completes the TCP handshake and then sends nothing; established sessions of a hung system stall, those of a
system that goes down are cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import asyncssh

from reconciler.lab.hardware.machine import Machine
from reconciler.lab.wire.ssh_port import Port, reset
from reconciler.lab.wire.ssh_session import Session, Sleep, SshCounters, surface

USER = "root"
_VERSION = "OpenSSH_8.9p1 Ubuntu-3ubuntu0.10"
_LAST_WORD_S = 0.5  # real time, for the last output of a session
_KEX = ("curve25519-sha256", "curve25519-sha256@libssh.org")
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com")

# The system that a connection belongs to, and whether that system hung when it accepted it.
_Origin = tuple[str | None, bool]


class SshServer:
    """`epoch`: the date at which the machine's clock read 0. `sleep`: waits for seconds of the machine's time.

    `host_key`, `host_certificate` and `authorized_key` are OpenSSH texts. Only a system whose disk is CA-signed
    (DiskImage.ssh_ca) offers the certificate. `poll_s`: real seconds between looks at the machine.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        host_key: str,
        host_certificate: str,
        authorized_key: str,
        epoch: datetime,
        sleep: Sleep,
        poll_s: float = 0.2,
    ) -> None:
        self.counters = SshCounters()
        self._machine = machine
        self._poll_s = poll_s
        self._session = Session(machine, epoch, sleep, self._awake, self.counters)
        key = asyncssh.import_private_key(host_key)
        certificate = asyncssh.import_certificate(host_certificate)
        authorized = asyncssh.import_authorized_keys(authorized_key)
        self._signed = ssh_options(USER, (key, certificate), authorized, self._session.serve)
        self._unsigned = ssh_options(USER, key, authorized, self._session.serve)
        self._port: Port | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._not_hung = asyncio.Event()
        self._stopping_since: float | None = None  # in real time
        self._connections: dict[asyncio.Task[None], _Origin] = {}

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Start serving and return the port, which stays the same through all boots. 0: any free port."""
        self._port = Port(host, port, self._accept)
        self._follow()
        self._watcher = asyncio.create_task(self._watch(), name=f"sshd of {self._machine.name}")
        self._watcher.add_done_callback(surface)
        return self._port.number

    async def stop(self) -> None:
        if self._port is None or self._watcher is None:
            return
        self._port.close()
        await _end([self._watcher, *self._connections])
        await self._session.stop()
        self._port = self._watcher = None

    # --- the machine's life ---

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            await _end(self._follow())

    def _follow(self) -> list[asyncio.Task[None]]:
        """Open or close the listener as the machine requires. Cut connections whose system is gone or recovered."""
        assert self._port is not None
        transport = self._machine.ssh_transport()
        if transport in (None, "hang"):
            self._port.open()
        else:
            self._port.shut()
        if transport != "hang":
            self._not_hung.set()
        boot = None if self._is_silenced() else self._boot()
        return [
            task
            for task, (accepted_by, hung) in self._connections.items()
            if accepted_by != boot or (hung and transport != "hang")
        ]

    def _boot(self) -> str | None:
        """Return the boot id of the system that answers."""
        system = self._machine.state.os
        return None if system is None else system.boot_id

    def _is_silenced(self) -> bool:
        """Tell whether a stopping system must end its sessions; `systemctl reboot` may still print its output first."""
        system = self._machine.state.os
        if system is None or not system.stopping:
            self._stopping_since = None
            return system is None
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
        return time.monotonic() - self._stopping_since > _LAST_WORD_S

    def _hangs_after_login(self) -> bool:
        """Tell whether sshd works but commands hang, as with a root file system that does not answer."""
        fault = self._machine.fault("ssh_hang")
        return fault is not None and fault.get("at") == "exec" and not self._machine.system().hung

    async def _awake(self) -> None:
        """Wait until the system does not hang."""
        if self._machine.ssh_transport() == "hang":
            self._not_hung.clear()
            await self._not_hung.wait()

    # --- connections ---

    def _accept(self, connection: socket.socket) -> None:
        self.counters.connections += 1
        transport = self._machine.ssh_transport()
        silent = transport == "hang" and not self._hangs_after_login()
        if transport not in (None, "hang"):  # it went down since the last check
            reset(connection)
            return
        options = self._signed if self._machine.disk().ssh_ca else self._unsigned
        task = asyncio.create_task(self._say_nothing(connection) if silent else self._serve(connection, options))
        self._connections[task] = self._boot(), silent
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        surface(task)

    async def _serve(self, connection: socket.socket, options: asyncssh.SSHServerConnectionOptions) -> None:
        try:
            ssh = await asyncssh.run_server(connection, options=options)
        except (asyncssh.Error, OSError):
            self.counters.rejected += 1
            return
        self.counters.sessions += 1
        try:
            await ssh.wait_closed()
        finally:
            ssh.abort()

    async def _say_nothing(self, connection: socket.socket) -> None:
        self.counters.silent += 1
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(ConnectionError):
                while await loop.sock_recv(connection, 4096):
                    pass
        finally:
            reset(connection)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def ssh_options(
    user: str, key: object, authorized: asyncssh.SSHAuthorizedKeys, serve: Callable[..., Any]
) -> asyncssh.SSHServerConnectionOptions:
    """Return the options of an sshd as the lab's machines have it. `serve`: runs each command."""
    return asyncssh.SSHServerConnectionOptions(
        server_factory=lambda: _Login(user, authorized),
        server_host_keys=[key],
        process_factory=serve,
        server_version=_VERSION,
        kex_algs=_KEX,
        encryption_algs=_CIPHERS,
        compression_algs=("none",),
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
        allow_scp=False,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
    )


class _Login(asyncssh.SSHServer):
    """The login check: only public keys, only for one user."""

    def __init__(self, user: str, authorized: asyncssh.SSHAuthorizedKeys) -> None:
        self._user = user
        self._authorized = authorized
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        if username == self._user and self._connection is not None:
            self._connection.set_authorized_keys(self._authorized)
        return True
