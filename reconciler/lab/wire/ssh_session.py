"""Authenticated connections: one command per channel, as sshd starts them."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import asyncssh

from reconciler.lab.hardware import commands
from reconciler.lab.hardware.machine import HardwareRejected, Machine
from reconciler.lab.hardware.tools.soak import SCRIPTS_THAT_READ
from reconciler.lab.wire import facts
from reconciler.lab.wire.ssh_tools import fact_context, host_tools
from reconciler.model.fact_framing import build_answer, parse_program
from reconciler.model.gate import CommandResult

FOLLOW_S = 0.05  # wall clock: journald hands a line on at once
Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class SshCounters:
    """Counts of connections and commands on one machine, for tests and load figures."""

    connections: int = 0  # all accepted ones
    sessions: int = 0  # of them: authenticated
    rejected: int = 0  # of them: ended before authentication, for any reason
    silent: int = 0  # of them: accepted by a hung system
    fact_programs: int = 0
    commands: int = 0


class Session:
    """Runs the commands of one connection. `awake`: waits while the system hangs, as all its processes do."""

    def __init__(
        self,
        machine: Machine,
        epoch: datetime,
        sleep: Sleep,
        awake: Callable[[], Awaitable[None]],
        counters: SshCounters,
    ) -> None:
        self._machine = machine
        self._epoch = epoch
        self._sleep = sleep
        self._awake = awake
        self._counters = counters
        self._tools = host_tools(epoch)
        self._running: set[asyncio.Task[None]] = set()

    def serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run a command in a task of this module, because asyncssh hides the errors of its own tasks."""
        task = asyncio.create_task(self._run(process))
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Kill the running commands, because the system goes down."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        surface(task)

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        with contextlib.suppress(OSError, asyncssh.Error, HardwareRejected):  # the client or the system is gone
            await self._awake()
            if _follows(process.command or ""):
                await self._follow(process)
                return
            status, out, err = await self._answer(process)
            await self._awake()
            process.stdout.write(out)
            process.stderr.write(err)
            process.exit(status)

    async def _answer(self, process: asyncssh.SSHServerProcess[bytes]) -> tuple[int, bytes, bytes]:
        if process.command is None:
            return 1, b"", b"This machine runs commands only.\n"
        try:
            argv = shlex.split(process.command)
        except ValueError:
            return 2, b"", b"bash: -c: line 1: unexpected EOF while looking for matching quote\n"
        stdin = await process.stdin.read() if _reads_stdin(argv) else b""
        if argv == ["sh", "-s"]:
            return self._facts(stdin.decode(errors="replace"))
        result = await self._command(argv, stdin.decode(errors="replace"))
        return result.exit_status, result.stdout.encode(), result.stderr.encode()

    async def _follow(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Print each line that the kernel logs from now on, until the client or the system goes, as `journalctl -f`."""
        printed = len(self._machine.system().kernel_log)
        while True:
            await asyncio.sleep(FOLLOW_S)
            await self._awake()
            lines = self._machine.system().kernel_log
            printed = min(printed, len(lines))  # lines that a test took away
            for line in lines[printed:]:
                process.stdout.write(f"{line}\n".encode())
            printed = len(lines)

    def _facts(self, program: str) -> tuple[int, bytes, bytes]:
        self._counters.fact_programs += 1
        try:
            nonce, requests = parse_program(program)
        except ValueError as problem:
            return 127, b"", f"sh: 1: {problem}\n".encode()
        self._machine.system()
        answers = {
            request.name: facts.answer(request.name, fact_context(self._machine, self._epoch, request.command))
            for request in requests
        }
        return 0, build_answer(nonce, answers), b""

    async def _command(self, argv: list[str], stdin: str) -> CommandResult:
        """Run a command: its effects happen at once, its answer comes after the real tool's duration."""
        self._counters.commands += 1
        ran = commands.run(self._machine, argv, stdin, self._tools)
        await self._sleep(ran.seconds)
        while ran.waits():
            await self._sleep(1.0)
        return ran.printed()


def _follows(command: str) -> bool:
    words = command.split()
    return "journalctl" in words[:3] and {"-k", "-f"} <= set(words)


def _reads_stdin(argv: list[str]) -> bool:
    """Tell whether a command reads stdin. Others ignore it, so that they do not wait for its end."""
    known = argv in (["sh", "-s"], ["cat"]) or argv[:1] == ["tee"] or argv[:2] == ["python3", "-c"]
    return known or "/dev/stdin" in argv or (argv[:2] == ["sh", "-c"] and argv[2:3] in SCRIPTS_THAT_READ)


def surface(task: asyncio.Task[None]) -> None:
    """Report an error that ended a task to the loop's exception handler, because it is a bug."""
    if not task.cancelled():
        task.result()
