"""From what a test with partners measured to the results of a fabric, and what such a test can't tell.

A test over the wire says nothing of the spine that its flows took. So what is low across leaves alone may be a spine's
fault: a part is at fault only where it is low behind its own leaf as well, which no spine takes part in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

from reconciler.gate.fabric.across import between_leaves
from reconciler.gate.fabric.blame import LEAST_SHARE, Accounts, Blame
from reconciler.gate.fabric.diagnose import Conviction, Diagnosis
from reconciler.gate.fabric.evidence import Evidence, Sums
from reconciler.gate.fabric.results import UNKNOWN, Bar, Leg, Reading, Spines
from reconciler.gate.fabric.rounds import CONFIRMING_RUNS, Room, Round, Seats
from reconciler.gate.fabric.topology import Fabric, Part, PartKind
from reconciler.gate.fabric.uplinks import bad_uplinks, is_low_elsewhere
from reconciler.model.desired import GateTest
from reconciler.model.gate import TestResult
from reconciler.model.gate_arguments import PARTNERS, listed

METRIC = "gbps"
T = TypeVar("T")
_LOW_INSIDE = 2  # runs, of which one may be chance
_LINKS = frozenset({PartKind.LINK, PartKind.CABLE, PartKind.LEAF_PORT})  # a NIC is convicted by runs with itself


def rails_of(test: GateTest) -> tuple[str, ...]:
    """Return the rails that the test measures one by one; one without a name where it does not tell them apart."""
    return listed(test.args["rails"]) if "rails" in test.args else ("",)


def rails_in(test: GateTest) -> int:
    """Return how many rails a fabric has for this test: one more than a single one, which is never low.

    Were there one alone, each low run would be on all rails, and of its node: no link and no leaf could be at fault.
    """
    return max(2, len(rails_of(test)))


def _padded(test: GateTest, values: Iterable[float | None]) -> tuple[float | None, ...]:
    found = tuple(values)
    return (*found, *(inf for _ in range(rails_in(test) - len(found))))


def bar_of(test: GateTest) -> Bar | None:
    """Return the least bandwidth that the spec asks of each rail both ways; None where it asks for none."""
    return next((Bar(bar.min) for bar in test.thresholds if bar.metric == METRIC and bar.min is not None), None)


def legs(test: GateTest, result: TestResult, spines: Spines = UNKNOWN) -> tuple[Leg, Leg]:
    """Return both ways of a run, with the spines that its flows took. A rail that could not run proves nothing."""
    names = [f"{METRIC}.{rail}" if rail else METRIC for rail in rails_of(test)]
    there, back = (_padded(test, [result.metrics.get(f"{name}.{way}") for name in names]) for way in ("there", "back"))
    return (
        Leg(there, _of_each(there, spines.there, ""), cables=_of_each(there, spines.there_cables, ())),
        Leg(back, _of_each(back, spines.back, ""), cables=_of_each(back, spines.back_cables, ())),
    )


def _of_each(rails: Sequence[float | None], known: tuple[T, ...], unknown: T) -> tuple[T, ...]:
    """Return what is known for each rail, also for one that is none of the test's, where any is known."""
    return (*known, *(unknown for _ in range(len(rails) - len(known)))) if known else ()


def alone(test: GateTest) -> GateTest | None:
    """Return the same test of a node with itself; None where that proves nothing of its adapters."""
    if "rails" not in test.args:
        return None
    return replace(test, args={name: value for name, value in test.args.items() if name != PARTNERS})


def by_itself(test: GateTest, result: TestResult) -> tuple[float | None, ...]:
    """Return what each rail measured with itself."""
    return _padded(test, [result.metrics.get(f"{METRIC}.{rail}") for rail in rails_of(test)])


def confirming(fabric: Fabric, diagnosis: Diagnosis, readings: Sequence[Reading]) -> Round | None:
    """Return pairs behind the leaves of what is convicted, where they did not test enough.

    None when there are none, or no round is left: what is not confirmed then is not convicted.
    """
    if max((reading.run.round + 1 for reading in readings), default=0) >= fabric.most_rounds:
        return None
    inside = _inside(fabric, readings)
    bad = {one.part.name for one in diagnosis.convicted if one.part.blames_node}
    seats = Seats(fabric, Room(len(fabric.groups)))
    for part in (one.part for one in diagnosis.convicted):
        for node in _nodes(fabric, part):
            tried = [reading for reading in inside if node in (reading.run.one, reading.run.other)]
            mates = [name for name in fabric.members[fabric.groups[node]] if name != node and seats.free(name)]
            if len(tried) < CONFIRMING_RUNS and mates:
                mate = min(mates, key=lambda name: (name in bad, name))
                seats.pair(node, mate, CONFIRMING_RUNS, control=False)
    return seats.round() if seats.matches else None


