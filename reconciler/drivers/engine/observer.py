"""The side of the leader: an Observer that has each shard read by one worker of its site, once a pass.

Whatever happens to scheduler and workers, the nodes of a shard are Silent as `not_read` within its deadline: nobody has
asked them, so nothing is concluded about them. Plans are made where the readings are, too, when that is asked for: what
no worker plans, the leader plans itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from reconciler.drivers.engine.access import EngineAccess, EngineError
from reconciler.drivers.engine.answers import NO_DIGESTS, Digests, Known, received, unpacked
from reconciler.drivers.engine.client import GRACE_S, EngineClient, words
from reconciler.drivers.engine.plans import PlanTask, unpacked_plans
from reconciler.drivers.engine.worker import ShardTask, observe_shard, plan_shard
from reconciler.model.confined import Confined
from reconciler.model.crash import of_its_own_async
from reconciler.model.observed import Observed, Silent
from reconciler.model.observer_port import ObserveShard, Readings, ShardSeen
from reconciler.model.ports import Clock
from reconciler.model.units import format_duration
from reconciler.model.vocab import UnknownReason
from reconciler.planner.node.shard_plans import PlanShard, QuietPlan

SKEW_S: Final = 60.0  # wall clock: ages of readings decide what is read and done
PLAN_S: Final = 20.0  # after which nobody waits for the plans of a shard
SHARD_S: Final = 0.1  # in which the leader plans a shard itself: for all of them, nobody waits longer than that takes


class EngineObserver(Confined):
    """Reads nodes through the workers of an engine. `revoked`: returns the host keys that are never trusted."""

    def __init__(self, access: EngineAccess, clock: Clock, revoked: Callable[[], Sequence[str]]) -> None:
        self.client = EngineClient(access)
        self._clock = clock
        self._revoked = revoked
        self._known: dict[str, Known] = {}
        # Unpacking takes long: where many workers have answered, the leader still looks at its scheduler in between.
        self._unpacking = asyncio.Lock()

    async def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        """Yield shard by shard, as of Observer."""
        async with self.client.working():
            tasks = [asyncio.create_task(self._seen(shard)) for shard in shards]
            try:
                for seen in asyncio.as_completed(tasks):
                    yield await seen
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def plan(self, shards: Sequence[PlanShard]) -> Mapping[str, QuietPlan]:
        """Return the plans that do nothing, of the nodes that workers have the same readings of, as of ShardPlanner."""
        found: dict[str, QuietPlan] = {}
        timeout = PLAN_S + GRACE_S + SHARD_S * len(shards)
        async with self.client.working():
            tasks = [asyncio.create_task(self._planned(shard)) for shard in shards]
            try:
                for task in (await asyncio.wait(tasks, timeout=timeout))[0] if tasks else ():
                    found.update(task.result())
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return found

    async def close(self) -> None:
        await self.client.close()

    # --- one shard -------------------------------------------------------------------------------------------------

    async def _seen(self, shard: ObserveShard) -> ShardSeen:
        if shard.after_s:
            await self._clock.sleep(shard.after_s)
        try:
            return await self._read(shard)
        except EngineError as error:
            silent = Silent(self._clock.now(), UnknownReason.NOT_READ, str(error))
            return ShardSeen(shard.key, dict.fromkeys(shard.nodes, Readings(silent, silent, silent)))

    async def _read(self, shard: ObserveShard) -> ShardSeen:
        def pack() -> bytes:
            known = {node: self._digests(shard, node) for node in shard.nodes}
            return ShardTask(replace(shard, before={}, after_s=0.0), known, tuple(self._revoked())).packed()

        data, name = await self.client.call(observe_shard, shard.site, shard.key, pack, shard.deadline_s)
        came = self._clock.now()
        async with self._unpacking:
            await asyncio.sleep(0)
            try:
                return self._understood(shard, unpacked(data), name, came)
            except ValueError as error:
                raise EngineError(f"worker {name} gives an answer that can't be read: {words(error)}") from None

    def _digests(self, shard: ObserveShard, node: str) -> Digests:
        """Return what is known of a node. An inventory that the pass does not know, or that was read here, is not."""
        known, before = self._known.get(node), shard.before.get(node)
        if known is None:
            return NO_DIGESTS
        hot, inventory, host = known.digests
        kept = before is not None and before.inventory is known.readings.inventory
        return hot, inventory if kept else "", host

    def _understood(self, shard: ObserveShard, answer: Any, name: str, came: datetime) -> ShardSeen:
        ahead_s = self._clock.real_seconds((answer.at - came).total_seconds())
        if abs(ahead_s) > SKEW_S:
            side = "ahead of" if ahead_s > 0 else "behind"
            raise EngineError(f"the clock of worker {name} is {format_duration(abs(ahead_s))} {side} this one")
        if answer.nodes.keys() != shard.nodes.keys():
            raise ValueError("it is of other nodes")
        for node, sent in answer.nodes.items():
            self._known[node] = received(sent, self._known.get(node))
        readings = {node: self._known[node].readings for node in shard.nodes}
        return ShardSeen(shard.key, readings, answer.insecure)

    async def _planned(self, shard: PlanShard) -> Mapping[str, QuietPlan]:
        """Return the plans of a shard; none where no worker answers: to plan again is all that costs."""
        if not any(self._is_known(name, seen) for name, seen in shard.seen.items()):
            return {}

        def pack() -> bytes:
            known = {name: self._known[name].digests for name, seen in shard.seen.items() if self._is_known(name, seen)}
            return PlanTask.of(shard, known).packed()

        async def asked() -> Mapping[str, QuietPlan]:
            try:
                data, _ = await self.client.call(plan_shard, shard.site, shard.key, pack, PLAN_S)
            except EngineError:
                return {}
            return unpacked_plans(data, shard.seen)

        return await of_its_own_async(shard.key, "having a worker plan it", asked, lambda _: {})

    def _is_known(self, name: str, seen: Observed) -> bool:
        """Return whether these are the very readings that a worker sent last."""
        known = self._known.get(name)
        return known is not None and all(map(_is_same, known.readings, (seen.hot, seen.inventory, seen.host)))


def _is_same(one: Any, other: Any) -> bool:
    return one is other
