"""`RedfishBmc`, which implements model.ports.Bmc. Blocking calls run in threads.

Threads are few and BMCs are many, so that dead ones must not hold them (pitfall A2):

- The gate decides, before a thread is taken, whether a BMC that was silent is called at all.
- Calls to a BMC that hung before run in a small pool of their own.
- A call whose caller gives up is ended by shutting its sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from reconciler.drivers.redfish import boot, drives, firmware, indicator, integrity, power, staging
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
from reconciler.model.measurements import SignedMeasurements
from reconciler.model.observed import Answered, AttributeValue, BmcTask, RedfishHot, RedfishInventory, Silent
from reconciler.model.ports import Bmc, FirmwareFile, PowerAction

T = TypeVar("T")

_POOL = ThreadPoolExecutor(512, "redfish")  # threads are created as they are needed
_SUSPECT_POOL = ThreadPoolExecutor(16, "redfish-suspect")
_MISSING = frozenset({Failure.UNREACHABLE, Failure.TIMEOUT, Failure.AMBIGUOUS})
_MEASURING_POLL_S = 1.0  # of wall-clock time; a root of trust takes seconds to sign
_SHORTEST_TRY_S = 2.0  # a call that was given up sooner says nothing about the BMC
# Fleet seconds in which a BMC may be gone: after its reset, and during a flash, which may be its own.
_RESET_S, _FLASH_S = 900.0, 3600.0


class RedfishBmc(Bmc):
    """One node's BMC. The constructor does no I/O.

    `credentials` returns the present value of the secret of that name. `ca_pem`: the only certificates to trust; None =
    those that the system trusts. `insecure`: trust any, which the spec has to ask for. Timeouts in wall-clock seconds.
    `bmc_registry`: what the process knows about BMCs, and the fleet's clock; all BMCs of a process share one.
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
        self._gate = bmc_registry.gate(address, connect_timeout)
        self._wire = Wire(address, (ca_pem, insecure), (connect_timeout, read_timeout), self._gate.gaps)
        account = bmc_registry.login_guard.account(self._gate.address, node=node, secret=secret, read=credentials)
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
        return found or self._tasks.starting(where, self._now())

    async def tasks(self) -> Sequence[str]:
        return await self._run(lambda: [uri for uri, _ in self._tree.tasks()[1]])

    async def signed_measurements(self, component: str, nonce: bytes) -> SignedMeasurements:
        found = await self._run(lambda: integrity.ask(self._tree, component, nonce))
        while isinstance(found, str):
            await asyncio.sleep(_MEASURING_POLL_S)
            found = await self._run(partial(integrity.result, self._tree, component, found)) or found
        return found

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

    async def clear_boot_override(self) -> None:
        await self._run(lambda: boot.clear_override(self._tree))

    async def insert_media(self, url: str) -> None:
        await self._run(lambda: self._media.insert(url))

    async def eject_media(self) -> None:
        await self._run(self._media.eject)

    async def boot_http(self, url: str) -> None:
        await self._run(lambda: boot.boot_http(self._tree, url))

    async def http_boot_uri(self) -> str | None:
        return await self._run(lambda: boot.http_boot_uri(self._tree))

    async def update_firmware(self, inventory_id: str, file: FirmwareFile) -> str:
        try:
            uri = await self._run(lambda: firmware.start_update(self._tree, inventory_id, file))
        finally:
            self._gate.expect_absence(_FLASH_S)
        self._tasks.expect(uri, self._now())
        return uri

    async def secure_erase(self, serial: str) -> str:
        uri = await self._run(lambda: drives.secure_erase(self._tree, serial))
        self._tasks.expect(uri, self._now())
        return uri

    async def set_indicator(self, lit: bool) -> None:
        await self._run(lambda: indicator.switch(self._tree, lit=lit))

    async def reset(self) -> None:
        try:
            await self._run(lambda: power.reset_bmc(self._tree))
        finally:
            self._gate.expect_absence(_RESET_S)

    async def close(self) -> None:
        """Delete the session, if there is one. Never fails: an unreachable BMC ends it by itself later."""
        self._gate.close()
        if not self._session.open:
            return
        try:
            await self._run(self._session.close)
        except DriverError:
            return

    # --- threads -------------------------------------------------------------------------------------------------

    async def _read(self, call: Callable[[], T]) -> Answered[T] | Silent:
        at = self._now()  # before the first byte, so that facts are never taken for newer than they are
        try:
            return Answered(at, share(await self._run(call)))
        except DriverError as error:
            return Silent(at, REASONS[error.kind], error.detail)

    async def _run(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread, after the calls before it. Unknown, which this BMC lacks, becomes UNSUPPORTED."""
        await self._gate.admit()
        async with self._gate.lock:
            await self._join()
            await self._gate.admit()  # again: a call before this one may have found nobody
            before, began = self._wire.answer_count, time.monotonic()
            try:
                result = await self._in_thread(call)
            except Unknown as gap:
                self._gate.answered()
                raise DriverError(Failure.UNSUPPORTED, str(gap)) from None
            except DriverError as error:
                self._record_failure(error.kind in _MISSING, before, error.detail)
                raise
            except asyncio.CancelledError:
                if self._left_behind is not None and time.monotonic() - began > _SHORTEST_TRY_S:
                    self._record_failure(True, before, f"{self._address}: no answer before the caller's deadline")
                raise
            self._gate.answered()
            return result

    def _record_failure(self, missing: bool, before: int, why: str) -> None:
        """Record a failed call as a miss, unless the BMC gave at least one answer, which shows that it is there."""
        if missing and self._wire.answer_count == before:
            self._gate.missed(why)
            return
        self._gate.answered(fully=not missing)

    async def _join(self) -> None:
        """Wait for the thread of a cancelled call."""
        if self._left_behind is None:
            return
        ended = asyncio.wrap_future(self._left_behind)
        ended.add_done_callback(asyncio.Future.exception)  # retrieved, in case nobody waits that long
        await asyncio.wait([ended])
        self._left_behind = None
        error = ended.exception()
        if error is not None and not isinstance(error, Aborted | DriverError | Unknown):
            raise error

    async def _in_thread(self, call: Callable[[], T]) -> T:
        pool = _SUSPECT_POOL if self._gate.answers is False else _POOL
        self._wire.resume()
        future = pool.submit(self._guarded, call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._gate.given_up()
            if not future.cancel():
                self._wire.abort()
                self._left_behind = future
            raise

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            self._wire.close_connections()
