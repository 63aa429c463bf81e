"""A pass is read in shards of one site, whoever reads them, and has a result for every node."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.converge.events import Event, NodeObserved
from reconciler.converge.observe import observe
from reconciler.converge.observer import SHARD_NODES, InProcessObserver, shards_of
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.desired import Fleet
from reconciler.model.observed import Answered, Silent
from reconciler.model.observer_port import ObserveShard, Readings, ShardSeen
from reconciler.model.vocab import UnknownReason
from tests.converge.world import World, desired_node, fleet_of

Worlds = Callable[..., World]


def fleet_at(sites: Sequence[str]) -> Fleet:
    one = desired_node("n0", 0)
    return fleet_of(
        [replace(one, node=f"n{at}", domains={"site": site} if site else {}) for at, site in enumerate(sites)]
    )


@given(st.lists(st.sampled_from(["", "fra", "ams"]), min_size=1, max_size=400), st.data())
def test_each_node_is_in_one_shard_of_its_own_site_in_every_pass(sites: list[str], data: Any) -> None:
    fleet = fleet_at(sites)
    names = data.draw(st.lists(st.sampled_from(list(fleet.nodes)), unique=True, min_size=1))
    shards = shards_of(fleet, names, {}, VirtualClock(), over_s=60.0)
    assert Counter(name for shard in shards for name in shard.nodes) == Counter(names)
    for shard in shards:
        assert {fleet.nodes[name].domains.get("site", "") for name in shard.nodes} == {shard.site}
        assert 0 < len(shard.nodes) <= SHARD_NODES
    whole = {
        name: one.key for one in shards_of(fleet, list(fleet.nodes), {}, VirtualClock(), 0.0) for name in one.nodes
    }
    assert all(whole[name] == shard.key for shard in shards for name in shard.nodes)
    assert sum(shard.over_s for shard in shards) == pytest.approx(60.0)
    assert [shard.after_s for shard in shards] == sorted(shard.after_s for shard in shards)


def test_who_stops_listening_ends_the_reads(world: Worlds) -> None:
    here = world(nodes=8, faults={f"n{at}": {"ssh_hang": {}} for at in range(1, 8)})

    async def first() -> tuple[int, set[asyncio.Task[Any]]]:
        before = asyncio.all_tasks()
        shards = shards_of(here.fleet, list(here.fleet.nodes), {}, here.clock, 0.0)
        async with aclosing(InProcessObserver(here.fabric, here.clock).observe(shards)) as parts:
            found = [seen async for seen in _one(parts)]
        return len(found), asyncio.all_tasks() - before

    assert here.run(first()) == (1, set())


async def _one(parts: AsyncGenerator[ShardSeen]) -> AsyncGenerator[ShardSeen]:
    async for seen in parts:
        yield seen
        return


class Elsewhere:
    """A fabric whose nodes others read: each shard is silent, with a reason of theirs."""

    def __init__(self, world: World) -> None:
        self._fabric = world.fabric
        self.shards: list[ObserveShard] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def observer(self) -> Any:
        return self

    def bmc(self, _: object) -> Any:
        raise AssertionError("no node is read through these ports")

    host = bmc

    async def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        self.shards += shards
        for shard in shards:
            silent = Silent(VirtualClock().now(), UnknownReason.UNREACHABLE, "no worker")
            yield ShardSeen(shard.key, dict.fromkeys(shard.nodes, Readings(silent, silent, silent)), ("a login",))


def test_a_pass_takes_what_another_observer_says(world: Worlds) -> None:
    here = world(nodes=3)
    elsewhere, told = Elsewhere(here), list[Event]()
    before = here.observe()
    fabric: Any = elsewhere
    seen = here.run(
        observe(here.fleet, list(here.fleet.nodes), fabric, here.clock, previous=before, progress=told.append)
    )
    assert [node.host for node in seen.nodes.values()] == [node.hot for node in seen.nodes.values()]
    assert all(isinstance(node.host, Silent) and node.host.detail == "no worker" for node in seen.nodes.values())
    assert all(isinstance(node.member, Answered) for node in seen.nodes.values())  # the cluster is read here
    assert seen.insecure == (*here.fleet.settings.insecure, "a login")
    assert [(one.done, one.total) for one in told if isinstance(one, NodeObserved)] == [(1, 3), (2, 3), (3, 3)]
    assert elsewhere.shards[0].before == {name: before.nodes[name] for name in here.fleet.nodes}
