"""Traffic between lab machines: which of them serve a test, and what a client measures through leaves and spines."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from reconciler.lab.leaf_spine import LeafSpine, RunOfPair
from reconciler.model.desired import Desired

_SPINES = ("s0", "s1")
_RAILS = 8  # where the spec does not say


@dataclass
class PairNetwork:
    """The network of a lab. `addresses`: address in the spec, without its port -> node.

    `pace_of`: the share of the line rate that the link of a node's rail keeps of what leaves it.
    """

    fabric: LeafSpine
    addresses: Mapping[str, str]
    pace_of: Callable[[str, int], float] = lambda _node, _rail: 1.0
    _serving: dict[str, str] = field(default_factory=dict)  # run of a gate -> node whose server it has started

    @classmethod
    def of_nodes(cls, nodes: Mapping[str, Desired], seed: int = 0) -> PairNetwork:
        """Build the network that the failure domains of a spec describe: its rails, and a leaf or else a rack."""
        groups = {name: node.domains.get("leaf", node.domains.get("rack", "")) for name, node in nodes.items()}
        racks = {name: node.domains.get("rack", "") for name, node in nodes.items()}
        rails = max((node.profile.inventory.rdma_ports or _RAILS for node in nodes.values()), default=_RAILS)
        chance = random.Random(f"{seed} network")  # noqa: S311  noise of a lab, not a secret
        fabric = LeafSpine(groups, racks, rails, _SPINES, chance, noise=0.01, traffic=0.0)
        hosts = {node.endpoints.host.partition(":")[0]: name for name, node in nodes.items() if node.endpoints.host}
        return cls(fabric, hosts)

    def serve(self, node: str, run: str) -> None:
        """Start a server on a node, as a part of a gate's run, which `end` ends."""
        self._serving[run] = node

    def end(self, run: str) -> None:
        self._serving.pop(run, None)

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
        return replace(ran, there=there, back=back)

    def _kept(self, source: str, paces: tuple[float | None, ...]) -> tuple[float | None, ...]:
        return tuple([None if pace is None else pace * self.pace_of(source, at) for at, pace in enumerate(paces)])

    def alone(self, node: str, rail: int) -> float:
        """Return the pace of a rail's adapter that sends to itself."""
        return self.fabric.loopback(node, 1)[0][rail] if rail < self.fabric.rails else 1.0
