"""The connection of a leader to an engine: each task is given to one worker, and waited for no longer than needed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from uuid import uuid4

from reconciler.drivers.engine.access import CONNECT_S, EngineAccess, EngineError, distributed, label, release
from reconciler.drivers.engine.workers import WorkerTable
from reconciler.model.confined import Confined
from reconciler.model.observer_port import SITE
from reconciler.model.units import format_duration

SHARDS_OF_A_WORKER: Final = 2  # at once: the next one travels while one is read; the others wait here
LOOK_S: Final = 1.0  # between looks at the workers
GRACE_S: Final = 5.0  # for an answer to travel: the worker itself keeps the deadline


class EngineClient(Confined):
    """Has tasks done by workers of a site. It connects at its first use, and again after it has lost the scheduler."""

    def __init__(self, access: EngineAccess) -> None:
        self._access = access
        self._client: Any = None
        self._table = WorkerTable()
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._connected = asyncio.Event()
        self._given: Counter[str] = Counter()  # tasks of no site, by the address of their worker
        self._places: dict[str, asyncio.Semaphore] = {}
        self.sent = self.received = 0  # bytes of tasks and of answers

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Ask the scheduler for its workers, again and again, within the block in which tasks are given."""
        self._connected = connected = asyncio.Event()
        self._slots = defaultdict(lambda: asyncio.Semaphore(SHARDS_OF_A_WORKER))
        self._places = defaultdict(lambda: asyncio.Semaphore(1))
        looking = asyncio.create_task(self._look(connected))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait([looking], timeout=GRACE_S)  # nobody waits for one that can't be stopped

    async def _looked(self) -> None:
        """Wait for the first look at the scheduler. Raise EngineError where it outlasts its own limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_S + GRACE_S):
                await self._connected.wait()
                return
        raise EngineError(f"scheduler {self._access.url} does not answer: its connection can't be ended either")

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # nothing is left to be told to a scheduler that is gone
                async with asyncio.timeout(CONNECT_S):
                    await client.close(timeout=CONNECT_S / 2)

    async def workers(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names of the workers that are well, by site. Raise EngineError when no scheduler answers."""
        async with self.working():
            await self._looked()
            if self._table.trouble:
                raise EngineError(self._table.trouble)
            return self._table.by_site()

    def expiring(self) -> tuple[str, ...]:
        """Return a sentence for each certificate, of workers and our own, that has expired or will soon."""
        return (*self._access.expiring(), *self._table.expiring())

    async def call(
        self, function: Callable[..., Any], site: str, key: str, pack: Callable[[], bytes], deadline_s: float
    ) -> tuple[bytes, str]:
        """Have a worker of a site do a task: the same one for each key. Return its answer and its name.

        `pack` makes the argument when it is the task's turn. Raise EngineError with the reason why there is no answer.
        """
        await self._looked()
        if not site:
            raise EngineError(f"no domains.{SITE} in the spec says whose workers reach it")
        while True:
            if self._table.trouble:
                raise EngineError(self._table.trouble)
            chosen = self._table.choose(label(site), key)
            if chosen is None:
                raise EngineError(
                    f"no worker of site {site} works for {self._access.url}: start `reconciler worker --site "
                    f"{site}` there"
                )
            async with self._slots[chosen[1]]:
                if not self._table.lost(*chosen):  # while it waited
                    return await self._call(function, {label(site): 1}, *chosen, pack(), deadline_s), chosen[1]

    async def call_any(self, function: Callable[..., Any], pack: Callable[[], bytes], deadline_s: float) -> bytes:
        """Have any worker do a task that concerns no site: the one that has the fewest from here.

        A worker has one at a time, as each that waits there takes the place of a shard; `pack` makes the argument when
        it is the task's turn. Raise EngineError with the reason why there is no answer.
        """
        await self._looked()
        while True:
            if self._table.trouble:
                raise EngineError(self._table.trouble)
            well = self._table.well()
            if not well:
                raise EngineError(f"no worker works for {self._access.url}")
            address = min(well, key=lambda one: self._given[one])
            self._given[address] += 1
            try:
                async with self._places[address]:
                    if not self._table.lost(address, well[address]):  # while it waited
                        return await self._call(function, {}, address, well[address], pack(), deadline_s)
            finally:
                self._given[address] -= 1

    async def _look(self, connected: asyncio.Event) -> None:
        """Ask the scheduler for its workers, again and again, while shards are read."""
        while True:
            try:
                asked = time.monotonic()
                async with asyncio.timeout(CONNECT_S):
                    self._table.update(await self._identity(), asked)
            except Exception as error:  # noqa: BLE001 - whatever Dask raises: the scheduler told nothing
                why = "; ".join((words(error), *self._access.expiring()))
                self._table.trouble = f"scheduler {self._access.url} does not answer: {why}"
            finally:
                connected.set()  # whatever comes: nobody may wait for this without end
            await asyncio.sleep(LOOK_S)

    async def _identity(self) -> Any:
        if self._client is not None and self._client.status != "running":
            await self.close()
        if self._client is None:
            dask = distributed()
            _silence_dask()
            self._client = await dask.Client(
                self._access.url, security=self._access.security(), asynchronous=True, set_as_default=False,
                timeout=CONNECT_S / 2,
            )  # fmt: skip
        return await self._client.scheduler.identity()

    async def _call(
        self, function: Callable[..., Any], resources: Mapping[str, int], address: str, name: str, data: bytes,
        deadline_s: float,
    ) -> bytes:  # fmt: skip
        client = self._client
        if client is None or client.status != "running":
            raise EngineError(f"scheduler {self._access.url} does not answer: the connection was lost")
        future = client.submit(
            function, release(), data, key=f"{function.__name__}-{uuid4().hex}", workers=[address],
            resources=dict(resources), pure=False, retries=0,
        )  # fmt: skip
        self.sent += len(data)
        try:
            answer = await self._result(future, deadline_s + GRACE_S, address, name)
            self.received += len(answer)
            return answer
        finally:
            future.release()

    async def _result(self, future: Any, deadline_s: float, address: str, name: str) -> bytes:
        """Wait for a task, but for no longer than its worker lives. Raise EngineError."""
        result = asyncio.ensure_future(future.result())
        ends = time.monotonic() + deadline_s
        try:
            while not (await asyncio.wait([result], timeout=LOOK_S))[0]:
                if why := self._table.lost(address, name):
                    raise EngineError(why)
                if time.monotonic() > ends:
                    raise EngineError(f"worker {name} gave no answer within {format_duration(deadline_s)}")
            error = None if result.cancelled() else result.exception()
            if result.cancelled() or isinstance(error, CancelledError):
                raise EngineError(self._table.lost(address, name) or f"scheduler {self._access.url} has died")
            if error is not None:
                raise EngineError(f"worker {name}: {words(error)}")
            data: bytes = result.result()
            return data
        finally:
            result.cancel()
            await asyncio.gather(result, return_exceptions=True)


def _silence_dask() -> None:
    """Keep tracebacks of Dask out of a leader's log: whatever happens to an engine, its nodes tell in our words."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def words(error: BaseException) -> str:
    told, kind = " ".join(str(error).split()), type(error).__name__
    if isinstance(error, EngineError):
        return told
    return f"{kind}: {told}" if told else kind
