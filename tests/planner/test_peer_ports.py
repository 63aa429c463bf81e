"""Ports that are down on one node and up on its peers, where nothing is declared that they could be judged by."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.health.peer_ports import PORT_DOWN, PoolPorts, ports_of_pools, unlike_peers
from reconciler.health.table import health_table
from reconciler.model.desired import DesiredInventory
from reconciler.model.observed import Link
from reconciler.model.signal_changes import SignalChange
from tests.converge.world import World

NONE = DesiredInventory()
RDMA = "infiniband"


def ports(**up: bool | None) -> tuple[Link, ...]:
    return tuple(Link(name, state) for name, state in up.items())


def told(links: tuple[Link, ...], *others: tuple[Link, ...] | None, inventory: DesiredInventory = NONE) -> str:
    pool = ports_of_pools([("train", links), *(("train", one) for one in others)]).get("train", PoolPorts())
    return "; ".join(detail for _, detail in unlike_peers(inventory, links, pool, health_table()))


UP, DOWN, UNREAD = ports(eth0=True, eth1=True), ports(eth0=True, eth1=False), ports(eth0=True, eth1=None)


def test_a_port_that_is_down_here_alone_is_told_with_its_peers() -> None:
    assert told(DOWN, UP, UP, UP) == "ports are down that other nodes of the pool have up: eth1 (up on 3 of 3 others)"
    assert told(UP, UP, UP, DOWN) == ""


@pytest.mark.parametrize(
    "others",
    [
        (UP, UP),  # too few
        (UP, UP, UNREAD, None),
        (UP, UP, UP, UP, UP, DOWN),  # not nearly all of them: it is cabled at will
        (DOWN,) * 9,
        (ports(eth0=True),) * 9,  # machines without that port
    ],
)
def test_peers_that_are_few_or_differ_judge_nobody(others: tuple[tuple[Link, ...] | None, ...]) -> None:
    assert told(DOWN, *others) == ""


def test_what_the_spec_declares_is_judged_by_that() -> None:
    up, down = (Link("mlx5_0/1", True, 400, RDMA),), (Link("mlx5_0/1", False, 400, RDMA),)
    assert "mlx5_0/1" in told(down, up, up, up)
    assert told(down, up, up, up, inventory=DesiredInventory(rdma_ports=1)) == "", "port_missing says so"


STATES = st.sampled_from([True, False, None])
HOSTS = st.lists(st.none() | st.dictionaries(st.sampled_from(["a", "b", "c"]), STATES, min_size=1), max_size=14)


@given(HOSTS)
def test_a_port_is_told_just_where_three_and_nearly_all_others_have_it_up(hosts: list[dict[str, bool | None]]) -> None:
    """Against an oracle that looks at each node and its peers, one by one."""
    links = [None if host is None else ports(**host) for host in hosts]
    pool = ports_of_pools(("train", one) for one in links).get("train", PoolPorts())
    for at, host in enumerate(hosts):
        details = "".join(detail for _, detail in unlike_peers(NONE, links[at] or (), pool, health_table()))
        for name, state in (host or {}).items():
            others = [one[name] for n, one in enumerate(hosts) if n != at and one is not None and name in one]
            read = [one for one in others if one is not None]
            stands_out = state is False and sum(read) >= 3 and sum(read) >= 0.9 * len(read)
            assert (f"{name} (up on" in details) is stands_out


def test_in_the_lab_it_is_reported_and_nothing_is_done(tmp_path: Path) -> None:
    here = World(tmp_path, nodes=4, faults={"n0": {"port": {"port": 1}}})
    here.adopt()
    here.apply()
    plan = here.plan()
    shown = {
        name: [item.path for item in node.drift if item.path == "health.port_down"] for name, node in plan.nodes.items()
    }
    assert shown == {"n0": ["health.port_down"], "n1": [], "n2": [], "n3": []}
    assert here.serves("n0")
    assert here.did("n0") == []
    here.ledger.close()


def test_a_fleet_may_ask_for_more_peers() -> None:
    table = health_table((SignalChange(PORT_DOWN, "we have many", threshold=5.0),))
    pool = ports_of_pools(("train", one) for one in (DOWN, UP, UP, UP, UP))["train"]
    assert list(unlike_peers(NONE, DOWN, pool, table)) == []
