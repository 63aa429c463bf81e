"""A TCP port that keeps its number while its listener opens and closes.

Between boots nothing listens and the kernel refuses connections, as it does when sshd is not running. A second socket,
bound but never listening, reserves the number meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

_BACKLOG = 128
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Port:
    """A reserved port. `accepted` gets every connection and closes its socket."""

    def __init__(self, host: str, port: int, accepted: Callable[[socket.socket], None]) -> None:
        self._accepted = accepted
        self._listener: socket.socket | None = None
        self._reserved = bound(host, port)
        self.host = host
        self.number: int = self._reserved.getsockname()[1]

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    def open(self) -> None:
        if self._listener is not None:
            return
        self._listener = bound(self.host, self.number)
        self._listener.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def shut(self) -> None:
        """Stop listening: new connections are refused, open ones stay."""
        if self._listener is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._listener = None

    def close(self) -> None:
        self.shut()
        self._reserved.close()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):  # the peer may have gone already
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._accepted(connection)


def reset(connection: socket.socket) -> None:
    """Close the connection at once with a TCP reset."""
    with contextlib.suppress(OSError):  # fails on some systems after the peer has reset it
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    connection.close()


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that reserves a port number, and still lets a server of this process listen on it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setblocking(False)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if not hasattr(socket, "TCP_QUICKACK"):  # outside Linux two sockets share a port only with this
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((host, port))
    return found
