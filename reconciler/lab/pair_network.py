"""Traffic between lab machines: which of them serve a test, and what a client measures through leaves and spines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from reconciler.lab.leaf_spine import LeafSpine, RunOfPair
from reconciler.model.desired import Desired

_SPINES = ("s0", "s1")
_RAILS = 8  # where the spec does not say


@dataclass
class Launched:
    """A program that one node starts over several. `members`: place -> node, of those whose part runs."""

    run: str
    nodes: int
    members: dict[int, str]
    reach: float = inf  # the least GB/s that one of them can do at all


@dataclass
class PairNetwork:
    """The network of a lab. `addresses`: address, without its port -> node; `rail_addresses`: those of RDMA ports.

    `pace_of`: the share of the line rate that the link of a node's rail keeps of what leaves it. `traced`: whether
    nodes may ask the subnet for routes.
    """

    fabric: LeafSpine
    addresses: Mapping[str, str]
    rail_addresses: Mapping[str, str]
    pace_of: Callable[[str, int], float] = lambda _node, _rail: 1.0
    _serving: dict[str, str] = field(default_factory=dict)  # run of a gate -> node whose server it has started
    traced: bool = True
    launched: dict[str, Launched] = field(default_factory=dict)  # by the name of the run

    @classmethod
    def of_nodes(cls, nodes: Mapping[str, Desired], seed: int = 0) -> PairNetwork:
        """Build the network that the failure domains of a spec describe: its rails, and a leaf or else a rack."""
        groups = {name: node.domains.get("leaf", node.domains.get("rack", "")) for name, node in nodes.items()}
        racks = {name: node.domains.get("rack", "") for name, node in nodes.items()}
        rails = max((node.profile.inventory.rdma_ports or _RAILS for node in nodes.values()), default=_RAILS)
        chance = random.Random(f"{seed} network")  # noqa: S311  noise of a lab, not a secret
        fabric = LeafSpine(groups, racks, rails, _SPINES, chance, noise=0.01, traffic=0.0, by_destination=True)
        hosts = [(node.endpoints.host.partition(":")[0], name) for name, node in nodes.items() if node.endpoints.host]
        shared = Counter(host for host, _ in hosts)  # as on loopback, where it tells no node from another
        known = {host: name for host, name in hosts if shared[host] == 1}
        own = {_rail_address(at): name for at, name in enumerate(nodes)}
        return cls(fabric, {**known, **own}, own)

    def serve(self, node: str, run: str) -> None:
        """Start a server on a node, as a part of a gate's run, which `end` ends."""
        self._serving[run] = node

    def end(self, run: str) -> None:
        self._serving.pop(run, None)
        for name in [name for name, one in self.launched.items() if one.run == run]:
            del self.launched[name]

    @property
    def serving(self) -> frozenset[str]:
        return frozenset(self._serving.values())

    def measure(self, client: str, address: str) -> RunOfPair | None:
        """Return what a client measures with the server at an address; None where none serves."""
        server = self.addresses.get(address)
        if server is None or server not in self.serving:
            return None
        (ran,) = self.fabric.pair(client, server, 1)
        there, back = (self._kept(source, paces) for source, paces in ((client, ran.there), (server, ran.back)))
        return ran._replace(there=there, back=back)

    def _kept(self, source: str, paces: tuple[float | None, ...]) -> tuple[float | None, ...]:
        return tuple([None if pace is None else pace * self.pace_of(source, at) for at, pace in enumerate(paces)])

    def together(self, nodes: Sequence[str], rails: Collection[int]) -> float | None:
        """Return the pace of a ring over these nodes, which is that of its slowest link; None where one can't run."""
        paces: list[float] = []
        for one, other in pairwise([*nodes, nodes[0]]):
            (ran,) = self.fabric.pair(one, other, 1)
            kept = self._kept(one, ran.there)
            taken = [pace for rail, pace in enumerate(kept) if not rails or rail in rails]
            known = [pace for pace in taken if pace is not None]
            if len(known) < len(taken) or not known:
                return None
            paces += known
        return min(paces)

    def address_of(self, node: str) -> str:
        """Return the address of a node's RDMA ports; "" for a node that is not in the network."""
        return next((address for address, name in self.rail_addresses.items() if name == node), "")

    def lid(self, node: str, rail: int) -> int:
        """Return the LID of a node's RDMA port."""
        return list(self.fabric.groups).index(node) * self.fabric.rails + rail + 1

    def port_with(self, lid: int) -> tuple[str, int] | None:
        """Return the node and the rail of the RDMA port with a LID; None where there is none."""
        at, rail = divmod(lid - 1, self.fabric.rails)
        nodes = list(self.fabric.groups)
        return (nodes[at], rail) if 0 <= at < len(nodes) else None

    def switches(self, source: str, target: str, rail: int) -> tuple[str, ...]:
        """Return the switches on the way from one node's rail to that of another, in order."""
        leaves = [f"{self.fabric.groups[node]} rail {rail}" for node in (source, target)]
        spines = self.fabric.route(source, target)
        return (leaves[0], spines[rail], leaves[1]) if spines else (leaves[0],)

    def port_to(self, other: str) -> int:
        """Return the port of a switch that leads to another: of a leaf after those of its nodes, of a spine by leaf."""
        if other in self.fabric.spines:
            return 33 + self.fabric.spines.index(other)
        group, _, rail = other.rpartition(" rail ")
        return sorted(set(self.fabric.groups.values())).index(group) * self.fabric.rails + int(rail) + 1

    def alone(self, node: str, rail: int) -> float:
        """Return the pace of a rail's adapter that sends to itself."""
        return self.fabric.loopback(node, 1)[0][rail] if rail < self.fabric.rails else 1.0


def _rail_address(at: int) -> str:
    return f"10.77.{at // 250}.{at % 250 + 1}"
