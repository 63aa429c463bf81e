"""The side of the leader: an Observer that has each shard read by one worker of its site, once a pass.

Whatever happens to scheduler and workers, the nodes of a shard are Silent as `not_read` within its deadline: nobody has
asked them, so nothing is concluded about them.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from reconciler.drivers.engine.access import CONNECT_S, EngineAccess, EngineError, distributed, label, release
from reconciler.drivers.engine.answers import NO_DIGESTS, Digests, Known, received, unpacked
from reconciler.drivers.engine.worker import ShardTask, observe_shard
from reconciler.drivers.engine.workers import WorkerTable
from reconciler.model.confined import Confined
from reconciler.model.observed import Silent
from reconciler.model.observer_port import SITE, ObserveShard, Readings, ShardSeen
from reconciler.model.ports import Clock
from reconciler.model.units import format_duration
from reconciler.model.vocab import UnknownReason

SHARDS_OF_A_WORKER: Final = 2  # at once: the next one travels while one is read; the others wait here
LOOK_S: Final = 1.0  # between looks at the workers
GRACE_S: Final = 5.0  # for an answer to travel: the worker itself keeps the deadline
SKEW_S: Final = 60.0  # wall clock: ages of readings decide what is read and done


class EngineObserver(Confined):
    """Reads nodes through the workers of an engine. `revoked`: returns the host keys that are never trusted.

    It connects in its first pass, and again in the next one after it has lost the scheduler.
    """

    def __init__(self, access: EngineAccess, clock: Clock, revoked: Callable[[], Sequence[str]]) -> None:
        self._access = access
        self._clock = clock
        self._revoked = revoked
        self._client: Any = None
        self._table = WorkerTable(time.monotonic)
        self._slots: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(SHARDS_OF_A_WORKER))
        self._known: dict[str, Known] = {}

    async def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        """Yield shard by shard, as of Observer."""
        looking = asyncio.create_task(self._look(connected := asyncio.Event()))
        tasks = [asyncio.create_task(self._seen(shard, connected)) for shard in shards]
        try:
            for seen in asyncio.as_completed(tasks):
                yield await seen
        finally:
            for task in (looking, *tasks):
                task.cancel()
            await asyncio.gather(looking, *tasks, return_exceptions=True)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # nothing is left to be told to a scheduler that is gone
                async with asyncio.timeout(CONNECT_S):
                    await client.close(timeout=CONNECT_S / 2)

    # --- the scheduler and its workers -----------------------------------------------------------------------------

    async def _look(self, connected: asyncio.Event) -> None:
        """Ask the scheduler for its workers, again and again, while shards are read."""
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    self._table.update(await self._identity())
            except Exception as error:  # noqa: BLE001 - whatever Dask raises: the scheduler told nothing
                self._table.trouble = f"scheduler {self._access.url} does not answer: {_words(error)}"
            connected.set()
            await asyncio.sleep(LOOK_S)

    async def _identity(self) -> Any:
        if self._client is not None and self._client.status != "running":
            await self.close()
        if self._client is None:
            dask = distributed()
            self._client = await dask.Client(
                self._access.url, security=self._access.security(), asynchronous=True, set_as_default=False,
                timeout=CONNECT_S / 2,
            )  # fmt: skip
        return await self._client.scheduler.identity()

    # --- one shard -------------------------------------------------------------------------------------------------

    async def _seen(self, shard: ObserveShard, connected: asyncio.Event) -> ShardSeen:
        if shard.after_s:
            await self._clock.sleep(shard.after_s)
        await connected.wait()
        try:
            return await self._read(shard)
        except EngineError as error:
            silent = Silent(self._clock.now(), UnknownReason.NOT_READ, str(error))
            return ShardSeen(shard.key, dict.fromkeys(shard.nodes, Readings(silent, silent, silent)))

    async def _read(self, shard: ObserveShard) -> ShardSeen:
        if not shard.site:
            raise EngineError(f"no domains.{SITE} in the spec says whose workers reach it")
        while True:
            if self._table.trouble:
                raise EngineError(self._table.trouble)
            chosen = self._table.choose(label(shard.site), shard.key)
            if chosen is None:
                raise EngineError(
                    f"no worker of site {shard.site} works for {self._access.url}: start `reconciler worker --site "
                    f"{shard.site}` there"
                )
            async with self._slots[chosen[1]]:
                if not self._table.lost(*chosen):  # while it waited
                    return await self._read_on(shard, *chosen)

    async def _read_on(self, shard: ObserveShard, address: str, name: str) -> ShardSeen:
        known = {node: self._digests(shard, node) for node in shard.nodes}
        task = ShardTask(replace(shard, before={}, after_s=0.0), known, tuple(self._revoked()))
        client = self._client
        if client is None or client.status != "running":
            raise EngineError(f"scheduler {self._access.url} does not answer: the connection was lost")
        future = client.submit(
            observe_shard, release(), task.packed(), key=f"observe-{uuid4().hex}", workers=[address],
            resources={label(shard.site): 1}, pure=False, retries=0,
        )  # fmt: skip
        try:
            data = await self._result(future, shard.deadline_s + GRACE_S, address, name)
        finally:
            future.release()
        try:
            return self._understood(shard, unpacked(data), name)
        except ValueError as error:
            raise EngineError(f"worker {name} gives an answer that can't be read: {_words(error)}") from None

    def _digests(self, shard: ObserveShard, node: str) -> Digests:
        """Return what is known of a node. An inventory that the pass does not know, or that was read here, is not."""
        known, before = self._known.get(node), shard.before.get(node)
        if known is None:
            return NO_DIGESTS
        hot, inventory, host = known.digests
        kept = before is not None and before.inventory is known.readings.inventory
        return hot, inventory if kept else "", host

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
                raise EngineError(f"worker {name}: {_words(error)}")
            data: bytes = result.result()
            return data
        finally:
            result.cancel()
            await asyncio.gather(result, return_exceptions=True)

    def _understood(self, shard: ObserveShard, answer: Any, name: str) -> ShardSeen:
        ahead_s = self._clock.real_seconds((answer.at - self._clock.now()).total_seconds())
        if abs(ahead_s) > SKEW_S:
            side = "ahead of" if ahead_s > 0 else "behind"
            raise EngineError(f"the clock of worker {name} is {format_duration(abs(ahead_s))} {side} this one")
        if answer.nodes.keys() != shard.nodes.keys():
            raise ValueError("it is of other nodes")
        for node, sent in answer.nodes.items():
            self._known[node] = received(sent, self._known.get(node))
        readings = {node: self._known[node].readings for node in shard.nodes}
        return ShardSeen(shard.key, readings, answer.insecure)


def _words(error: BaseException) -> str:
    told, kind = " ".join(str(error).split()), type(error).__name__
    if isinstance(error, EngineError):
        return told
    return f"{kind}: {told}" if told else kind
