"""The lab's fabric: nodes with a NIC on each rail, leaves, spines and cables, with faults that make traffic slow.

It knows nothing of how faults are looked for. A test of two nodes gives for each run and way the bandwidth of each rail
as a share of the line rate, with noise, and the spine that the flow took: ECMP chooses one for each flow by chance, a
subnet of InfiniBand one for each destination. A fault slows what passes it: the
slowest part of a path sets its pace.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Way = tuple[str, str]  # source, target


class FabricFault(StrEnum):
    """The kinds of fault that the lab's fabric can have."""

    NODE = "node"  # slow on all rails: a throttled CPU, IOMMU, NUMA
    NIC = "NIC"  # slow both ways, and with itself: a PCIe link with fewer lanes
    CABLE = "cable"  # slow both ways: what is lost is sent again
    LEAF_PORT = "leaf port"  # slow one way: what the port sends, or what it receives
    LEAF = "leaf"
    SPINE = "spine"
    RACK = "rack"  # all its nodes, on all rails
    UPLINK = "uplink"  # the cable of one rail between a leaf and a spine: `name` is GROUP/SPINE
    UPLINK_PORT = "uplink port"  # one of that cable's two ports: slow one way


@dataclass(frozen=True, slots=True)
class Broken:
    """A part that is broken. `pace`: share of the line rate that it keeps; `duty`: share of runs that it slows."""

    kind: FabricFault
    name: str  # of the node, group, spine or rack
    rail: int | None = None
    pace: float = 0.5
    duty: float = 1.0
    inbound: bool = True  # a port: what goes down is slow, to the node or the leaf; False: what comes up from it


class RunOfPair(NamedTuple):
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
        ways = (one, other), (other, one)
        passed = [(fault, (self._passes(fault, *ways[0]), self._passes(fault, *ways[1]))) for fault in self.faults]
        if all(fault.duty >= 1.0 and not any(ends) for fault, ends in passed):
            passed = []
        return [self._run(ways, passed) for _ in range(runs)]

    def loopback(self, node: str, runs: int) -> list[tuple[float, ...]]:
        """Let each NIC of a node send to itself: neither cable nor switch takes part."""
        found = []
        for _ in range(runs):
            paces = [1.0] * self.rails
            for fault in (one for one in self.faults if one.duty >= 1.0 or self.chance.random() < one.duty):
                mine = fault.name in (node, self.racks[node])
                if mine and fault.kind in (FabricFault.NODE, FabricFault.NIC, FabricFault.RACK):
                    _slow(paces, fault)
            low, wide = 1 - self.noise, 2 * self.noise
            found.append(tuple([pace * (low + wide * self.chance.random()) for pace in paces]))
        return found

    def _run(self, ways: tuple[Way, Way], passed: Sequence[tuple[Broken, tuple[bool, bool]]]) -> RunOfPair:
        """Run both ways. `passed`: the faults, and which ways may pass each; of a spine, the route tells which do."""
        active = [one for one in passed if one[0].duty >= 1.0 or self.chance.random() < one[0].duty] if passed else ()
        there_spines = self.route(*ways[0])
        there = self._measured(self._paces(0, active, there_spines))
        back_spines = self.route(*ways[1])
        back = self._measured(self._paces(1, active, back_spines))
        return RunOfPair(there, back, there_spines, back_spines)

    def _paces(
        self, way: int, active: Iterable[tuple[Broken, tuple[bool, bool]]], spines: Sequence[str]
    ) -> Sequence[float] | None:
        """Return the paces of one way; None where nothing is in it, as nearly always."""
        touched = [fault for fault, passes in active if passes[way]] if active else ()
        if not touched and (self.congestion == 1.0 or not spines):
            return None
        paces = [self.congestion if spines else 1.0] * self.rails
        for fault in touched:
            _slow(paces, fault, spines)
        return paces

    def route(self, source: str, target: str) -> tuple[str, ...]:
        """Return the spine that a flow of each rail takes; () behind one leaf."""
        groups, spines = self.groups, self.spines
        if groups[source] == groups[target]:
            return ()
        if not self.by_destination:
            chance, many = self.chance.random, len(spines)
            return tuple([spines[int(chance() * many)] for _ in range(self.rails)])
        if len(self._places) != len(self.groups):
            self._places = {node: at for at, node in enumerate(self.groups)}
        # As OpenSM spreads LIDs over the ports that lead up from a leaf, the same way in each leaf.
        first, many = self._places[target], len(self.spines)
        return tuple([self.spines[(first + rail) % many] for rail in range(self.rails)])

    def _passes(self, fault: Broken, source: str, target: str) -> bool:
        """Return whether the traffic of one way may pass a fault."""
        if fault.kind is FabricFault.SPINE:
            return self.groups[source] != self.groups[target]
        if fault.kind is FabricFault.UPLINK:
            ends = self.groups[source], self.groups[target]
            return ends[0] != ends[1] and fault.name.partition("/")[0] in ends
        if fault.kind is FabricFault.UPLINK_PORT:
            ends = self.groups[source], self.groups[target]
            return ends[0] != ends[1] and fault.name.partition("/")[0] == ends[fault.inbound]
        if fault.kind is FabricFault.LEAF:
            return fault.name in (self.groups[source], self.groups[target])
        if fault.kind is FabricFault.RACK:
            return fault.name in (self.racks[source], self.racks[target])
        if fault.kind is FabricFault.LEAF_PORT:
            return fault.name == (target if fault.inbound else source)
        return fault.name in (source, target)

    def _measured(self, paces: Sequence[float] | None) -> tuple[float, ...]:
        """Return what a way measures. `paces` None: the full pace of all rails."""
        chance, low, wide = self.chance.random, 1 - self.noise, 2 * self.noise
        if paces is None:
            found = [low + wide * chance() for _ in range(self.rails)]
        else:
            found = [pace * (low + wide * chance()) for pace in paces]
        if self.traffic and chance() < self.traffic * self.rails:  # another job's, on one rail
            found[int(chance() * self.rails)] *= 0.3 + 0.6 * chance()
        return tuple(found)


def _slow(paces: list[float], fault: Broken, spines: Sequence[str] = ()) -> None:
    """Slow down the rails that a fault is of; of a spine, those whose flow takes it."""
    rails: Iterable[int] = range(len(paces)) if fault.rail is None else (fault.rail,)
    if fault.kind is FabricFault.SPINE:
        rails = [rail for rail, spine in enumerate(spines) if spine == fault.name]
    elif fault.kind in (FabricFault.UPLINK, FabricFault.UPLINK_PORT):
        rails = [rail for rail in rails if spines[rail] == fault.name.partition("/")[2]]
    for rail in rails:
        paces[rail] = min(paces[rail], fault.pace)
