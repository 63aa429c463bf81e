"""Follow the events that BMCs push (DSP0266, "Event service"): each says which node to read.

They come in a stream that we open (Server-Sent Events), or a BMC without one posts them (`event_posts`).

Nothing is decided by an event. It makes its node be read, log and parts included, and the reading decides: an event
that comes twice, late, out of order or replayed changes nothing, and `id` and `retry` of the stream are not used. A BMC
that has neither is polled.

What a stream costs a BMC: one connection, opened by turns with other requests (A12), in the session that reads use, so
that no session is taken (B1). iDRAC9 allows two streams, OpenBMC ten; where all are taken, the pauses grow to ten
minutes.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from reconciler.drivers.redfish.bmc import RedfishBmc
from reconciler.drivers.redfish.event_posts import Posts
from reconciler.drivers.redfish.failures import http_error
from reconciler.drivers.redfish.fields import Unknown, boolean, member, path
from reconciler.drivers.redfish.news import is_news
from reconciler.drivers.redfish.tree import Tree
from reconciler.drivers.source_watch import FloodMeter, Pauses, SourceWatch, flooded
from reconciler.model.errors import DriverError, Failure

# Dell's guide of Redfish for iDRAC9: wait 20 to 30 seconds before a stream is opened again.
PAUSES: Final = Pauses(first=30.0, longest=600.0, rest=30.0)
_PROVEN_S: Final = 5.0  # a stream that ends sooner was refused: OpenBMC answers 200 and closes where all are taken
_ANSWER_S: Final = 10.0  # to connect, and for the head of the answer; reads of this BMC wait meanwhile
_LONGEST_EVENT: Final = 64 * 1024
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
# A stream is silent for hours. A BMC that is gone must be missed all the same: after two minutes.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
_ONLY_EVENTS: Final = "$filter=EventFormatType%20eq%20Event"  # iDRAC streams metric reports, too, every few seconds


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where a BMC streams its events, and how it is asked for them. `tls`: None = the address is http://."""

    where: str
    url: str
    headers: Mapping[str, str] = field(repr=False)  # with the session's token
    tls: ssl.SSLContext | None


def event_source(tree: Tree) -> EventSource | None:
    """Return the stream of a BMC; None where it has none, has turned it off, or has no sessions to ask in."""
    try:
        service = tree.follow(tree.session.root(), "EventService").body
    except Unknown:
        return None
    where, token = path(service.get("ServerSentEventUri")), tree.session.token
    if where is None or token is None or boolean(service, "ServiceEnabled") is False:
        return None
    if boolean(member(service, "SSEFilterPropertiesSupported"), "EventFormatType"):
        where += ("&" if "?" in where else "?") + _ONLY_EVENTS
    wire = tree.session.wire
    headers = {"X-Auth-Token": token, "Accept": "text/event-stream", "Cache-Control": "no-cache"}
    return EventSource(where, wire.address + where, headers, wire.tls if wire.address.startswith("https") else None)


class EventReader:
    """Cuts a stream into the data of its events (WHATWG HTML, 9.2.6)."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that are complete by now. What is too long is cut, and no JSON any more."""
        text_ = self._rest + received
        # A lone CR at the end may be half of a CRLF.
        whole, held = (text_[:-1], b"\r") if text_.endswith(b"\r") else (text_, b"")
        *lines, rest = _LINE_END.split(whole)
        self._rest = (rest + held)[-_LONGEST_EVENT:]
        return [event for line in lines if (event := self._take(line.removeprefix(b"\xef\xbb\xbf"))) is not None]

    def _take(self, line: bytes) -> bytes | None:
        if not line:
            found, self._data, self._size = self._data, [], 0
            return b"\n".join(found) if found else None
        name, _, value = line.partition(b":")
        if name == b"data" and self._size < _LONGEST_EVENT:
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
        return None


class BmcEventWatch(SourceWatch):
    """A Watch on the events of BMCs.

    `bmc_of` returns a node's BMC; it may raise DriverError, which counts as a BMC that can't be reached.
    """

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        bmc_of: Callable[[str], RedfishBmc | None],
        posts: Posts | None = None,
    ) -> None:
        super().__init__(names, "BMCs", PAUSES)
        self._bmc_of = bmc_of
        self._posts = posts or Posts(self._bmc_of)

    async def follow_once(self, name: str) -> None:
        bmc = self._bmc_of(name)
        if bmc is None:
            await asyncio.Event().wait()  # until it has an address, and with it another spec
            return
        async with self.connecting:
            source = await bmc.ask(event_source)
        if source is None:
            await self._posts.follow(name, bmc, self)
            return
        async with _client() as client:
            await self._listen(name, bmc, client, source)

    async def _listen(self, name: str, bmc: RedfishBmc, client: aiohttp.ClientSession, source: EventSource) -> None:
        try:
            async with self.connecting, bmc.exclusively(), asyncio.timeout(_ANSWER_S):
                response = await client.get(
                    source.url, headers=source.headers, ssl=source.tls or False, allow_redirects=False
                )
            async with response:
                await _check(source, response)
                proven = asyncio.get_running_loop().call_later(_PROVEN_S, self.open, name)
                try:
                    await self._read(name, response)
                    refused = proven.when() > asyncio.get_running_loop().time()
                finally:
                    proven.cancel()
        except TimeoutError:
            why = f"GET {source.where}: no answer within {_ANSWER_S:g} s"
            raise DriverError(Failure.TIMEOUT, why) from None
        except (aiohttp.ClientError, OSError) as error:
            why = f"GET {source.where}: the stream was lost: {str(error) or type(error).__name__}"
            raise DriverError(Failure.UNREACHABLE, why) from None
        if refused:
            why = f"GET {source.where}: the BMC ended the stream at once: others may have taken all that it allows"
            raise DriverError(Failure.BUSY, why)
        self.hear(name)  # BMCs end silent streams, iDRAC9 after an hour; what is told until the next nobody hears

    async def _read(self, name: str, response: aiohttp.ClientResponse) -> None:
        meter, reader = FloodMeter(), EventReader()
        async for received in response.content.iter_any():
            if meter.floods(len(received)):
                self.hear(name)
                raise flooded()
            if any(map(is_news, reader.feed(received))):
                self.hear(name)


def _client() -> aiohttp.ClientSession:
    """Return a client of one stream. It keeps nothing and reads nothing of the environment (B5)."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    connector = aiohttp.TCPConnector(limit=1, force_close=True, socket_factory=_socket)
    return aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), skip_auto_headers=("User-Agent",),
        headers={"Accept-Encoding": "identity"},
    )  # fmt: skip


def _socket(info: Any) -> socket.socket:
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not everywhere by these names
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


async def _check(source: EventSource, response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        raw = await response.content.read(_LONGEST_EVENT)
        raise http_error("GET", source.where, response.status, raw, response.headers)
    if response.content_type != "text/event-stream":
        why = f"GET {source.where}: the BMC answers with {response.content_type!r}, not with a stream of events"
        raise DriverError(Failure.MALFORMED, why)
