"""Take the events that BMCs post to us.

A post counts by three things: the token in its path, which one subscription alone has; its source, which must be an
address of that BMC; and its Context, where it has one. It is a hint and nothing more: the node is read. Whoever forges
or replays one makes a BMC be read, and that twice a minute at most. All other posts get the same empty 404, before a
byte of their body is read, so that nobody learns which nodes or tokens there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from aiohttp import web

from reconciler.drivers.secrets import SecretError, SecretStore
from reconciler.drivers.server_certificate import ServerCertificate
from reconciler.drivers.source_watch import FloodMeter, flooded
from reconciler.model.access import EventListenerPolicy
from reconciler.model.addresses import split_authority
from reconciler.model.errors import DriverError, Failure
from reconciler.model.event_tokens import CONTEXT, owner_mark

Address = IPv4Address | IPv6Address

MOST_BYTES: Final = 64 * 1024  # of one post
ELSEWHERE_S: Final = 3600.0  # a person must see to it
_BODY_S: Final = 10.0
_BACKLOG: Final = 512
_SILENT: Final = {"Server": ""}  # not which library, of which version


@dataclass(slots=True)
class Expected:
    """A subscription whose posts are awaited. `heard`: how many came. `trouble`: why it is given up, once it is."""

    token: str
    addresses: frozenset[Address]
    hear: Callable[[bytes], None]
    heard: int = 0
    trouble: DriverError | None = None
    meter: FloodMeter = field(default_factory=FloodMeter)


class EventListener:
    """The server for posts of all BMCs. `ledger`: the id of the fleet's, by which its subscriptions are known."""

    def __init__(self, policy: EventListenerPolicy, secrets_: SecretStore, ledger: str) -> None:
        self.owner = owner_mark(ledger)
        self._policy = policy
        self._certificate = ServerCertificate(policy.certificate, policy.key, secrets_, "redfish.events")
        self._expected: dict[str, Expected] = {}
        self._runner: web.ServerRunner | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> str:
        """Listen, if that is not done yet, and return the URL for BMCs. Raise DriverError when that is impossible."""
        async with self._starting:
            try:
                self._certificate.use(await asyncio.to_thread(self._certificate.read))
            except SecretError as error:
                raise DriverError(Failure.REJECTED, str(error)) from None
            if self._runner is None:
                self._runner = await self._listen()
            return (self._policy.url or self._address(self._runner)).rstrip("/")

    async def _listen(self) -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.5)
        await runner.setup()
        host, _, port = self._policy.listen.rpartition(":")
        tls = self._certificate.context
        try:
            await web.TCPSite(runner, host.strip("[]"), int(port), ssl_context=tls, backlog=_BACKLOG).start()
        except OSError as error:
            await runner.cleanup()
            why = f"can't listen for events of BMCs on {self._policy.listen}: {error.strerror}"
            hint = "another run may hold it, or Fleet.redfish.events.listen names an address that this machine lacks"
            raise DriverError(Failure.REJECTED, f"{why}; {hint}") from error
        return runner

    def _address(self, runner: web.ServerRunner) -> str:
        host, port = runner.addresses[0][:2]
        name = f"[{host}]" if ":" in host else host
        return f"{'http' if self._certificate.context is None else 'https'}://{name}:{port}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @contextlib.contextmanager
    def expecting(self, token: str, addresses: frozenset[Address], hear: Callable[[bytes], None]) -> Iterator[Expected]:
        """Take posts with this token from these addresses during the block. `hear` is given each body."""
        expected = self._expected[token] = Expected(token, addresses, hear)
        try:
            yield expected
        finally:
            if self._expected.get(token) is expected:
                del self._expected[token]

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        expected = self._expected.get(request.path.rpartition("/")[2])
        if expected is None or expected.trouble is not None or request.method != "POST":
            return _refused()
        if not _comes_from(expected, request.remote):
            return _refused()
        body = await _body(request)
        if body is None or not _is_of(expected, body):
            return _refused()
        if expected.meter.floods(len(body)):
            expected.trouble = flooded()
        expected.heard += 1
        expected.hear(body)
        return web.Response(status=204, headers=_SILENT)


def _refused() -> web.Response:
    response = web.Response(status=404, headers=_SILENT)
    response.force_close()  # what was not read of it can't be a next request
    return response


def _comes_from(expected: Expected, remote: str | None) -> bool:
    source = _plain(remote or "")
    if source in expected.addresses:
        return True
    if not expected.heard:  # else somebody else has the token, which must not end what works
        known = ", ".join(sorted(map(str, expected.addresses)))
        why = f"an event with this BMC's token came from {source}, which is not its address ({known})"
        hint = "events count from its own address alone, so no proxy and no NAT may stand between"
        expected.trouble = DriverError(Failure.REJECTED, f"{why}: {hint}", retry_after=ELSEWHERE_S)
    return False


async def _body(request: web.BaseRequest) -> bytes | None:
    """Return the body, cut off at MOST_BYTES; None where it does not come in time."""
    taken = bytearray()
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(_BODY_S):
            while len(taken) <= MOST_BYTES:
                part = await request.content.read(MOST_BYTES + 1 - len(taken))
                if not part:
                    return bytes(taken)
                taken += part
            return bytes(taken[:MOST_BYTES])
    return None


def _is_of(expected: Expected, body: bytes) -> bool:
    """Say whether the Context of an event is that of the subscription. Some BMCs send none, or it was cut off."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return True
    if not isinstance(document, dict):
        return True
    listed = document.get("Events")
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    shown = document.get("Context") or first.get("Context")  # in each event before Event 1.1
    wanted = (CONTEXT + expected.token).encode()
    return shown is None or (isinstance(shown, str) and secrets.compare_digest(shown.encode(errors="replace"), wanted))


async def addresses_of(url: str) -> frozenset[Address]:
    """Return the addresses of a BMC. Raise DriverError where its name has none."""
    host, port = split_authority(url.partition("://")[2].partition("/")[0], 443)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DriverError(Failure.UNREACHABLE, f"{host}: no address is known: {error.strerror}") from None
    return frozenset(address for one in found if (address := _plain(str(one[4][0]))) is not None)


def _plain(text: str) -> Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
