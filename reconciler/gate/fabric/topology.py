"""The network of a fleet: nodes with a NIC on each rail, leaves, spines, and the parts that a verdict may name.

The network is optimised for rails: NIC number r of each node of a group is cabled to one leaf, the group's leaf of rail
r. Spines join leaves. Groups and racks are failure domains of the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


class PartKind(StrEnum):
    """The kinds of part. LINK: a NIC, its cable or its leaf port, before a loopback test tells them apart."""

    NODE = "node"
    NIC = "NIC"
    CABLE = "cable"
    LEAF_PORT = "leaf port"
    LINK = "link"
    LEAF = "leaf"
    SPINE = "spine"
    UPLINK = "cable between leaf and spine"
    RACK = "rack"
    BETWEEN = "between leaves"
    EVERYTHING = "whole fabric"


OF_A_NODE = frozenset({PartKind.NODE, PartKind.NIC, PartKind.CABLE, PartKind.LEAF_PORT, PartKind.LINK})


class Part(NamedTuple):
    """A part of the network. `name`: its node, group, spine or rack; "" for the fabric. `rail`: None for all."""

    kind: PartKind
    name: str = ""
    rail: int | None = None

    def __str__(self) -> str:
        rail = "" if self.rail is None else f", rail {self.rail}"
        return f"{self.kind} {self.name}".rstrip() + rail

    @property
    def blames_node(self) -> bool:
        """Return whether the part belongs to one node. Any other is a common cause, and no node's fault."""
        return self.kind in OF_A_NODE


@dataclass(frozen=True)
class Fabric:
    """`groups`: node -> nodes with the same leaves; `racks`: node -> rack, for the nodes whose rack is known."""

    groups: Mapping[str, str]
    rails: int
    racks: Mapping[str, str]

    @classmethod
    def of_domains(
        cls, domains: Mapping[str, Mapping[str, str]], rails: int, group: str = "leaf", rack: str = "rack"
    ) -> Fabric:
        """Return the fabric of nodes by their failure domains. A node without a `group` is in that of its rack."""
        racks = {node: labels[rack] for node, labels in domains.items() if rack in labels}
        return cls({node: labels.get(group, racks.get(node, "")) for node, labels in domains.items()}, rails, racks)

    @cached_property
    def members(self) -> Mapping[str, tuple[str, ...]]:
        """Return the nodes of each group, in order."""
        found: dict[str, list[str]] = {}
        for node in sorted(self.groups):
            found.setdefault(self.groups[node], []).append(node)
        return {group: tuple(found[group]) for group in sorted(found)}

    @cached_property
    def most_rounds(self) -> int:
        """Return 2 log2(N) + 3, within which a diagnosis ends when the budget takes all nodes at once."""
        return 2 * max(1, (len(self.groups) - 1).bit_length()) + 3
