"""One Redfish service: blocking calls run in threads.

Threads are few and BMCs are many, so that dead ones must not hold them (pitfall A2):

- The gate decides, before a thread is taken, whether a BMC that was silent is called at all.
- Calls to a BMC that hung before run in a small pool of their own.
- A call whose caller gives up is ended by shutting its sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from reconciler.drivers.redfish.bmc_gate import BmcRegistry
from reconciler.drivers.redfish.factory_logins import factory_login
from reconciler.drivers.redfish.failures import reason_of
from reconciler.drivers.redfish.fields import Unknown
from reconciler.drivers.redfish.session import Session
from reconciler.drivers.redfish.transport import Aborted
from reconciler.drivers.redfish.tree import Tree
from reconciler.drivers.redfish.wire import Wire
from reconciler.drivers.secrets import Credentials
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure
from reconciler.model.interning import share
from reconciler.model.observed import Answered, Silent

T = TypeVar("T")

_POOL = ThreadPoolExecutor(512, "redfish")  # threads are created as they are needed
_SUSPECT_POOL = ThreadPoolExecutor(16, "redfish-suspect")
_MISSING = frozenset({Failure.UNREACHABLE, Failure.TIMEOUT, Failure.AMBIGUOUS})
_SHORTEST_TRY_S = 2.0  # a call that was given up sooner says nothing about the BMC


class RedfishPort(Confined):
    """A session with one Redfish service. The constructor does no I/O.

    `credentials` returns the present value of the secret of that name. `ca_pem`: the only certificates to trust; None =
    those that the system trusts. `insecure`: trust any, which the spec has to ask for. Timeouts in wall-clock seconds.
    `bmc_registry`: what the process knows about BMCs, and the fleet's clock; all BMCs of a process share one. `node`: a
    node's name, or what else the service is of.
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
        self._now, self._dates = bmc_registry.now, bmc_registry.dates
        self._gate = bmc_registry.gate(address, connect_timeout)
        self._wire = Wire(address, (ca_pem, insecure), (connect_timeout, read_timeout), self._gate.gaps)
        account = bmc_registry.login_guard.account(self._gate.address, node=node, secret=secret, read=credentials)
        self._session = Session(self._wire, account, self._now)
        self._tree = Tree(self._session, bmc_registry.quirks)
        self._left_behind: Future[Any] | None = None  # a cancelled call whose thread has not noticed yet

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._node!r}, {self._address!r})"

    @property
    def answers(self) -> bool:
        """Return whether it has let us in, and the session is open."""
        return self._session.open

    @property
    def factory_login(self) -> str:
        """Return whose BMCs are shipped with the login that it let us in by; "" for one of our own, or none yet."""
        found = self._session.credentials
        return "" if found is None else factory_login(found)

    async def close(self) -> None:
        """Delete the session, if there is one. Never fails: an unreachable BMC ends it by itself later."""
        self._gate.close()
        if not self._session.open:
            return
        try:
            await self._run(self._session.close)
        except DriverError:
            return

    @property
    def address(self) -> str:
        return self._address

    @property
    def logins(self) -> int:
        """Return how often we logged in. A BMC that needs it again may have restarted."""
        return self._session.logins

    async def ask(self, question: Callable[[Tree], T]) -> T:
        """Ask, or write, what no port of a node offers."""
        return await self._run(lambda: question(self._tree))

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """Admit a request that is made elsewhere, and hold back other calls to this BMC meanwhile."""
        await self._gate.admit()
        async with self._gate.lock:
            yield

    # --- threads -------------------------------------------------------------------------------------------------

    async def _read(self, call: Callable[[], T]) -> Answered[T] | Silent:
        at = self._dates()  # before the first byte, so that facts are never taken for newer than they are
        try:
            return Answered(at, share(await self._run(call)))
        except DriverError as error:
            return Silent(at, reason_of(error), error.detail)

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
