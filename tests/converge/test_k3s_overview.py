"""What `status` says of a K3s cluster: servers, agents, what etcd can lose, and certificates that end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.app.k3s_overview import k3s_overview
from reconciler.model.fleet_overview import ClusterOverview, K3sOverview
from reconciler.model.k3s import DUE
from reconciler.model.observed import Answered, Observation, Silent
from reconciler.model.vocab import UnknownReason
from reconciler.render.status import _k3s
from tests.converge.k3s_world import k3s_world, spec
from tests.converge.test_k3s_external import external
from tests.converge.world import World

Worlds = Callable[..., World]


def overview(here: World, seen: Observation) -> K3sOverview:
    found = k3s_overview(here.fleet, here.fleet.nodes, seen)
    assert found is not None
    return found


def lines(found: K3sOverview) -> list[str]:
    return list(_k3s(ClusterOverview("main", "v1.31", "", 5, 0, 0, 0, {}, 3, 3, found)))


@pytest.fixture
def here(world: Worlds) -> World:
    built = k3s_world(world, spec(), nodes=5)
    built.adopt()
    return built


def not_ready(seen: Observation, *names: str) -> Observation:
    nodes = dict(seen.nodes)
    for name in names:
        member = nodes[name].member
        assert isinstance(member, Answered)
        assert member.value is not None
        nodes[name] = replace(nodes[name], member=replace(member, value=replace(member.value, ready=False)))
    return replace(seen, nodes=nodes)


def test_a_cluster_that_is_well(here: World) -> None:
    found = overview(here, here.observe())
    assert found.first_end is not None
    assert found == K3sOverview(3, 3, 2, 2, 3, 1, "", (), found.first_end)
    end, name = found.first_end
    assert timedelta(days=364) < end - here.clock.now() <= timedelta(days=365)
    assert lines(found) == [
        "K3s: servers 3 of 3 ready, agents 2 of 2 ready; etcd has 3 members, of which 1 may be lost now",
        f"the first certificate ends {end:%Y-%m-%d %H:%M:%S} UTC, on {name}",
    ]


def test_what_etcd_can_lose(here: World) -> None:
    seen = here.observe()
    assert overview(here, not_ready(seen, "n1")).spare == 0
    lost = overview(here, not_ready(seen, "n1", "n2"))
    assert lost.spare == -1
    assert "etcd has 3 members and no quorum" in lines(lost)[0]
    dark = Silent(here.clock.now(), UnknownReason.TIMEOUT, "no answer")
    nodes = {**seen.nodes, "n1": replace(seen.nodes["n1"], host=dark)}
    unread = overview(here, replace(seen, nodes=nodes))
    assert (unread.members, unread.spare) == (2, None)
    assert "as far as their hosts were read" in lines(unread)[0]


def test_certificates_that_end_are_named(here: World) -> None:
    seen = here.observe()
    host = seen.nodes["n3"].host
    assert isinstance(host, Answered)
    assert host.value.k3s is not None
    due = replace(host, value=replace(host.value, k3s=replace(host.value.k3s, renewal=DUE)))
    found = overview(here, replace(seen, nodes={**seen.nodes, "n3": replace(seen.nodes["n3"], host=due)}))
    assert found.ending == ("n3",)
    assert lines(found)[2] == "certificates end within 60 days on n3: a start renews them"


def test_a_database_has_no_quorum(world: Worlds) -> None:
    built = k3s_world(world, external(), nodes=4)
    built.adopt()
    found = overview(built, built.observe())
    assert (found.spare, found.members) == (None, 0)
    assert "state in the database at " in lines(found)[0]


def test_a_fleet_without_k3s_has_none(world: Worlds) -> None:
    built = world(nodes=2)
    assert k3s_overview(built.fleet, built.fleet.nodes, built.observe()) is None
