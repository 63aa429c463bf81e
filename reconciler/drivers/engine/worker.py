"""The side of a worker: it reads and plans shards of its own site, with the drivers and secrets of its start."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import socket
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

import dask.config
from distributed import Worker, WorkerPlugin, get_worker

from reconciler.drivers.engine.access import CONNECT_S, RENEW, EngineAccess, EngineError, label, release
from reconciler.drivers.engine.answers import NO_DIGESTS, Digests, Known, SentNode, ShardAnswer, packed, sent_of
from reconciler.drivers.engine.plans import PlanTask, packed_plans
from reconciler.drivers.engine.workers import CERTIFICATE
from reconciler.model.confined import Confined
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.observed import Observed, Silent
from reconciler.model.observer_port import Observer, ObserveShard, Readings
from reconciler.model.ports import Clock
from reconciler.model.vocab import UnknownReason
from reconciler.planner.node.shard_plans import quiet_plans

PLUGIN: Final = "reconciler"
SHARDS_AT_ONCE: Final = 8  # tasks that wait for machines and hold no thread; a leader gives each worker fewer
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A shard as it travels. `known`: what the leader has of each node. `revoked`: host keys that are never trusted."""

    shard: ObserveShard
    known: Mapping[str, Digests]
    revoked: tuple[str, ...]

    def packed(self) -> bytes:
        return zlib.compress(pickle.dumps(self, pickle.HIGHEST_PROTOCOL), 1)


class SiteReader(Protocol):
    """The drivers of one site, for whichever fleets ask."""

    async def observer(self, shard: ObserveShard, revoked: Sequence[str]) -> Observer:
        """Return what reads the nodes of this shard, by its own settings."""

    def insecure_logins(self, shard: ObserveShard) -> tuple[str, ...]:
        """Return sentences as of Fabric.insecure_logins."""

    def conceal(self, text: str) -> str:
        """Return the text without the values of secrets that were read."""

    async def close(self) -> None:
        """Close all sessions."""


class SitePlugin(Confined, WorkerPlugin):
    """A WorkerPlugin that keeps the drivers of its site, and what it read last of each node."""

    name = PLUGIN

    def __init__(
        self,
        site: str,
        reader: SiteReader,
        clock: Clock,
        told: Callable[[str], None],
        rehearse: Callable[[bytes], bytes] | None = None,
        begin_child: Callable[[], None] | None = None,
    ) -> None:
        """`rehearse`: plays a run of a rehearsal, in a process that `begin_child` begins; None refuses that."""
        self._told = told
        self._begin_child = begin_child
        self._rehearse = rehearse
        self._process: ProcessPoolExecutor | None = None
        self._site = site
        self._reader = reader
        self._clock = clock
        self._last: dict[tuple[str, str], Known] = {}  # by fleet and node

    async def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - Dask's signature
        if self._process is not None:
            _kill(self._process)  # Python would wait for its run at exit
        await self._reader.close()

    async def run(self, leader: str, data: bytes) -> bytes:
        """Play a run of a rehearsal, which keeps a core busy, beside what this process reads. Raise EngineError."""
        _check_version(leader)
        if self._rehearse is None:
            raise EngineError("it plays no rehearsals")
        if self._process is None:
            self._process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), self._begin_child)
        self._told("plays a run of a rehearsal")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._process, self._rehearse, data)
        except Exception as error:  # noqa: BLE001 - the boundary: the leader is told, and plays this run itself
            if isinstance(error, BrokenProcessPool):  # it plays nothing any more
                self._process = None
            raise EngineError(f"a run of a rehearsal failed there: {type(error).__name__}: {error}") from None

    async def answer(self, leader: str, data: bytes) -> bytes:
        """Read a shard, and return what its leader does not know. Raise EngineError with a reason for its nodes."""
        _check_version(leader)
        task: ShardTask = pickle.loads(zlib.decompress(data))  # noqa: S301 - whoever may send tasks runs code here anyway
        shard = task.shard
        if shard.site != self._site:
            raise EngineError(f"it is a worker of site {self._site}, and was asked for nodes of {shard.site}")
        self._told(f"reads {shard.key}: {len(shard.nodes)} nodes of fleet {shard.settings.fleet}")
        try:
            found = await self._read(task)
        except Exception as error:  # noqa: BLE001 - the boundary: the nodes of this shard are silent, with the reason
            raise EngineError(self._reader.conceal(f"{type(error).__name__}: {error}")) from None
        nodes = {name: self._sendable(task, name, readings) for name, readings in found.items()}
        return packed(ShardAnswer(self._clock.now(), nodes, self._reader.insecure_logins(shard)))

    def plans(self, leader: str, data: bytes) -> bytes:
        """Plan nodes from what was read of them here. Raise EngineError."""
        _check_version(leader)
        task = PlanTask.unpacked(data)
        fleet = task.shard.fleet
        shard = task.with_readings({name: self._last[fleet, name] for name in task.read if (fleet, name) in self._last})
        found = quiet_plans(shard)
        self._told(f"plans {shard.key}: {len(found)} of {len(task.read)} nodes of fleet {fleet} are to be left alone")
        return packed_plans(found)

    def _sendable(self, task: ShardTask, name: str, readings: Readings) -> SentNode:
        """Return what to send of a node. A BMC may say half a character, which JSON can't: that costs its own node."""

        def written() -> SentNode:
            sent = self._sent(task, name, readings)
            for one in sent:
                one.detail.encode()  # values were written for their digests
            return sent

        def nothing(crash: Crash) -> SentNode:
            silent = Silent(self._clock.now(), UnknownReason.CRASHED, self._reader.conceal(crash.sentence))
            return self._sent(task, name, Readings(silent, silent, silent))

        return of_its_own(name, "sending its readings", written, nothing)

    async def _read(self, task: ShardTask) -> dict[str, Readings]:
        shard = task.shard
        before = {name: kept for name in shard.nodes if (kept := self._before(task, name)) is not None}
        observer = await self._reader.observer(shard, task.revoked)
        found: dict[str, Readings] = {}
        own = ObserveShard(
            shard.key, shard.site, shard.settings, shard.nodes, before, shard.deadline_s, over_s=shard.over_s
        )
        try:
            async with asyncio.timeout(shard.deadline_s), aclosing(observer.observe([own])) as parts:
                async for seen in parts:
                    found.update(seen.nodes)
        except TimeoutError:
            late = Silent(self._clock.now(), UnknownReason.NOT_READ, "its shard took longer than all its deadlines")
            found |= {name: Readings(late, late, late) for name in shard.nodes if name not in found}
        return found

    def _before(self, task: ShardTask, name: str) -> Observed | None:
        """Return what was read last, where the leader may keep the inventory of that."""
        last = self._last.get((task.shard.settings.fleet, name))
        inventory = task.known.get(name, NO_DIGESTS)[1]
        if last is None or not inventory or last.digests[1] != inventory:
            return None
        unread = Silent(self._clock.now(), UnknownReason.NOT_ASKED, "the leader reads the cluster")
        return Observed(name, *last.readings, unread)

    def _sent(self, task: ShardTask, name: str, readings: Readings) -> SentNode:
        place = task.shard.settings.fleet, name
        sent, digests = sent_of(task.known.get(name, NO_DIGESTS), self._last.get(place), readings)
        self._last[place] = Known(readings, digests)
        return sent


