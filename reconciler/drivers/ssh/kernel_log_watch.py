"""Follow the kernel logs of all hosts: a line that a signal may be in says which node to read.

Each host has one channel on the connection that its facts are read over, with `journalctl -k -f` on it. Passes read the
whole log, whether somebody follows it or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import asyncssh

from reconciler.drivers.source_watch import FloodMeter, Pauses, SourceWatch, flooded
from reconciler.drivers.ssh.facts import kernel_log
from reconciler.drivers.ssh.host import SshHost
from reconciler.drivers.ssh.session import Capture
from reconciler.model.errors import DriverError, Failure

# timeout(1) ends a process of which the host never heard that we are gone.
COMMAND: Final = ("timeout", "3600", "journalctl", "-q", "-k", "-f", "-n", "0", "-o", "cat", "--no-pager")
_TIMED_OUT: Final = 124
LINE_BYTES: Final = 4096  # what is longer has told what it is by then
PAUSES: Final = Pauses(first=1.0, longest=60.0)


class LineFollower(Capture):
    """Calls `heard` for each burst of output with a line that tells. It keeps nothing but the line under way."""

    def __init__(self, tells: Callable[[bytes], object], heard: Callable[[], None]) -> None:
        super().__init__(0)
        self._tells, self._heard = tells, heard
        self._line = b""
        self._meter = FloodMeter()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self._meter.floods(len(data)):
            self.exceeded = True
            self.ended.set()
            return
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            return
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[:LINE_BYTES]
        if any(self._tells(line[:LINE_BYTES]) for line in lines):
            self._heard()


class KernelLogWatch(SourceWatch):
    """A Watch on the kernel logs of hosts.

    `host_of` returns a node's host; it may raise DriverError, which counts as a host that can't be reached. `texts`:
    what the fleet's own rows look for, in lower case; asked for with each connection, as other rows end it.
    """

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        host_of: Callable[[str], SshHost | None],
        texts: Callable[[], Collection[str]] = tuple,
    ) -> None:
        super().__init__(names, "hosts", PAUSES)
        self._host_of = host_of
        self._texts = texts

    async def follow_once(self, name: str) -> None:
        host = self._host_of(name)
        if host is None:
            await asyncio.Event().wait()  # until it has an address, and with it another spec
            return
        follower = LineFollower(_telling(self._texts()), lambda: self.hear(name))
        async with self.connecting:
            await host.start(COMMAND, follower)
        self.open(name)
        try:
            await follower.ended.wait()
        finally:
            follower.terminate()
            follower.close()
        if follower.exceeded:
            self.hear(name)
            raise flooded()
        if follower.exit_status != _TIMED_OUT:
            why = follower.lost or f"`journalctl -k -f` ended with exit status {follower.exit_status}"
            raise DriverError(Failure.UNREACHABLE, str(why))


def _telling(texts: Collection[str]) -> Callable[[bytes], bool]:
    """Return what says whether a signal may be in a line."""
    own = [text.encode() for text in texts]

    def tells(line: bytes) -> bool:
        if kernel_log.TELLING.search(line):
            return True
        low = line.lower() if own else b""
        return any(text in low for text in own)

    return tells
