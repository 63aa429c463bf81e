"""The lab's fabric: nodes with a NIC on each rail, leaves, spines and cables, with faults that make traffic slow.

It knows nothing of how faults are looked for. A test of two nodes gives for each run and way the bandwidth of each rail
as a share of the line rate, with noise, and the spine that the flow took: ECMP chooses one for each flow by chance, a
subnet of InfiniBand one for each destination. A fault slows what passes it: the
slowest part of a path sets its pace.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class FabricFault(StrEnum):
    """The kinds of fault that the lab's fabric can have."""

    NODE = "node"  # slow on all rails: a throttled CPU, IOMMU, NUMA
    NIC = "NIC"  # slow both ways, and with itself: a PCIe link with fewer lanes
    CABLE = "cable"  # slow both ways: what is lost is sent again
    LEAF_PORT = "leaf port"  # slow one way: what the port sends, or what it receives
    LEAF = "leaf"
    SPINE = "spine"
    RACK = "rack"  # all its nodes, on all rails


@dataclass(frozen=True, slots=True)
class Broken:
    """A part that is broken. `pace`: share of the line rate that it keeps; `duty`: share of runs that it slows."""

    kind: FabricFault
    name: str  # of the node, group, spine or rack
    rail: int | None = None
    pace: float = 0.5
    duty: float = 1.0
    inbound: bool = True  # leaf port: what it sends to the node is slow; False: what it receives from it


@dataclass(frozen=True, slots=True)
class RunOfPair:
    """One run: bandwidth by rail and way, None where the test could not run, and the spines taken (() in a group)."""

    there: tuple[float | None, ...]
    back: tuple[float | None, ...]
    there_spines: tuple[str, ...]
    back_spines: tuple[str, ...]


@dataclass
class LeafSpine:
    """A fabric that is optimised for rails: the nodes of a group share one leaf for each rail.

    `noise`: 0.2 is +-20 % of each figure. `traffic`: share of flows that meet another job's. `congestion`: pace of
    what crosses the spines just now.
    """

    groups: dict[str, str]
    racks: dict[str, str]
    rails: int
    spines: tuple[str, ...]
    chance: random.Random
    faults: list[Broken] = field(default_factory=list)
    noise: float = 0.2
    traffic: float = 0.01
    refusals: float = 0.0  # share of tests that don't start
    congestion: float = 1.0
    by_destination: bool = False  # as InfiniBand routes, not as ECMP does
    _places: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_size(cls, nodes: int, chance: random.Random, *, rails: int = 8, per_group: int = 32) -> LeafSpine:
        """Build a fabric: groups of `per_group` nodes, at least two; racks of four nodes; a spine for each group."""
        per_group = min(per_group, max(1, nodes // 2))
        names = [f"n{at:03d}" for at in range(nodes)]
        groups = {name: f"g{at // per_group:02d}" for at, name in enumerate(names)}
        racks = {name: f"r{at // 4:03d}" for at, name in enumerate(names)}
        spines = tuple(f"s{at:02d}" for at in range(max(4, -(-nodes // per_group))))
        return cls(groups, racks, rails, spines, chance)

    def pair(self, one: str, other: str, runs: int) -> list[RunOfPair]:
        """Test two nodes with each other, several runs in a row."""
        if self.refusals and self.chance.random() < self.refusals:
            nothing = (None,) * self.rails
            return [RunOfPair(nothing, nothing, (), ())] * runs
        return [self._run(one, other) for _ in range(runs)]

    def loopback(self, node: str, runs: int) -> list[tuple[float, ...]]:
        """Let each NIC of a node send to itself: neither cable nor switch takes part."""
        found = []
        for _ in range(runs):
            paces = [1.0] * self.rails
            for fault in self._active():
                mine = fault.name in (node, self.racks[node])
                if mine and fault.kind in (FabricFault.NODE, FabricFault.NIC, FabricFault.RACK):
                    _slow(paces, fault)
            found.append(self._noisy(paces))
        return found

    def _run(self, one: str, other: str) -> RunOfPair:
        active = self._active()
        crosses = self.groups[one] != self.groups[other]
        ways = []
        for source, target in ((one, other), (other, one)):
            spines = self.route(source, target) if crosses else ()
            paces = [self.congestion if crosses else 1.0] * self.rails
            for fault in active:
                self._pass(fault, source, target, spines, paces)
            ways.append((self._measured(paces), spines))
        return RunOfPair(ways[0][0], ways[1][0], ways[0][1], ways[1][1])

    def route(self, source: str, target: str) -> tuple[str, ...]:
        """Return the spine that a flow of each rail takes; () behind one leaf."""
        if self.groups[source] == self.groups[target]:
            return ()
        if not self.by_destination:
            return tuple(self.chance.choices(self.spines, k=self.rails))
        if len(self._places) != len(self.groups):
            self._places = {node: at for at, node in enumerate(self.groups)}
        # As OpenSM spreads LIDs over the ports that lead up from a leaf, the same way in each leaf.
        first, many = self._places[target], len(self.spines)
        return tuple([self.spines[(first + rail) % many] for rail in range(self.rails)])

    def _active(self) -> list[Broken]:
        return [fault for fault in self.faults if fault.duty >= 1.0 or self.chance.random() < fault.duty]

    def _pass(self, fault: Broken, source: str, target: str, spines: Sequence[str], paces: list[float]) -> None:
        """Slow down the rails of one way on which the traffic passes the fault."""
        if fault.kind is FabricFault.SPINE:
            for rail, spine in enumerate(spines):
                if spine == fault.name:
                    paces[rail] = min(paces[rail], fault.pace)
            return
        if fault.kind is FabricFault.LEAF:
            touched = fault.name in (self.groups[source], self.groups[target])
        elif fault.kind is FabricFault.RACK:
            touched = fault.name in (self.racks[source], self.racks[target])
        elif fault.kind is FabricFault.LEAF_PORT:
            touched = fault.name == (target if fault.inbound else source)
        else:
            touched = fault.name in (source, target)
        if touched:
            _slow(paces, fault)

    def _measured(self, paces: list[float]) -> tuple[float, ...]:
        chance, found = self.chance.random, list(self._noisy(paces))
        if self.traffic and chance() < self.traffic * self.rails:
            found[int(chance() * self.rails)] *= 0.3 + 0.6 * chance()
        return tuple(found)

    def _noisy(self, paces: list[float]) -> tuple[float, ...]:
        chance, low, wide = self.chance.random, 1 - self.noise, 2 * self.noise
        return tuple([pace * (low + wide * chance()) for pace in paces])


def _slow(paces: list[float], fault: Broken) -> None:
    for rail in range(len(paces)) if fault.rail is None else (fault.rail,):
        paces[rail] = min(paces[rail], fault.pace)