def without_routes(fabric: Fabric, diagnosis: Diagnosis, readings: Sequence[Reading]) -> Diagnosis:
    """Take back what a spine may be at fault for: no node, link or leaf is convicted by runs across leaves alone.

    A spine is convicted by flows whose route was told.
    """
    inside = _inside(fabric, readings)
    if len(inside) == len(readings):
        return diagnosis
    parts = [one.part for one in diagnosis.convicted]
    spines = {one.part for one in diagnosis.convicted if one.part.kind is PartKind.SPINE}
    proved = [one for one in diagnosis.convicted if one.part in spines or _is_low(fabric, one.part, parts, inside)]
    undecided = dict(diagnosis.undecided)
    taken_back = [one for one in diagnosis.convicted if one not in proved]
    for one in taken_back:
        for node in _nodes(fabric, one.part):
            undecided.setdefault(node, f"{one.part} was low across leaves alone: it, or the way between leaves")
    uplinks = tuple(bad_uplinks(fabric, replace(diagnosis, convicted=tuple(proved)), readings))
    of_rails = {one.part.rail for one in uplinks}
    for one in [one for one in proved if one.part.kind in _LINKS]:
        if not is_low_elsewhere(fabric, one.part, uplinks, readings):
            proved.remove(one)
            undecided.setdefault(one.part.name, f"{one.part} was low over a bad cable between leaf and spine alone")
    convicted = (*proved, *uplinks, *_way_between([one for one in taken_back if one.part.rail not in of_rails]))
    return _by_all_runs(fabric, replace(diagnosis, convicted=convicted, undecided=undecided), readings)


def _by_all_runs(fabric: Fabric, diagnosis: Diagnosis, readings: Sequence[Reading]) -> Diagnosis:
    """Add what joins the leaves where all runs together show it, and no part alone did."""
    if any(one.part.kind is PartKind.BETWEEN for one in diagnosis.convicted):
        return diagnosis
    found = between_leaves(fabric, diagnosis, readings)
    return replace(diagnosis, convicted=(*diagnosis.convicted, found)) if found else diagnosis


def _inside(fabric: Fabric, readings: Iterable[Reading]) -> list[Reading]:
    """Return the readings of pairs behind one leaf."""
    return [reading for reading in readings if fabric.groups[reading.run.one] == fabric.groups[reading.run.other]]


def _way_between(taken_back: Sequence[Conviction]) -> Iterable[Conviction]:
    """Yield what joins the leaves as one cause, where runs across them alone were low."""
    if taken_back:
        worst = max(taken_back, key=lambda one: one.lows)
        detail = "across leaves alone: an uplink or a spine, which a test over the wire does not name"
        yield Conviction(Part(PartKind.BETWEEN), worst.lows, worst.runs, worst.partners, detail)


def _is_low(fabric: Fabric, part: Part, convicted: Iterable[Part], inside: Iterable[Reading]) -> bool:
    """Return whether a part is low in runs that pass no spine, and nothing else that is convicted."""
    bits = (1 << fabric.rails) - 1 if part.rail is None else 1 << part.rail
    nodes = set(_nodes(fabric, part))
    others = {
        node for other in convicted if other != part and not _apart(part, other) for node in _nodes(fabric, other)
    }
    counts = [
        bool((one.there | one.back) & bits)
        for one in inside
        if not nodes.isdisjoint(ends := {one.run.one, one.run.other}) and others.isdisjoint(ends)
    ]
    return sum(counts) >= _LOW_INSIDE and sum(counts) >= LEAST_SHARE * len(counts)


def _apart(part: Part, other: Part) -> bool:
    """Return whether two parts are of different rails."""
    return part.rail is not None and other.rail is not None and part.rail != other.rail


def _nodes(fabric: Fabric, part: Part) -> Iterable[str]:
    if part.blames_node:
        return (part.name,)
    if part.kind is PartKind.LEAF:
        return fabric.members[part.name]
    if part.kind is PartKind.RACK:
        return [node for node, rack in fabric.racks.items() if rack == part.name]
    return ()


def blame_matrix(fabric: Fabric, readings: Sequence[Reading]) -> tuple[Blame, ...]:
    """Return the account of each node, link, leaf, rack and spine that had a low run, the worst first."""
    accounts = Accounts(fabric, Sums(fabric, Evidence(fabric, readings).rounds.values()))
    every = [*map(accounts.of_node, accounts.broad), *accounts.links(0.0), *accounts.common()]
    return tuple(sorted((one for one in every if one.lows), key=lambda one: (-one.strength, str(one.part))))
