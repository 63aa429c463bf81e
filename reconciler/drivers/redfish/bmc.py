"""The port: `RedfishBmc`. Blocking calls run in threads; nothing of sushy leaves them.

Threads are few and BMCs are many, so that dead ones must not hold them (pitfall A2):

- A BMC that we have not spoken with, or that failed at its last call, is first probed by a TCP connect on the event
  loop, which holds no thread.
- One that then hangs, and had hung before, waits in a small pool of its own.
- A call whose caller gives up is ended by shutting its sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from reconciler.drivers.redfish import boot, firmware, power, staging
from reconciler.drivers.redfish.failures import REASONS
from reconciler.drivers.redfish.fields import Unknown, path, quote
from reconciler.drivers.redfish.hot import Tasks, read_hot
from reconciler.drivers.redfish.inventory import read_inventory
from reconciler.drivers.redfish.media import Media
from reconciler.drivers.redfish.session import Session
from reconciler.drivers.redfish.transport import Aborted
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import (
    Answered,
    AttributeValue,
    BmcTask,
    RedfishHot,
    RedfishInventory,
    Silent,
)
from reconciler.model.ports import Bmc, PowerAction
from reconciler.model.sharing import share

T = TypeVar("T")

_LIVELY = ThreadPoolExecutor(512, "redfish")  # made as they are needed: as many as callers ask at once
_SUSPECT = ThreadPoolExecutor(16, "redfish-suspect")
_MISSING = frozenset({Failure.UNREACHABLE, Failure.TIMEOUT, Failure.AMBIGUOUS})


class RedfishBmc(Bmc):
    """One BMC. The constructor does no I/O.

    `ca_pem`: certificates to trust, and no others; None = what the system trusts. `insecure`: trust anything, which
    the spec has to ask for. Timeouts in wall-clock seconds.
    """

    def __init__(
        self,
        address: str,
        *,
        username: str,
        password: str,
        ca_pem: str | None,
        insecure: bool,
        node: str,
        connect_timeout: float = 10,
        read_timeout: float = 30,
        now: Callable[[], datetime],
    ) -> None:
        self._address = address
        self._node = node
        self._now = now
        self._connect_timeout = connect_timeout
        self._session = Session(
            address,
            username=username,
            password=password,
            ca_pem=ca_pem,
            insecure=insecure,
            timeouts=(connect_timeout, read_timeout),
        )
        self._tree = Tree(self._session)
        self._tasks = Tasks(self._tree)
        self._media = Media(self._tree)
        self._turn = asyncio.Lock()  # readers too: BMCs freeze under parallel requests (A12)
        self._left_behind: Future[Any] | None = None  # a cancelled call whose thread has not noticed yet
        self._answers: bool | None = None  # at its last call; None: not asked yet

    def __repr__(self) -> str:
        return f"RedfishBmc({self._node!r}, {self._address!r})"

    # --- reads ---------------------------------------------------------------------------------------------------

    async def hot(self) -> Answered[RedfishHot] | Silent:
        return await self._read(lambda: read_hot(self._tree, self._tasks))

    async def inventory(self) -> Answered[RedfishInventory] | Silent:
        return await self._read(lambda: read_inventory(self._tree))

    async def media(self) -> str | None:
        return await self._run(self._media.url)

    async def task(self, uri: str) -> BmcTask | None:
        where = path(uri)
        if where is None:
            raise DriverError(Failure.REJECTED, f"{quote(uri)!r} is not a task on a BMC")
        return await self._run(lambda: firmware.read_task(self._tree, where))

    # --- writes --------------------------------------------------------------------------------------------------

    async def power(self, action: PowerAction) -> None:
        await self._run(lambda: power.power(self._tree, action))

    async def stage_bios(self, attributes: Mapping[str, AttributeValue]) -> None:
        await self._run(lambda: staging.stage_bios(self._tree, attributes))

    async def clear_bios(self) -> None:
        await self._run(lambda: staging.clear_bios(self._tree))

    async def set_secure_boot(self, enabled: bool) -> None:
        await self._run(lambda: boot.set_secure_boot(self._tree, enabled))

    async def set_boot_order(self, order: Sequence[str]) -> None:
        await self._run(lambda: boot.set_boot_order(self._tree, order))

    async def boot_once(self, device: str) -> None:
        await self._run(lambda: boot.boot_once(self._tree, device))

    async def insert_media(self, url: str) -> None:
        await self._run(lambda: self._media.insert(url))

    async def eject_media(self) -> None:
        await self._run(self._media.eject)

    async def update_firmware(self, inventory_id: str, url: str) -> str:
        uri = await self._run(lambda: firmware.start_update(self._tree, inventory_id, url))
        self._tasks.expect(uri)
        return uri

    async def reset(self) -> None:
        await self._run(lambda: power.reset_bmc(self._tree))

    async def close(self) -> None:
        """Never fails: a BMC that can't be reached ends the session by itself, later."""
        if not self._session.open:
            return
        try:
            await self._run(self._session.close)
        except DriverError:
            return

    # --- threads -------------------------------------------------------------------------------------------------

    async def _read(self, call: Callable[[], T]) -> Answered[T] | Silent:
        at = self._now()  # of the first byte: facts are at least as old as that
        try:
            return Answered(at, share(await self._run(call)))
        except DriverError as error:
            return Silent(at, REASONS[error.kind], error.detail)

    async def _run(self, call: Callable[[], T]) -> T:
        """`call` in a thread, after those before it. Unknown is what this BMC lacks: UNSUPPORTED."""
        async with self._turn:
            await self._join()
            try:
                if not self._answers:
                    await self._probe()
                result = await self._in_thread(call)
            except Unknown as gap:
                self._answers = True
                raise DriverError(Failure.UNSUPPORTED, str(gap)) from None
            except DriverError as error:
                self._answers = error.kind not in _MISSING
                raise
            self._answers = True
            return result

    async def _join(self) -> None:
        """Wait for the thread of a call that was given up."""
        if self._left_behind is None:
            return
        ended = asyncio.wrap_future(self._left_behind)
        ended.add_done_callback(asyncio.Future.exception)  # looked at, should nobody wait until then
        await asyncio.wait([ended])
        self._left_behind = None
        error = ended.exception()
        if error is not None and not isinstance(error, Aborted | DriverError | Unknown):
            raise error

    async def _in_thread(self, call: Callable[[], T]) -> T:
        pool = _SUSPECT if self._answers is False else _LIVELY
        self._session.wire.resume()
        future = pool.submit(self._guarded, call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._answers = False
            if not future.cancel():
                self._session.wire.abort()
                self._left_behind = future
            raise

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            self._session.wire.rest()

    async def _probe(self) -> None:
        parts = urlsplit(self._address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except TimeoutError:
            why = f"no connection within {self._connect_timeout:g} s; check the network, and that the BMC has power"
            raise DriverError(Failure.UNREACHABLE, f"{self._address}: {why}") from None
        except OSError as error:
            why = f"no connection: {quote(error.strerror or error)}; check address and port"
            raise DriverError(Failure.UNREACHABLE, f"{self._address}: {why}") from None
        writer.close()
