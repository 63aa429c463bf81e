"""Name a cable between a leaf and a spine, where routes tell which flows took it.

A bad cable is in the flows of one rail between its leaf and its spine alone: too few to stand out in the account of the
leaf, of which it is one way up of many, or of the spine, which serves other leaves and rails. So what nothing else
explains is counted by cable. Where all flows of two cables are the same, nothing tells them apart, and both are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import log
from typing import Final, NamedTuple

from reconciler.gate.fabric.blame import CONVICTS, LEAST_SHARE, LUCK, explained, likelier
from reconciler.gate.fabric.diagnose import ROUNDS, Conviction, Diagnosis
from reconciler.gate.fabric.results import Reading
from reconciler.gate.fabric.topology import Fabric, Part, PartKind

_MORE: Final = 3.0  # times as often low as the flows that take other cables
_LEAST: Final = CONVICTS / -log(LUCK)  # low flows, with fewer of which the figure convicts nothing
_NODES: Final = 3  # that saw it low, each of which might be ill itself


class _Flow(NamedTuple):
    """A flow of one rail, one way, whose route is known and which passes nothing convicted."""

    cables: tuple[str, ...]
    rail: int
    low: bool
    reading: Reading


def bad_uplinks(fabric: Fabric, diagnosis: Diagnosis, readings: Sequence[Reading]) -> Iterator[Conviction]:
    """Yield the cables between leaves and spines that are low, one after the other, each without the one before it."""
    void = {incident.round for incident in diagnosis.incidents}
    parts = [one.part for one in diagnosis.convicted]
    counted = [one for one in readings if one.run.round not in void]
    if not _may_be_bad(fabric, parts, counted):
        return
    flows = [flow for one in counted for flow in _flows(fabric, parts, one, range(fabric.rails))]
    while (found := _worst(flows)) is not None:
        cables, mine = found
        yield _conviction(cables, mine)
        taken = {id(flow) for flow in mine}
        flows = [flow for flow in flows if id(flow) not in taken]


def _may_be_bad(fabric: Fabric, parts: Sequence[Part], readings: Sequence[Reading]) -> bool:
    """Return whether a cable has enough low flows: those are few, and all of a large fabric take long to count."""
    every = range(fabric.rails)
    low = (flow for one in readings if one.there or one.back for flow in _flows(fabric, parts, one, every) if flow.low)
    lows = Counter((flow.rail, name) for flow in low for name in flow.cables)
    many = {cable: count for cable, count in lows.items() if count >= _LEAST}
    rails = sorted({rail for rail, _ in many})
    flows = (flow for one in readings for flow in _flows(fabric, parts, one, rails)) if many else ()
    counts = Counter((flow.rail, name) for flow in flows for name in flow.cables)
    return any(count >= LEAST_SHARE * counts[cable] for cable, count in many.items())


def _flows(fabric: Fabric, parts: Sequence[Part], reading: Reading, rails: Iterable[int]) -> Iterator[_Flow]:
    run = reading.run
    groups = fabric.groups[run.one], fabric.groups[run.other]
    for low, leg in ((reading.there, run.there), (reading.back, run.back)):
        if not any(leg.spines):
            continue
        hidden = reading.unread
        for part in parts:
            hidden |= explained(fabric, part, reading, leg.spines)
        for rail in rails:
            if (spine := leg.spines[rail]) and not hidden >> rail & 1:
                told = leg.cables[rail] if leg.cables else ()
                cables = told or tuple([f"{group}/{spine}" for group in groups])
                yield _Flow(cables, rail, bool(low >> rail & 1), reading)


def _worst(flows: Sequence[_Flow]) -> tuple[frozenset[str], list[_Flow]] | None:
    """Return the cable that is worst, with those of the very same flows, and its flows; None where none is bad."""
    lows, every = sum(flow.low for flow in flows), len(flows)
    by_cable: dict[tuple[int, str], list[_Flow]] = {}
    for flow in flows if lows else ():
        for name in flow.cables:
            by_cable.setdefault((flow.rail, name), []).append(flow)
    best: tuple[float, tuple[int, str]] = (CONVICTS, (0, ""))
    for cable, mine in by_cable.items():
        low = [flow for flow in mine if flow.low]
        share = len(low) / len(mine)
        usual = max(LUCK, (lows - len(low)) / max(1, every - len(mine)))
        if share >= max(LEAST_SHARE, _MORE * usual) and _is_shared(low):
            best = max(best, (likelier(len(low), len(mine), min(share, 0.999), usual), cable))
    if not best[1][1]:
        return None
    mine = by_cable[best[1]]
    same = [name for (_, name), others in by_cable.items() if len(others) == len(mine) and others == mine]
    return frozenset(same), mine


def _is_shared(low: Sequence[_Flow]) -> bool:
    """Return whether several nodes saw it, in two rounds, and no one of them alone: that one would be at fault."""
    runs = [flow.reading.run for flow in low]
    pairs = {(run.one, run.other) for run in runs}
    nodes = {node for pair in pairs for node in pair}
    alone = any(all(node in pair for pair in pairs) for node in nodes)
    return len(nodes) >= _NODES and not alone and len({run.round for run in runs}) >= ROUNDS


def _conviction(cables: frozenset[str], mine: Sequence[_Flow]) -> Conviction:
    low = [flow for flow in mine if flow.low]
    nodes = sorted({node for flow in low for node in (flow.reading.run.one, flow.reading.run.other)})
    name = " or ".join(sorted(cables))
    detail = "flows that take it, and not those of the same leaf or spine that don't"
    return Conviction(Part(PartKind.UPLINK, name, mine[0].rail), len(low), len(mine), tuple(nodes), detail)
