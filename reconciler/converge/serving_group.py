"""The nodes of a serving group as actions reach them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from reconciler.converge.guarded_ports import TimedHost
from reconciler.converge.lease import HeldLease
from reconciler.model.desired import Desired, Fleet
from reconciler.model.ports import Clock, Fabric

NO_ADDRESS: Final = "the spec names no host address for it"


@dataclass(frozen=True, slots=True)
class GroupNode:
    """`host` None: it has no address. `out`: it is known to be out of service, so it serves nobody."""

    name: str
    host: TimedHost | None
    out: bool


def serving_group(
    fleet: Fleet, desired: Desired, out: Collection[str], fabric: Fabric, clock: Clock, lease: HeldLease
) -> tuple[GroupNode, ...]:
    """Return the other nodes of a node's serving group; () where it serves in none.

    `out`: nodes that are known to be out of service. One that the spec no longer names serves nobody either.
    """
    found = []
    for name in desired.serving.others(desired.node) if desired.serving is not None else ():
        node = fleet.nodes.get(name)
        host = None if node is None else fabric.host(node)
        timed = None if host is None else TimedHost(host, clock, fleet.settings, lease)
        found.append(GroupNode(name, timed, node is None or name in out))
    return tuple(found)
