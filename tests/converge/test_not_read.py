"""Nobody asked a node that is not read, so nothing is concluded of it; a fleet of them is an observer outage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.converge.remember import silences
from reconciler.model.observed import Observation, Silent, was_asked
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.live_permit import in_service
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.storm import bad_nodes
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
        assert silences(node)["ssh"] is asked
        assert silences(node)["redfish"] is asked
        alone = replace(here.fleet, settings=replace(here.fleet.settings, cluster=None))
        assert in_service(alone, node) is (False if asked else None)
    assert bool(bad_nodes(here.fleet, seen)) is asked
    assert observer_outage(here.fleet, seen)


def test_a_fleet_that_no_worker_read_is_not_acted_upon(world: Worlds) -> None:
    here = world(nodes=4)
    outage = observer_outage(here.fleet, unread(here, UnknownReason.NOT_READ))
    assert "BMC not_read 4 times, host not_read 4 times" in outage
