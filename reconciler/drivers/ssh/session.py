"""A command on an SSH channel: its output, limited in size, and how it ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncssh


class Capture(asyncssh.SSHClientSession[bytes]):
    """Collects what a command prints.

    `ended` is set when the channel is closed, when the output exceeds `limit` bytes, or when stdout holds `until`;
    `closed` when the channel is.
    """

    def __init__(self, limit: int, until: bytes = b"") -> None:
        self._limit, self._until = limit, until
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._out, self._err = bytearray(), bytearray()
        self.ended, self.closed = asyncio.Event(), asyncio.Event()
        self.exceeded = False
        self.lost: Exception | None = None  # why the channel closed, other than the command's end
        self.exit_status: int | None = None  # negative: the signal that killed it

    # --- called by asyncssh --------------------------------------------------------------------------------------

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        into = self._err if datatype == asyncssh.EXTENDED_DATA_STDERR else self._out
        room = self._limit - len(self._out) - len(self._err)
        into += data[:room]
        if len(data) > room:
            self.exceeded = True
            self.ended.set()
        elif into is self._out and self._holds_until(len(data)):
            self.ended.set()

    def _holds_until(self, new: int) -> bool:
        start = max(0, len(self._out) - new - len(self._until))
        return bool(self._until) and self._out.find(self._until, start) >= 0

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._channel is not None
        self.exit_status = self._channel.get_returncode()
        self.lost = exc
        self.closed.set()
        self.ended.set()

    # --- called by the driver ------------------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        """Say whether the host agreed to a session, so that the command may have been started."""
        return self._channel is not None

    @property
    def stdout(self) -> bytes:
        return bytes(self._out)

    @property
    def stderr(self) -> bytes:
        return bytes(self._err)

    def feed(self, stdin: bytes) -> None:
        assert self._channel is not None
        with suppress(OSError):  # the command ended without reading all of it
            if stdin:
                self._channel.write(stdin)
            self._channel.write_eof()

    def terminate(self) -> None:
        """Send TERM to the command's process group, where the server passes signals on."""
        self._signal("TERM")

    def kill(self) -> None:
        self._signal("KILL")
        self.close()

    def _signal(self, name: str) -> None:
        if self._channel is not None and not self.closed.is_set():
            with suppress(OSError):
                self._channel.send_signal(name)

    def close(self) -> None:
        """Close the channel. `closed` is set when the host agrees."""
        if self._channel is not None and not self.closed.is_set():
            self._channel.close()
