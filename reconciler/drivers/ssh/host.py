"""`SshHost`, which implements model.ports.Host with asyncssh."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import asyncssh

from reconciler.drivers.requests_log import telling
from reconciler.drivers.ssh.connect import ExpiredCertificateError, Reached, Target, connect
from reconciler.drivers.ssh.facts import host_facts, requests
from reconciler.drivers.ssh.facts.extended import Extended, with_extensions
from reconciler.drivers.ssh.facts.fact import excerpt
from reconciler.drivers.ssh.session import Capture
from reconciler.model.confined import Confined
from reconciler.model.errors import SILENT_BECAUSE, DriverError, Failure
from reconciler.model.fact_framing import PATIENCE_S, TIMED_OUT, MalformedAnswer, build_program, parse_answer
from reconciler.model.gate import CommandResult
from reconciler.model.interning import share
from reconciler.model.observed import Answered, HostFacts, Silent
from reconciler.model.vocab import UnknownReason

FACTS_BYTES: Final = 8 * 1024 * 1024
COMMAND_BYTES: Final = 16 * 1024 * 1024
KILL_AFTER_S: Final = 5  # between TERM and KILL: dcgmi and fio clean up
USUAL_S: Final = 20.0  # for all facts, as the spec has it by default; whoever gives more has slow hosts
SHOWN: Final = 200  # characters of a command that is told
CLOSE_S: Final = 2.0  # for a killed command or a closed connection to end
_NO_TIMEOUT: Final = re.compile(r"\btimeout: (command )?not found|command not found: timeout")

_REASONS: Final = {**SILENT_BECAUSE, Failure.AMBIGUOUS: UnknownReason.UNREACHABLE}  # reading facts changes nothing


class SshHost(Confined):
    """A node's SSH connection, opened when it is first needed and once more when it is lost, and kept until `close`.

    Nothing is read from the user's home or agent. `private_key`: the text of a key. `authorities`: public keys of host
    CAs. `insecure`: accept any host key. `revoked`: returns the host keys that are never trusted. `now`: the fleet's
    clock. Wall-clock seconds: `connect_timeout` until the login, `facts_timeout` for all facts together, which also
    limits each of them.
    """

    def __init__(
        self,
        node: str,
        address: str,
        *,
        port: int = 22,
        user: str,
        private_key: str,
        authorities: Sequence[str] = (),
        insecure: bool = False,
        connect_timeout: float = 10.0,
        facts_timeout: float = 18.0,
        revoked: Callable[[], Sequence[str]] = tuple,
        now: Callable[[], datetime],
        extended: Extended = Extended(),  # noqa: B008 - it is frozen
    ) -> None:
        self._extended = extended
        self._revoked = revoked
        self._target = Target(node, address, port, user, private_key, tuple(authorities), insecure)
        self._connect_timeout = connect_timeout
        self._facts_timeout = facts_timeout
        self._now = now
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._client = Reached()
        self._has_timeout = True  # until the host lacks timeout(1)

    @property
    def reached(self) -> bool:
        return self._client.reached

    async def facts(self, sysctls: Sequence[str], services: Sequence[str]) -> Answered[HostFacts] | Silent:
        nonce = secrets.token_hex(16)
        asked = requests(
            sysctls,
            services,
            times=max(1.0, self._facts_timeout / USUAL_S),
            at_most_s=max(1.0, self._facts_timeout - PATIENCE_S - 1),
            more=self._extended.asked,
        )
        try:
            answer = await self._ask(build_program(asked, nonce), nonce)
            answers = parse_answer(answer, nonce)
            facts = with_extensions(host_facts(answers, sysctls, services), answers, self._extended)
        except ExpiredCertificateError as error:
            return Silent(self._now(), UnknownReason.EXPIRED, error.detail)
        except DriverError as error:
            return Silent(self._now(), _REASONS[error.kind], error.detail)
        except MalformedAnswer as error:
            return Silent(self._now(), UnknownReason.MALFORMED, f"{self._target}: {error}")
        return Answered(self._now(), share(facts))

    async def _ask(self, program: str, nonce: str) -> bytes:
        """Run a facts program; return its output up to its last line: a stray process may keep the channel open."""
        with telling(str(self._target), "facts", reads=True):
            return await self._answer(program, nonce)

    async def _answer(self, program: str, nonce: str) -> bytes:
        capture = await self._start("sh -s", program, Capture(FACTS_BYTES, until=f"END {nonce}\n".encode()))
        try:
            async with asyncio.timeout(self._facts_timeout):
                await capture.ended.wait()
        except TimeoutError:
            capture.terminate()
            await self.close()  # the connection is of no more use
            raise DriverError(
                Failure.TIMEOUT,
                f"{self._target}: no facts after {self._facts_timeout:g} s: the host hangs or is overloaded",
            ) from None
        finally:
            capture.close()
        if capture.exceeded:
            raise DriverError(Failure.MALFORMED, f"{self._target} answers with more than {FACTS_BYTES} bytes of facts")
        if capture.lost is not None:
            raise DriverError(
                Failure.UNREACHABLE, f"{self._target} was lost while it answered: {excerpt(str(capture.lost))}"
            )
        if capture.exit_status:
            output = excerpt((capture.stderr or capture.stdout).decode(errors="replace"))
            raise DriverError(
                Failure.MALFORMED, f"{self._target}: `sh -s` ended with exit status {capture.exit_status}: {output}"
            )
        return capture.stdout

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        """Run one command under timeout(1) on the host, so that it ends in time even if we are killed or cut off.

        AMBIGUOUS when the connection is lost meanwhile, as it is under `systemctl reboot`. A command that prints more
        than 16 MiB is killed, with exit status -1 and a last line on stderr that says so.
        """
        loop = asyncio.get_running_loop()
        if self._has_timeout:
            seconds, started = max(1, math.ceil(timeout)), loop.time()
            bounded = ("timeout", "-k", str(KILL_AFTER_S), str(seconds), *argv)
            result = await self._run(bounded, seconds + KILL_AFTER_S + CLOSE_S, stdin)
            killed = result.exit_status in TIMED_OUT or result.exit_status < 0
            if killed and loop.time() - started >= seconds:
                return replace(result, exit_status=-1, timed_out=True)
            if result.exit_status != 127 or _NO_TIMEOUT.search(result.stderr) is None:
                return result
            self._has_timeout = False  # nothing was started; only our own deadline counts from now on
        return await self._run(argv, timeout, stdin)

    async def _run(self, argv: Sequence[str], deadline: float, stdin: str) -> CommandResult:
        with telling(str(self._target), excerpt(shlex.join(argv), SHOWN), reads=False) as told:
            result = await self._result(argv, deadline, stdin)
            told.answer = "timed out" if result.timed_out else f"exit status {result.exit_status}"
            return result

    async def _result(self, argv: Sequence[str], deadline: float, stdin: str) -> CommandResult:
        command = shlex.join(argv)
        capture = await self._start(command, stdin, Capture(COMMAND_BYTES))
        timed_out = False
        try:
            async with asyncio.timeout(deadline):
                await capture.ended.wait()
        except TimeoutError:
            timed_out = True
        except asyncio.CancelledError:
            capture.terminate()
            capture.close()
            raise
        if timed_out or capture.exceeded:
            await self._stop(capture)
        out, err = (stream.decode(errors="replace") for stream in (capture.stdout, capture.stderr))
        if timed_out:
            return CommandResult(-1, out, err, timed_out=True)
        if capture.exceeded:
            return CommandResult(-1, out, f"{err}\nkilled: it printed more than {COMMAND_BYTES} bytes")
        if capture.exit_status is None:
            raise DriverError(
                Failure.AMBIGUOUS,
                f"{self._target} was lost during `{excerpt(command)}`, which may have run: "
                f"{capture.lost or 'the session ended without an exit status'}",
            )
        return CommandResult(capture.exit_status, out, err)

    async def start(self, argv: Sequence[str], capture: Capture) -> None:
        """Start a command that goes on for long; `capture` says when it ends. Raise DriverError."""
        await self._start(shlex.join(argv), "", capture)

    def anew(self, *, renewal_of: str = "") -> SshHost:
        other = object.__new__(SshHost)
        vars(other).update(vars(self))
        other._target = replace(self._target, renewal_of=renewal_of)
        other._connection, other._connecting, other._client = None, asyncio.Lock(), Reached()
        return other

    async def close(self) -> None:
        if self._connection is not None:
            await self._drop(self._connection)

    # --- sessions ------------------------------------------------------------------------------------------------

    async def _start(self, command: str, stdin: str, capture: Capture) -> Capture:
        """Start a command; once more on a new connection when a reused one is dead.

        DriverError AMBIGUOUS once the host has agreed to a session.
        """
        connection, reused = await self._connected()
        try:
            async with asyncio.timeout(self._connect_timeout):
                await connection.create_session(lambda: capture, command, encoding=None)
        except (TimeoutError, OSError, asyncssh.Error) as error:
            if isinstance(error, asyncssh.ChannelOpenError) and not connection.is_closed():
                raise DriverError(
                    Failure.REJECTED, f"{self._target} refuses to run commands for this user: {excerpt(error.reason)}"
                ) from error
            await self._drop(connection)
            if capture.opened:
                raise DriverError(
                    Failure.AMBIGUOUS, f"{self._target} was lost while `{excerpt(command)}` was being started"
                ) from error
            if reused:
                return await self._start(command, stdin, capture)
            raise DriverError(
                Failure.TIMEOUT if isinstance(error, TimeoutError) else Failure.UNREACHABLE,
                f"{self._target} accepts the login, but no session: {excerpt(str(error)) or 'no answer'}",
            ) from error
        capture.feed(stdin.encode())
        return capture

    async def _connected(self) -> tuple[asyncssh.SSHClientConnection, bool]:
        """Return the connection, and whether it was open before."""
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection, True
            target = replace(self._target, revoked=tuple(self._revoked()))
            self._client = Reached()
            self._connection = await connect(target, self._connect_timeout, self._client)
            return self._connection, False

    async def _drop(self, connection: asyncssh.SSHClientConnection) -> None:
        """Close this connection, which another may have replaced."""
        if self._connection is connection:
            self._connection = None
        connection.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await connection.wait_closed()
        except TimeoutError:
            connection.abort()

    async def _stop(self, capture: Capture) -> None:
        """Terminate a command, then kill it; if its channel stays open, close the connection.

        sshd passes signals on since OpenSSH 7.9, but never to root's commands: those get a closed pipe.
        """
        for end in (capture.kill,) if capture.exceeded else (capture.terminate, capture.kill):
            end()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await capture.closed.wait()
            except TimeoutError:
                continue
            return
        await self.close()
