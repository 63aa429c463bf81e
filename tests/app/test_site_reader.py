"""What a worker of an engine keeps of a fleet: one set of sessions, whatever is changed in the spec beside."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app import site_reader as module
from reconciler.app.clocks import RealClock
from reconciler.app.site_reader import REPLACED_S, WireSiteReader
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.observer import SHARD_NODES, shards_of
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.secrets_file import SecretsFile
from reconciler.model.desired import Fleet
from reconciler.model.limits import Brake
from reconciler.model.observer_port import ObserveShard
from tests.converge.test_observer import fleet_at


@pytest.fixture
def fabrics(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Says which fabrics were made and closed, in order."""
    told: list[str] = []

    class Told(WireFabric):
        def __init__(self, *given: Any, **named: Any) -> None:
            told.append("made")
            super().__init__(*given, **named)

        async def close(self) -> None:
            told.append("closed")
            await super().close()

    monkeypatch.setattr(module, "WireFabric", Told)
    return told


def shard(**settings: Any) -> ObserveShard:
    fleet = fleet_at(["fra"])
    fleet = replace(fleet, settings=replace(fleet.settings, **settings))
    return shards_of(fleet, list(fleet.nodes), {}, RealClock(), 0.0)[0]


@pytest.fixture
def space(tmp_path: Path) -> Any:
    secrets = SecretStore(SecretsFile(), tmp_path / "secrets.yaml")
    return SimpleNamespace(clock=RealClock(), secrets=secrets, overlay=None)


def test_shards_of_a_site_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch, space: Any) -> None:
    """To refit looks at all nodes that are known: with each shard, that would be a hundred times those of a site."""
    refitted: list[int] = []

    async def told(_fabric: WireFabric, fleet: Fleet) -> None:
        refitted.append(len(fleet.nodes))

    monkeypatch.setattr(WireFabric, "refit", told)
    fleet = fleet_at(["fra"] * 5 * SHARD_NODES)
    shards = shards_of(fleet, list(fleet.nodes), {}, RealClock(), 0.0)
    node = fleet.nodes["n7"]
    elsewhere = replace(node, endpoints=replace(node.endpoints, host="10.0.0.9"))
    reader = WireSiteReader(space)

    async def run() -> None:
        for one in (*shards, *shards):
            await reader.observer(one, ())
        assert refitted == []
        await reader.observer(replace(shards[0], nodes={**shards[0].nodes, "n7": elsewhere}), ())
        assert refitted == [len(fleet.nodes)], "its session is at another address"
        await reader.close()

    asyncio.run(run())


def test_settings_that_reach_no_node_open_no_second_session(
    fabrics: list[str], monkeypatch: pytest.MonkeyPatch, space: Any
) -> None:
    """BMCs have few sessions: with one set of ours for each commit to fleet.yaml, nobody gets in any more."""
    now = 0.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    reader = WireSiteReader(space)

    async def run() -> None:
        nonlocal now
        first = await reader.observer(shard(), ())
        for changed in ({"brake": Brake(fleet="3")}, {}, {"concurrency": 3}):
            await reader.observer(shard(**changed), ())
        assert fabrics == ["made"]
        assert await reader.observer(shard(concurrency=3), ()) is not first, "as many at once as the spec says now"
        await reader.observer(shard(fleet="another"), ())
        await reader.observer(shard(redfish_deadline_s=99.0), ())
        assert fabrics == ["made"] * 3, "another fleet, and another way to reach this one"
        now = REPLACED_S + 1
        await reader.observer(shard(redfish_deadline_s=99.0), ())
        assert fabrics == [*["made"] * 3, "closed"], "of the other fleet they stay"
        await reader.close()

    asyncio.run(run())
    assert fabrics.count("closed") == 3
