"""Nobody asked a node that is not read, so nothing is concluded of it; a fleet of them is an observer outage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.converge.brake import look_for_storm
from reconciler.converge.events import ActionStarted
from reconciler.converge.observer import InProcessObserver
from reconciler.converge.remember import remember_facts, silences
from reconciler.model.observed import Observation, Silent, was_asked
from reconciler.model.observer_port import ObserveShard, Readings, ShardSeen
from reconciler.model.records import BAD
from reconciler.model.status import NodeStatus
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.live_permit import in_service
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.storm import bad_nodes
from reconciler.planner.node.watchdog import silence_signals
from tests.converge.test_loop import HOUR, MINUTE, Looped
from tests.converge.world import World

Worlds = Callable[..., World]


def unread(world: World, reason: UnknownReason) -> Observation:
    """A pass in which no node was read, for a reason; the cluster says that they are ready."""
    seen = world.observe()
    silent = Silent(seen.started_at, reason, "worker fra-1 has died")
    nodes = {name: replace(one, hot=silent, inventory=silent, host=silent) for name, one in seen.nodes.items()}
    return replace(seen, nodes=nodes)


@pytest.mark.parametrize("reason", [UnknownReason.NOT_READ, UnknownReason.TIMEOUT])
def test_nothing_is_concluded_about_a_node_that_nobody_asked(world: Worlds, reason: UnknownReason) -> None:
    here = world(nodes=4)
    seen = unread(here, reason)
    asked = reason is UnknownReason.TIMEOUT
    for node in seen.nodes.values():
        assert was_asked(node) is asked
        assert {"redfish", "ssh"} & silences(node).keys() == ({"redfish", "ssh"} if asked else set())
        alone = replace(here.fleet, settings=replace(here.fleet.settings, cluster=None))
        assert in_service(alone, node) is (False if asked else None)
    assert any(bad_nodes(here.fleet, seen).values()) is asked
    assert observer_outage(here.fleet, seen)


def test_a_fleet_that_no_worker_read_is_not_acted_upon(world: Worlds) -> None:
    here = world(nodes=4)
    outage = observer_outage(here.fleet, unread(here, UnknownReason.NOT_READ))
    assert "BMC not_read 4 times, host not_read 4 times" in outage


def test_what_was_known_of_a_node_outlasts_a_pass_that_did_not_read_it(world: Worlds) -> None:
    """A host that is down would be up for half an hour again, and one that has been bad for days be bad since now."""
    here = world(nodes=4)
    names = list(here.fleet.nodes)

    def look(reason: UnknownReason, *dark: str) -> None:
        seen, whole = unread(here, reason), here.observe()
        seen = replace(seen, nodes={**whole.nodes, **{name: seen.nodes[name] for name in dark}})
        records, now = here.ledger.nodes(names), here.clock.now()
        remember_facts(here.ledger, here.fleet.nodes, seen.nodes.values(), records, now)
        look_for_storm(here.ledger, here.fleet, seen, here.ledger.nodes(names), now)
        told.append([one.name for one in silence_signals(here.fleet.nodes["n0"], seen.nodes["n0"], records["n0"])])

    told: list[list[str]] = []
    look(UnknownReason.TIMEOUT, "n0")
    before = here.ledger.node("n0").silent_since
    assert before.keys() >= {"redfish", "ssh", BAD}
    here.clock.elapsed += 2 * HOUR
    look(UnknownReason.NOT_READ, "n0", "n1")
    assert here.ledger.node("n0").silent_since == before
    assert "ssh" not in here.ledger.node("n1").silent_since
    here.clock.elapsed += MINUTE
    look(UnknownReason.TIMEOUT, "n0")
    assert here.ledger.node("n0").silent_since == before
    assert told[1] == [], "nobody asked it"
    assert "host_silent" in told[2]


class Dying(InProcessObserver):
    """Workers that read `lost` no more."""

    lost: frozenset[str] = frozenset()

    async def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        async for seen in super().observe(shards):
            silent = Silent(self._clock.now(), UnknownReason.NOT_READ, "worker fra-1 has died")
            nodes = {n: Readings(silent, silent, silent) if n in self.lost else one for n, one in seen.nodes.items()}
            yield replace(seen, nodes=nodes)


@pytest.mark.parametrize("many", [1, 5])
def test_a_loop_keeps_no_reading_of_a_node_whose_worker_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    here = Looped(tmp_path, nodes=5)
    workers = Dying(here.fabric, here.clock)
    monkeypatch.setattr(here.fabric, "observer", lambda: workers)

    async def dies() -> None:
        await here.clock.sleep(5 * MINUTE)
        assert here.statuses() == {NodeStatus.CONVERGED}
        workers.lost = frozenset(list(here.fleet.nodes)[:many])
        await here.clock.sleep(6 * MINUTE)
        assert here.seen.fleet is not None
        other = {name for name, one in here.seen.fleet.nodes.items() if one.status is not NodeStatus.CONVERGED}
        assert other == workers.lost
        assert bool(here.said("blind")) is (many == 5)
        workers.lost = frozenset()

    here.go(20 * MINUTE, dies)
    assert here.statuses() == {NodeStatus.CONVERGED}
    assert bool(here.said("seeing")) is (many == 5)
    assert not [event for event in here.events if isinstance(event, ActionStarted)]
