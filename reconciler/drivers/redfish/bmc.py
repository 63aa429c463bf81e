"""The port: `RedfishBmc`. Blocking calls run in threads; nothing of sushy leaves them.

Threads are few and BMCs are many, so that dead ones must not hold them (pitfall A2):

- Whether a BMC that was silent is asked at all, and whether somebody is there, is decided before a thread is taken
  (`door`).
- One that then hangs, and had hung before, waits in a small pool of its own.
- A call whose caller gives up is ended by shutting its sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from reconciler.drivers.redfish import boot, firmware, power, staging
from reconciler.drivers.redfish.bmc_gate import BmcRegistry
from reconciler.drivers.redfish.failures import REASONS
from reconciler.drivers.redfish.fields import Unknown, path, quote
from reconciler.drivers.redfish.hot import Tasks, read_hot
from reconciler.drivers.redfish.inventory import read_inventory
from reconciler.drivers.redfish.media import Media
from reconciler.drivers.redfish.session import Session
from reconciler.drivers.redfish.transport import Aborted
from reconciler.drivers.redfish.tree import Tree
from reconciler.drivers.redfish.wire import Wire
from reconciler.drivers.secrets import Credentials
from reconciler.model.errors import DriverError, Failure
from reconciler.model.interning import share
from reconciler.model.observed import Answered, AttributeValue, BmcTask, RedfishHot, RedfishInventory, Silent
from reconciler.model.ports import Bmc, PowerAction

T = TypeVar("T")

_LIVELY = ThreadPoolExecutor(512, "redfish")  # made as they are needed: as many as callers ask at once
_SUSPECT = ThreadPoolExecutor(16, "redfish-suspect")
_MISSING = frozenset({Failure.UNREACHABLE, Failure.TIMEOUT, Failure.AMBIGUOUS})
_LEAST_TRIED_S = 2.0  # of a call that was given up: shorter ones say nothing of the BMC
# Fleet seconds in which a BMC may well be gone: after its reset, and while something is flashed, which may be itself.
_RESET_S, _FLASH_S = 900.0, 3600.0


class RedfishBmc(Bmc):
    """One node's BMC. The constructor does no I/O.

    `credentials` gives what the secret of that name holds now. `ca_pem`: certificates to trust, and no others; None =
    what the system trusts. `insecure`: trust anything, which the spec has to ask for. Timeouts in wall-clock seconds.
    `bmc_registry`: what the process knows of BMCs, and the fleet's clock; all of a process share one.
    """

    def __init__(
        self,
        address: str,
        *,
        secret: str,
        credentials: Callable[[], Credentials],
        ca_pem: str | None,
        insecure: bool,
        node: str,
        connect_timeout: float = 10,
        read_timeout: float = 30,
        bmc_registry: BmcRegistry,
    ) -> None:
        self._address = address
        self._node = node
        self._now = bmc_registry.now
        self._door = bmc_registry.door(address, connect_timeout)
        self._wire = Wire(address, (ca_pem, insecure), (connect_timeout, read_timeout), self._door.pace)
        account = bmc_registry.logins.account(self._door.address, node=node, secret=secret, read=credentials)
        self._session = Session(self._wire, account, self._now)
        self._tree = Tree(self._session, bmc_registry.quirks)
        self._tasks = Tasks(self._tree)
        self._media = Media(self._tree)
        self._left_behind: Future[Any] | None = None  # a cancelled call whose thread has not noticed yet

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
        found = await self._run(lambda: firmware.read_task(self._tree, where))
        return found or self._tasks.not_yet(where, self._now())

    async def tasks(self) -> Sequence[str]:
        return await self._run(lambda: [uri for uri, _ in self._tree.tasks()[1]])

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
        try:
            uri = await self._run(lambda: firmware.start_update(self._tree, inventory_id, url))
        finally:
            self._door.excuse(_FLASH_S)
        self._tasks.expect(uri, self._now())
        return uri

    async def reset(self) -> None:
        try:
            await self._run(lambda: power.reset_bmc(self._tree))
        finally:
            self._door.excuse(_RESET_S)

    async def close(self) -> None:
        """Never fails: a BMC that can't be reached ends the session by itself, later."""
        self._door.close()
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
        await self._door.knock()
        async with self._door.turn:
            await self._join()
            await self._door.knock()  # again: those before us may have found nobody
            before, began = self._wire.answers, time.monotonic()
            try:
                result = await self._in_thread(call)
            except Unknown as gap:
                self._door.answered()
                raise DriverError(Failure.UNSUPPORTED, str(gap)) from None
            except DriverError as error:
                self._judge(error.kind in _MISSING, before, error.detail)
                raise
            except asyncio.CancelledError:
                if self._left_behind is not None and time.monotonic() - began > _LEAST_TRIED_S:
                    self._judge(True, before, f"{self._address}: no answer before the caller's deadline")
                raise
            self._door.answered()
            return result

    def _judge(self, missing: bool, before: int, why: str) -> None:
        """Of a call that failed: one answer is enough to show that the BMC is there."""
        if missing and self._wire.answers == before:
            self._door.missed(why)
            return
        self._door.answered(fully=not missing)

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
        pool = _SUSPECT if self._door.answers is False else _LIVELY
        self._wire.resume()
        future = pool.submit(self._guarded, call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._door.given_up()
            if not future.cancel():
                self._wire.abort()
                self._left_behind = future
            raise

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            self._wire.rest()
