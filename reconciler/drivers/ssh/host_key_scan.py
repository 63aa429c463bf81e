"""Read a host's key or CA before it is trusted, for a person to compare."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import asyncssh


@dataclass(frozen=True, slots=True)
class Presented:
    """A host's key. `authority`: the public key of the CA that signed it; "" for an unsigned one."""

    authority: str
    fingerprint: str


class _KeyCollector(asyncssh.SSHClient):
    """Refuses every key, and keeps what was presented."""

    def __init__(self) -> None:
        self.shown: Presented | None = None

    def validate_host_ca_key(self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = Presented(key.export_public_key().decode(), key.get_fingerprint())
        return False

    def validate_host_public_key(self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = self.shown or Presented("", key.get_fingerprint())
        return False


async def presented(address: str, port: int, timeout: float = 5.0) -> Presented | None:
    """Return the host's key; None where nothing speaks SSH. No user and no key of ours is sent."""
    client = _KeyCollector()
    with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
        async with asyncio.timeout(timeout):
            connection = await asyncssh.connect(
                address,
                port,
                client_factory=lambda: client,
                known_hosts=([], [], []),
                config=None,
                client_keys=None,
                agent_path=None,
                username="nobody",
                server_host_key_algs="default",
            )
            connection.abort()
    return client.shown
