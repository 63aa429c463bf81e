"""An sshd without a machine of the lab under it: the login host of the lab's Slurm."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Sequence

import asyncssh

from reconciler.lab.pki import HostKey
from reconciler.lab.wire.ssh import ssh_options
from reconciler.model.gate import CommandResult


class LoginServer:
    """`run`: answers a command line. `user`: the one who may log in, by `authorized_key`."""

    def __init__(
        self, run: Callable[[Sequence[str]], CommandResult], *, user: str, host_key: HostKey, authorized_key: str
    ) -> None:
        self._run = run
        self._options = ssh_options(
            user,
            (asyncssh.import_private_key(host_key.private), asyncssh.import_certificate(host_key.certificate)),
            asyncssh.import_authorized_keys(authorized_key),
            self._serve,
        )
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Start serving and return the port."""
        self._acceptor = await asyncssh.listen(host, port, options=self._options)
        return self._acceptor.get_port()

    async def stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        with contextlib.suppress(OSError, asyncssh.Error, asyncio.IncompleteReadError):  # the client is gone
            words = shlex.split(process.command or "")
            result = self._run(words[4:] if words[:2] == ["timeout", "-k"] else words)  # no command here lasts
            process.stdout.write(result.stdout.encode())
            process.stderr.write(result.stderr.encode())
            process.exit(result.exit_status)
