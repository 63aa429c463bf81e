"""Follow the kernel logs of all hosts: a line that a signal may be in says which node to read (DESIGN section 8).

Each host has one channel on the connection that its facts are read over, with `journalctl -k -f` on it. It proves
nothing and loses what is said while it is away: passes read the whole log, whether somebody follows it or not.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from typing import Final

import asyncssh

from reconciler.drivers.ssh.facts.kernel_log import TELLING
from reconciler.drivers.ssh.host import SshHost
from reconciler.drivers.ssh.session import Capture
from reconciler.model.crash import of_its_own_async
from reconciler.model.errors import DriverError, Failure

# timeout(1) ends a process of which the host never heard that we are gone.
COMMAND: Final = ("timeout", "3600", "journalctl", "-q", "-k", "-f", "-n", "0", "-o", "cat", "--no-pager")
_TIMED_OUT: Final = 124
MOST_BYTES: Final = 256 * 1024  # within WINDOW_S; whoever prints more floods, and is not followed for a while
WINDOW_S: Final = 10.0
LINE_BYTES: Final = 4096  # what is longer has told what it is by then
AFTER_FLOOD_S: Final = 60.0
_PAUSES_S: Final = (1.0, 60.0)  # the shortest and the longest after a failure
_CONNECTING: Final = 32  # hosts at once
_DEAD_S: Final = 120.0  # a boot may take as long; who is away longer is reported
_LOOK_S: Final = 5.0


class LineFollower(Capture):
    """Calls `heard` for each burst of output with a line that matches. It keeps nothing but the line under way."""

    def __init__(self, matches: re.Pattern[bytes], heard: Callable[[], None]) -> None:
        super().__init__(0)
        self._matches, self._heard = matches, heard
        self._line = b""
        self._window, self._bytes = 0.0, 0

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._window > WINDOW_S:
            self._window, self._bytes = now, 0
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self.exceeded = True
            self.ended.set()
            return
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            return
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[:LINE_BYTES]
        if any(self._matches.search(line[:LINE_BYTES]) for line in lines):
            self._heard()


class KernelLogWatch:
    """A Watch on the kernel logs of hosts.

    `names`: the nodes to follow, asked again every few seconds. `host_of` returns a node's host; it may raise
    DriverError, which counts as a host that can't be reached.
    """

    def __init__(self, names: Callable[[], Collection[str]], host_of: Callable[[str], SshHost | None]) -> None:
        self._names = names
        self._host_of = host_of
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._dead: dict[str, tuple[float, str]] = {}  # node -> since when its log is not followed, and why
        self._connecting = asyncio.Semaphore(_CONNECTING)

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:
        """Yield names of nodes whose kernel log said something that a signal may be in.

        It never ends by itself: leave it with `aclosing`. `tell` is called with the reason when logs have not been
        followed for two minutes, and with "" when all are again.
        """
        tasks: dict[str, asyncio.Task[None]] = {}
        told = False
        try:
            while True:
                self._keep_up(tasks)
                if bool(problem := self._problem(len(tasks))) is not told:
                    told = not told
                    tell(problem)
                try:
                    async with asyncio.timeout(_LOOK_S):
                        name = await self._news.get()
                except TimeoutError:
                    continue
                self._queued.discard(name)
                yield name
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _keep_up(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        """Follow who is to be followed, and nobody else. A follower that ended by a bug begins anew."""
        names = self._names()
        for name in [name for name, task in tasks.items() if task.done() or name not in names]:
            tasks.pop(name).cancel()
            self._dead.pop(name, None)
        for name in names:
            if name not in tasks:
                tasks[name] = asyncio.create_task(self._of_one(name))

    def _problem(self, total: int) -> str:
        since = asyncio.get_running_loop().time() - _DEAD_S
        dead = sorted((name, why) for name, (at, why) in self._dead.items() if at <= since)
        if not dead:
            return ""
        (name, why), many = dead[0], len(dead)
        return f"{many} of {total} hosts, which are only read in passes; the first is {name}: {why}"

    async def _of_one(self, name: str) -> None:
        await of_its_own_async(
            name, "following its kernel log", lambda: self._follow(name), lambda crash: self._lost(name, crash.sentence)
        )
        await asyncio.sleep(_PAUSES_S[1])

    async def _follow(self, name: str) -> None:
        """Follow one host for ever. After a time in which nobody did, its node is read."""
        pauses = _pauses()
        while True:
            began = asyncio.get_running_loop().time()
            pause = 0.0
            try:
                await self._follow_once(name)
                continue  # its hour is over
            except DriverError as error:
                self._lost(name, error.detail)
                pause = AFTER_FLOOD_S if error.kind is Failure.BUSY else next(pauses)
            if asyncio.get_running_loop().time() - began > _PAUSES_S[1]:
                pauses = _pauses()
            await asyncio.sleep(pause)

    async def _follow_once(self, name: str) -> None:
        host = self._host_of(name)
        if host is None:
            await asyncio.Event().wait()  # until it has an address, and with it another spec
            return
        follower = LineFollower(TELLING, lambda: self._hear(name))
        async with self._connecting:
            await host.start(COMMAND, follower)
        if self._dead.pop(name, None) is not None:
            self._hear(name)  # what it said meanwhile nobody heard
        try:
            await follower.ended.wait()
        finally:
            follower.terminate()
            follower.close()
        if follower.exceeded:
            self._hear(name)
            raise DriverError(Failure.BUSY, f"it prints more than {MOST_BYTES} bytes within {WINDOW_S:g} s")
        if follower.exit_status != _TIMED_OUT:
            why = follower.lost or f"`journalctl -k -f` ended with exit status {follower.exit_status}"
            raise DriverError(Failure.UNREACHABLE, str(why))

    def _lost(self, name: str, why: str) -> None:
        at, _ = self._dead.get(name, (asyncio.get_running_loop().time(), ""))
        self._dead[name] = at, why

    def _hear(self, name: str) -> None:
        if name not in self._queued:  # a node is read once, however much it says
            self._queued.add(name)
            self._news.put_nowait(name)


def _pauses() -> Iterator[float]:
    pause, longest = _PAUSES_S
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load
        pause = min(2 * pause, longest)
