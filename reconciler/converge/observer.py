"""The parts that a pass is read in, and the Observer that reads them in this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from math import ceil
from typing import Final

from reconciler.converge.answer import io_seconds
from reconciler.converge.node_readings import INVENTORY_DEADLINES, own_readings
from reconciler.model.desired import Desired, Fleet, Settings
from reconciler.model.observed import Observed
from reconciler.model.observer_port import SITE, ObserveShard, ShardSeen
from reconciler.model.ports import Clock, Fabric

SHARD_NODES: Final = 100  # a task of an engine costs it a millisecond, and a lost one costs this many nodes a pass
UNHURRIED_READS: Final = 16  # nodes at once in a pass that leaves time for others: a read that has begun is not put off


class InProcessObserver:
    """Reads nodes through the drivers of this process. `limit`: of the nodes at once, where other reads share it."""

    def __init__(self, fabric: Fabric, clock: Clock, limit: asyncio.Semaphore | None = None) -> None:
        self._fabric = fabric
        self._clock = clock
        self._limit = limit

    async def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        """Yield node by node, as of Observer. Raise UsageError for a secret that can't be had."""
        limit = self._limit or asyncio.Semaphore(min(map(_reads_at_once, shards), default=1))
        tasks = [
            asyncio.create_task(self._read(shard, node, shard.after_s + shard.over_s * at / len(shard.nodes), limit))
            for shard in shards
            for at, node in enumerate(shard.nodes.values())
        ]
        try:
            for read in asyncio.as_completed(tasks):
                yield await read
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Do nothing: the drivers are the fabric's."""

    async def _read(self, shard: ObserveShard, node: Desired, after_s: float, limit: asyncio.Semaphore) -> ShardSeen:
        if after_s:
            await self._clock.sleep(after_s)
        before = shard.before.get(node.node)
        async with limit:
            found = await own_readings(node, self._fabric, self._clock, shard.settings, before)
        return ShardSeen(shard.key, {node.node: found})


def _reads_at_once(shard: ObserveShard) -> int:
    at_once = shard.settings.concurrency
    return min(at_once, UNHURRIED_READS) if shard.over_s else at_once


def shards_of(
    fleet: Fleet, names: Sequence[str], before: Mapping[str, Observed], clock: Clock, over_s: float
) -> list[ObserveShard]:
    """Divide nodes into shards of one site each. A node is in the same shard in each pass over the same spec.

    `before`, `over_s`: as of ObserveShard, for the whole pass.
    """
    places = places_of(fleet)
    members: dict[tuple[str, str], list[str]] = {}
    for name in names:
        members.setdefault(places[name], []).append(name)
    shards, begun = [], 0
    for (site, key), own in members.items():
        share_s = over_s * len(own) / len(names)
        shards.append(
            ObserveShard(
                key=key,
                site=site,
                settings=fleet.settings,
                nodes={name: fleet.nodes[name] for name in own},
                before={name: before[name] for name in own if name in before},
                deadline_s=_deadline_s(len(own), fleet.settings, clock, share_s),
                after_s=over_s * begun / len(names),
                over_s=share_s,
            )
        )
        begun += len(own)
    return shards


def places_of(fleet: Fleet) -> Mapping[str, tuple[str, str]]:
    """Return node -> its site, and the key of its shard."""
    places: dict[str, tuple[str, str]] = {}
    counts: Counter[str] = Counter()
    for name, node in fleet.nodes.items():
        site = node.domains.get(SITE, "")
        places[name] = site, f"{site}#{counts[site] // SHARD_NODES}"
        counts[site] += 1
    return places


def _deadline_s(nodes: int, settings: Settings, clock: Clock, over_s: float) -> float:
    """Return wall-clock seconds in which each read of each node has met its own deadline."""
    inventory_s = io_seconds(clock, INVENTORY_DEADLINES * settings.redfish_deadline_s)
    redfish_s = io_seconds(clock, settings.redfish_deadline_s) + 2 * inventory_s  # again after a restart
    node_s = max(redfish_s, io_seconds(clock, settings.ssh_deadline_s))
    at_once = min(settings.concurrency, UNHURRIED_READS) if over_s else settings.concurrency
    return clock.real_seconds(over_s) + node_s * ceil(nodes / at_once)
