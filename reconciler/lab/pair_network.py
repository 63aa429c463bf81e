"""Traffic between lab machines: which of them serve a test, and what a client measures through leaves and spines."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.lab.leaf_spine import LeafSpine, RunOfPair
from reconciler.model.desired import Desired

_SPINES = ("s0", "s1")


@dataclass
class PairNetwork:
    """The network of a lab. `addresses`: address in the spec, without its port -> node."""

    fabric: LeafSpine
    addresses: Mapping[str, str]
    _serving: dict[str, str] = field(default_factory=dict)  # run of a gate -> node whose server it has started

    @classmethod
    def of_nodes(cls, nodes: Mapping[str, Desired], seed: int = 0) -> PairNetwork:
        """Build the network that the failure domains of a spec describe: one rail, and a leaf or else a rack."""
        groups = {name: node.domains.get("leaf", node.domains.get("rack", "")) for name, node in nodes.items()}
        racks = {name: node.domains.get("rack", "") for name, node in nodes.items()}
        chance = random.Random(f"{seed} network")  # noqa: S311  noise of a lab, not a secret
        fabric = LeafSpine(groups, racks, 1, _SPINES, chance, noise=0.01, traffic=0.0)
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
        return self.fabric.pair(client, server, 1)[0] if server in self.serving and server is not None else None
