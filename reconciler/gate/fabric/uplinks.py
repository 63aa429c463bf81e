"""Name a cable between a leaf and a spine, where routes tell which flows took it.

A bad cable is in the flows of one rail between its leaf and its spine alone: too few to stand out in the account of the
leaf, of which it is one way up of many, or of the spine, which serves other leaves and rails. So what nothing else
explains is counted by cable, both ways and each way by itself, as one of its ports may be bad alone. Where all flows of
two cables are the same, nothing tells them apart, and both are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from math import log
from typing import Final, NamedTuple

from reconciler.gate.fabric.blame import CLEAN, CONVICTS, LEAST_SHARE, LUCK, explained, likelier, strength
from reconciler.gate.fabric.diagnose import ROUNDS, Conviction, Diagnosis
from reconciler.gate.fabric.results import Reading
from reconciler.gate.fabric.rounds import CONFIRMING_RUNS
from reconciler.gate.fabric.topology import Fabric, Part, PartKind

OR: Final = " or "  # between the names of cables that nothing tells apart
_MORE: Final = 3.0  # times as often low as the flows that take other cables
_LEAST: Final = CONVICTS / -log(LUCK)  # low flows, with fewer of which the figure convicts nothing
_NODES: Final = 3  # that saw it low, each of which might be ill itself


class _Way(StrEnum):
    BOTH = "flows that take it"
    UP = "flows that it takes up to the spine"
    DOWN = "flows that it takes down to the leaf"


class _Cable(NamedTuple):
    """A cable of a rail, and which of the flows through it are counted."""

    rail: int
    name: str
    way: _Way


class _Flow(NamedTuple):
    """A flow of one rail, one way, whose route is known and which passes nothing convicted. `cables`: up, and down."""

    cables: tuple[str, ...]
    rail: int
    low: bool
    reading: Reading

    @property
    def counted(self) -> Iterator[_Cable]:
        for name, way in zip(self.cables, (_Way.UP, _Way.DOWN), strict=True):
            yield _Cable(self.rail, name, _Way.BOTH)
            yield _Cable(self.rail, name, way)


def bad_uplinks(fabric: Fabric, diagnosis: Diagnosis, readings: Sequence[Reading]) -> Iterator[Conviction]:
    """Yield the cables between leaves and spines that are low, one after the other, each without the one before it."""
    void = {incident.round for incident in diagnosis.incidents}
    parts = [one.part for one in diagnosis.convicted]
    counted = [one for one in readings if one.run.round not in void]
    if not _may_be_bad(fabric, parts, counted):
        return
    flows = [flow for one in counted for flow in _flows(fabric, parts, one, range(fabric.rails))]
    well = _Well(fabric, counted)
    while (found := _worst(flows, well)) is not None:
        names, way, mine = found
        yield _conviction(names, way, mine)
        rail = mine[0].rail
        flows = [flow for flow in flows if flow.rail != rail or names.isdisjoint(flow.cables)]


def is_low_elsewhere(fabric: Fabric, part: Part, uplinks: Iterable[Conviction], readings: Iterable[Reading]) -> bool:
    """Return whether a link of a node is low enough to convict it in the flows that take none of these cables.

    A flow's spine may go by its destination: then all that others behind a leaf send to a node takes one cable, and a
    bad one makes the node's link look bad with many partners.
    """
    rail, runs, lows = part.rail, 0, 0
    bad = {name for one in uplinks if one.part.rail == rail for name in one.part.name.split(OR)}
    if rail is None or not bad:
        return True
    for reading in readings:
        run = reading.run
        if part.name not in (run.one, run.other) or reading.unread >> rail & 1:
            continue
        one, other = fabric.groups[run.one], fabric.groups[run.other]
        ways = ((reading.there, run.there, (one, other)), (reading.back, run.back, (other, one)))
        counted = [low >> rail & 1 for low, leg, leaves in ways if bad.isdisjoint(leg.route(rail, leaves))]
        runs, lows = runs + bool(counted), lows + any(counted)
    return strength(lows, runs) >= CONVICTS


def _may_be_bad(fabric: Fabric, parts: Sequence[Part], readings: Sequence[Reading]) -> bool:
    """Return whether a cable has enough low flows: those are few, and all of a large fabric take long to count."""
    every = range(fabric.rails)
    low = (flow for one in readings if one.there or one.back for flow in _flows(fabric, parts, one, every) if flow.low)
    lows = Counter(cable for flow in low for cable in flow.counted)
    many = {cable: count for cable, count in lows.items() if count >= _LEAST}
    rails = sorted({cable.rail for cable in many})
    flows = (flow for one in readings for flow in _flows(fabric, parts, one, rails)) if many else ()
    counts = Counter(cable for flow in flows for cable in flow.counted)
    return any(count >= LEAST_SHARE * counts[cable] for cable, count in many.items())


def _flows(fabric: Fabric, parts: Sequence[Part], reading: Reading, rails: Iterable[int]) -> Iterator[_Flow]:
    run = reading.run
    one, other = fabric.groups[run.one], fabric.groups[run.other]
    for low, leg, groups in ((reading.there, run.there, (one, other)), (reading.back, run.back, (other, one))):
        if not any(leg.spines):
            continue
        hidden = reading.unread
        for part in parts:
            hidden |= explained(fabric, part, reading, leg.spines)
        for rail in rails:
            if not hidden >> rail & 1 and (cables := leg.route(rail, groups)):
                yield _Flow(cables, rail, bool(low >> rail & 1), reading)


class _Well:
    """The links that were good behind their own leaf: what is low across leaves alone is not their fault."""

    def __init__(self, fabric: Fabric, readings: Iterable[Reading]) -> None:
        groups = fabric.groups
        self._inside = [one for one in readings if groups[one.run.one] == groups[one.run.other]]

    def is_good(self, node: str, rail: int) -> bool:
        mine = [one for one in self._inside if node in (one.run.one, one.run.other) and not one.unread >> rail & 1]
        lows = sum((one.there | one.back) >> rail & 1 for one in mine)
        return len(mine) >= CONFIRMING_RUNS and lows <= CLEAN * len(mine)


def _worst(flows: Sequence[_Flow], well: _Well) -> tuple[frozenset[str], _Way, list[_Flow]] | None:
    """Return the cable that is worst, with those of the very same flows, and its flows; None where none is bad."""
    lows, every = sum(flow.low for flow in flows), len(flows)
    by_cable: dict[_Cable, list[_Flow]] = {}
    for flow in flows if lows else ():
        for cable in flow.counted:
            by_cable.setdefault(cable, []).append(flow)
    best, worst = CONVICTS, None
    for cable, mine in by_cable.items():
        low = [flow for flow in mine if flow.low]
        share = len(low) / len(mine)
        usual = max(LUCK, (lows - len(low)) / max(1, every - len(mine)))
        if share < max(LEAST_SHARE, _MORE * usual):
            continue
        figure = likelier(len(low), len(mine), min(share, 0.999), usual)
        if figure > best and _is_shared(low, well):
            best, worst = figure, cable
    if worst is None:
        return None
    mine = by_cable[worst]
    same = [cable.name for cable, others in by_cable.items() if len(others) == len(mine) and others == mine]
    return frozenset(same), worst.way, mine


def _is_shared(low: Sequence[_Flow], well: _Well) -> bool:
    """Return whether several nodes saw it, in two rounds, and no one of them alone, whose own link may be at fault."""
    runs = [flow.reading.run for flow in low]
    pairs = {(run.one, run.other) for run in runs}
    nodes = {node for pair in pairs for node in pair}
    alone = [node for node in nodes if all(node in pair for pair in pairs)]
    many = len(nodes) >= _NODES and len({run.round for run in runs}) >= ROUNDS
    return many and all(well.is_good(node, low[0].rail) for node in alone)


def _conviction(cables: frozenset[str], way: _Way, mine: Sequence[_Flow]) -> Conviction:
    low = [flow for flow in mine if flow.low]
    nodes = sorted({node for flow in low for node in (flow.reading.run.one, flow.reading.run.other)})
    name = OR.join(sorted(cables))
    told = _Way.BOTH if len(cables) > 1 else way  # up in the one is down in the other
    detail = f"{told}, and not those of the same leaf or spine that don't"
    return Conviction(Part(PartKind.UPLINK, name, mine[0].rail), len(low), len(mine), tuple(nodes), detail)
