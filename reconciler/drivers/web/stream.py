"""Server-sent events: the journal from where a client left off, and a word whenever what runs has changed.

Each client has a cursor in the journal and no queue: who is slow costs no memory, and is dropped when it takes nothing
for SLOW_S. It comes back with Last-Event-ID and misses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

from pydantic import TypeAdapter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reconciler.drivers.web.access import AccessRefusedError
from reconciler.model.errors import ReconcilerError
from reconciler.model.live import FeedEntry, FleetView

CLIENTS: Final = 64
BATCH: Final = 200  # entries that are read at once for one client
SLOW_S: Final = 10.0
_POLL_S: Final = 1.0  # between two looks at the journal, which other processes write, too
_REST_S: Final = 0.25  # between two words that something has changed
_ALIVE_S: Final = 15.0
_ENTRY: Final = TypeAdapter(FeedEntry)
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects answers would hold events back
]


class Bell:
    """Wakes all streams of one server. `ring` may be called from any thread."""

    def __init__(self, view: FleetView) -> None:
        self.view = view
        self.clients = 0
        self.closed = False
        self.news = 0  # times that the streams were woken
        self.changes = 0  # times that what runs has changed
        self.latest = 0  # newest entry of the journal that was seen
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Tell the streams that what runs has changed."""
        self._call(self._changed)

    async def follow(self) -> None:
        """Look for new entries of the journal while anybody listens, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            if self.clients:
                with suppress(ReconcilerError):  # streams that read find the same error, and end
                    found = await asyncio.to_thread(self.view.events, None, 1)
                    if found and found[-1].id > self.latest:
                        self.latest = found[-1].id
                        self.wake()
            await asyncio.sleep(_POLL_S)

    def close(self) -> None:
        """End all streams. Callable from any thread."""
        self.closed = True
        self._call(self.wake)

    async def wait(self, seen: int, within_s: float) -> None:
        """Wait until something is new since `seen`, a value of `news`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.news == seen:
                    await self._rung.wait()

    def wake(self) -> None:
        self.news += 1
        self._rung.set()
        self._rung = asyncio.Event()

    def _call(self, what: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the server has ended, and its loop is closed
                self._loop.call_soon_threadsafe(what)

    def _changed(self) -> None:
        self.changes += 1
        self.wake()


class EventStream(Response):
    """An answer that ends when its client goes, is too slow or may not read any more, or the server ends.

    `after`: the last entry it has. `check`: raises AccessRefusedError when its client may not read.
    """

    def __init__(self, bell: Bell, after: int | None, check: Callable[[], object]) -> None:
        super().__init__()
        self._check = check
        self._bell = bell
        self._after = after
        self._changes = bell.changes  # as of the request: what changes while it is answered is told

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self._bell.clients += 1
        gone = asyncio.create_task(_until_gone(receive))
        writing = asyncio.create_task(self._write(send))
        try:
            await asyncio.wait([gone, writing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._bell.clients -= 1
            for task in (gone, writing):
                task.cancel()
            await asyncio.wait([gone, writing])
        if not writing.cancelled():
            writing.result()

    async def _write(self, send: Send) -> None:
        try:
            await _send(send, {"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for text in self._frames():
                await _send(send, {"type": "http.response.body", "body": text.encode(), "more_body": True})
            await _send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            return  # too slow, or gone: it comes back with its Last-Event-ID
        except AccessRefusedError:
            return  # it is told why when it comes back
        except ReconcilerError:
            return  # the ledger fails: the page says so when it reads, and asks for the stream again

    async def _frames(self) -> AsyncIterator[str]:
        bell, changes = self._bell, self._changes
        entries = await self._read(None, 1) if self._after is None else ()
        after = self._after if self._after is not None else (entries[-1].id if entries else 0)
        yield f"retry: 2000\nid: {after}\nevent: begun\ndata: {{}}\n\n"
        told = checked = time.monotonic()
        while not bell.closed:
            if time.monotonic() - checked > _ALIVE_S:
                await asyncio.to_thread(self._check)  # its token may be read from a program
                checked = time.monotonic()
            seen = bell.news  # before the journal is read: what comes meanwhile is not missed
            changed, changes = changes != bell.changes, bell.changes
            if changed:  # first: reading the journal takes as long as showing what runs
                yield "event: changed\ndata: {}\n\n"
            entries = await self._read(after, BATCH)
            for entry in entries:
                after = entry.id
                yield f"id: {after}\nevent: entry\ndata: {_ENTRY.dump_json(entry).decode()}\n\n"
            if changed:
                await asyncio.sleep(_REST_S)
            elif not entries and time.monotonic() - told > _ALIVE_S:
                yield ": alive\n\n"
            else:
                if len(entries) < BATCH:
                    await bell.wait(seen, _ALIVE_S)
                continue
            told = time.monotonic()

    async def _read(self, after: int | None, limit: int) -> Sequence[FeedEntry]:
        return await asyncio.to_thread(self._bell.view.events, after, limit)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, message: dict[str, object]) -> None:
    async with asyncio.timeout(SLOW_S):
        await send(message)