def _kill(pool: ProcessPoolExecutor) -> None:
    """End a pool at once, whatever it runs."""
    if sys.version_info >= (3, 14):
        pool.kill_workers()
        return
    for child in tuple((pool._processes or {}).values()):  # before 3.14, only the pool itself knows them
        child.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def _check_version(leader: str) -> None:
    if leader != release():
        raise EngineError(f"it runs reconciler {release()}, and the leader {leader}: install the same version")


def _plugin() -> SitePlugin:
    plugin = get_worker().plugins.get(PLUGIN)
    if not isinstance(plugin, SitePlugin):
        raise EngineError("it was not started by `reconciler worker`")
    return plugin


async def observe_shard(leader: str, data: bytes) -> bytes:
    """Read a shard on this worker: the task. Raise EngineError."""
    return await _plugin().answer(leader, data)


async def rehearse_run(leader: str, data: bytes) -> bytes:
    """Play a run of a rehearsal on this worker: a task of no site. Raise EngineError."""
    return await _plugin().run(leader, data)


async def plan_shard(leader: str, data: bytes) -> bytes:
    """Plan the nodes of a shard on this worker: another task. Raise EngineError."""
    return _plugin().plans(leader, data)


async def serve(
    access: EngineAccess, plugin: SitePlugin, site: str, listen: str | None, told: Callable[[str], None]
) -> None:
    """Work for a scheduler until it is lost. Raise EngineError when it does not answer at first.

    `listen`: None listens on loopback.
    """
    dask.config.set({"distributed.worker.profile.enabled": False})
    until = min(access.lasts_until().values()).timestamp()
    with tempfile.TemporaryDirectory(prefix="reconciler-worker-") as scratch:
        worker: Any = Worker(
            access.url,
            nthreads=SHARDS_AT_ONCE,
            resources={label(site): SHARDS_AT_ONCE},
            name=f"{site}-{socket.gethostname()}-{os.getpid()}",
            security=access.security(),
            host=listen or LOOPBACK,
            dashboard_address=f"{LOOPBACK}:0",
            dashboard=False,
            local_directory=scratch,
            death_timeout=CONNECT_S,
            memory_limit=0,
            plugins=(plugin,),
            startup_information={CERTIFICATE: lambda _worker: until},
        )
        try:
            await worker
        except Exception as error:  # noqa: BLE001 - Dask has no error of its own for a scheduler that is not there
            await worker.close()
            why = "; ".join((str(error), *access.expiring()))
            raise EngineError(f"{access.url} takes no worker: {why}") from None
        for one in access.expiring():
            told(f"{one}: {RENEW}")
        told(f"worker {worker.name} of site {site} listens on {worker.address}; its scheduler is {access.url}")
        try:
            await worker.finished()
        finally:
            await worker.close()
