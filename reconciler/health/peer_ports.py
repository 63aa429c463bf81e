"""Judge ports against those of other nodes of the pool: what is down here and up nearly everywhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.health.parts import RDMA, NameAndDetail
from reconciler.health.table import HealthTable
from reconciler.model.desired import DesiredInventory
from reconciler.model.observed import Link

PORT_DOWN: Final = "port_down"
NEARLY_ALL: Final = 0.9  # ports that a tenth of a pool leaves unused are cabled at will, and say nothing


@dataclass(frozen=True, slots=True)
class PoolPorts:
    """How often each port was read in a pool, and found up, by its name: equal machines name their ports alike."""

    read: Mapping[str, int] = field(default_factory=dict)
    up: Mapping[str, int] = field(default_factory=dict)


def ports_of_pools(seen: Iterable[tuple[str, Sequence[Link] | None]]) -> dict[str, PoolPorts]:
    """Count the ports of all hosts, each given as its pool and its ports; None where they were not read."""
    rows: Counter[tuple[str, int]] = Counter()
    kept: dict[int, Sequence[Link]] = {}  # equal ports of nodes are mostly one object
    for pool, links in seen:
        if links:
            rows[pool, id(links)] += 1
            kept[id(links)] = links
    read: dict[str, Counter[str]] = {}
    up: dict[str, Counter[str]] = {}
    for (pool, key), count in rows.items():
        if pool not in read:
            read[pool], up[pool] = Counter(), Counter()
        read_here, up_here = read[pool], up[pool]
        for link in kept[key]:
            if link.up is not None:
                read_here[link.name] += count
                up_here[link.name] += count * link.up
    return {pool: PoolPorts(read[pool], up[pool]) for pool in read if read[pool]}


def unlike_peers(
    inventory: DesiredInventory, links: Sequence[Link], pool: PoolPorts, table: HealthTable
) -> Iterator[NameAndDetail]:
    """Yield a signal where ports are down here and up on nearly all other nodes of the pool.

    Where the spec declares how many RDMA ports are up, port_missing judges those. Whose peers are too few, or differ
    among each other, has nothing that it could be judged by: most ports that are down were never cabled.
    """
    least = table.threshold(PORT_DOWN)
    found = []
    for link in links:
        if link.up is not False or (link.kind == RDMA and inventory.rdma_ports is not None):
            continue
        others, up = pool.read.get(link.name, 1) - 1, pool.up.get(link.name, 0)
        if up >= least and up >= NEARLY_ALL * others:
            found.append(f"{link.name} (up on {up} of {others} others)")
    if found:
        yield PORT_DOWN, f"ports are down that other nodes of the pool have up: {', '.join(found)}"
