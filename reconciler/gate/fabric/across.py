"""Tell by all runs together whether what joins the leaves is at fault: tests without routes show one spine of many so.

One bad spine of sixteen is in one flow of sixteen, of each node alike, and that is too seldom to stand out from chance
in the account of any part. All flows across leaves, against all those within one, are enough to show it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from reconciler.gate.fabric.blame import CONVICTS, explained, likelier
from reconciler.gate.fabric.diagnose import ROUNDS, Conviction, Diagnosis
from reconciler.gate.fabric.results import Leg, Reading
from reconciler.gate.fabric.topology import Fabric, Part, PartKind

_USUAL: Final = 0.01  # share of low flows within a leaf that is reckoned with at least
_MORE: Final = 2.0  # times as often low across leaves as within them
_WORST: Final = 2  # nodes with most low flows, which don't count: their own faults are not what joins the leaves


class _Flows(NamedTuple):
    """The flows of a run that nothing convicted explains, both ways and all rails: how many were low, of how many."""

    reading: Reading
    across: bool
    lows: int
    flows: int


def between_leaves(fabric: Fabric, diagnosis: Diagnosis, readings: Sequence[Reading]) -> Conviction | None:
    """Return what joins the leaves as one cause, where flows across them are low that no part is convicted of.

    It must show without the two worst nodes, with more than half of the others, and in two rounds.
    """
    void = {incident.round for incident in diagnosis.incidents}
    parts = [one.part for one in diagnosis.convicted]
    found = [_flows(fabric, parts, reading) for reading in readings if reading.run.round not in void]
    inside = [one for one in found if not one.across]
    usual = max(_USUAL, _share(inside))
    across = list(_without_worst([one for one in found if one.across]))
    lows, flows, share = sum(one.lows for one in across), sum(one.flows for one in across), _share(across)
    if share < _MORE * usual or likelier(lows, flows, share, usual) < CONVICTS or not _is_everywhere(across):
        return None
    detail = f"{share:.0%} of flows across leaves, and {_share(inside):.0%} of those behind one leaf"
    nodes = sorted({node for one in across if one.lows for node in _ends(one)})
    return Conviction(
        Part(PartKind.BETWEEN), sum(one.lows > 0 for one in across), len(across), tuple(nodes),
        f"{detail}: one of several uplinks or spines, or other traffic there",
    )  # fmt: skip


def _flows(fabric: Fabric, parts: Sequence[Part], reading: Reading) -> _Flows:
    """Count the flows that pass nothing convicted, and whose route was not told: one that was told has its spine."""
    lows = flows = 0
    for low, leg in ((reading.there, reading.run.there), (reading.back, reading.run.back)):
        counted = _counted(leg, reading.unread)
        for part in parts if counted else ():
            counted &= ~explained(fabric, part, reading, leg.spines)
        lows += (low & counted).bit_count()
        flows += counted.bit_count()
    return _Flows(reading, fabric.groups[reading.run.one] != fabric.groups[reading.run.other], lows, flows)


def _counted(leg: Leg, unread: int) -> int:
    every = (1 << len(leg.bandwidth)) - 1 & ~unread
    if not any(leg.spines):
        return every
    return every & ~sum([1 << rail for rail, spine in enumerate(leg.spines) if spine])


def _ends(one: _Flows) -> tuple[str, str]:
    return one.reading.run.one, one.reading.run.other


def _share(flows: Sequence[_Flows]) -> float:
    return sum(one.lows for one in flows) / max(1, sum(one.flows for one in flows))


def _without_worst(across: Sequence[_Flows]) -> Iterator[_Flows]:
    worst: Counter[str] = Counter()
    for one in across:
        for node in _ends(one):
            worst[node] += one.lows
    left_out = {node for node, _ in worst.most_common(_WORST)}
    return (one for one in across if left_out.isdisjoint(_ends(one)))


def _is_everywhere(across: Sequence[_Flows]) -> bool:
    seen: defaultdict[str, int] = defaultdict(int)
    for one in across:
        for node in _ends(one):
            seen[node] += one.lows
    rounds = {one.reading.run.round for one in across if one.lows}
    return len(rounds) >= ROUNDS and sum(lows > 0 for lows in seen.values()) * 2 > len(seen)
