"""The partner of a node whose gate tests between two nodes: which node it is, and for how long it is held.

A near partner shares the node's leaves, so that no spine takes part; a far one is behind another leaf, so that the
node's own is not all that is tested. It is out of service, or it has no work, a valid certificate, and room in the
disruption budget. A node with work is never taken.

A hold ends with its gate, however long its tests take: it counts while that gate runs. A reconciler that crashed has no
gate that runs, so there is nothing to clean up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from reconciler.gate.fabric.topology import Fabric

SHOWN: Final = 5  # nodes that a reason names


class Service(StrEnum):
    """The service of a node. UNKNOWN: it can't be read, so the node is left alone."""

    OUT = "out of service"
    IDLE = "in service without work"
    WORKING = "in service with work"
    UNKNOWN = "unknown"


class Candidate(NamedTuple):
    """A node as it is now. `certified`: its certificate is valid. `occupied`: an action or a gate of its own runs.

    `barred`: why nothing at all may be done to it, even while it is out of service; "" when it may.
    """

    service: Service
    certified: bool
    occupied: bool = False
    barred: str = ""


class Hold(NamedTuple):
    """A partner that the gate of `node` holds. `attempt`: the gate's own."""

    partner: str
    node: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Partner:
    """The node to test with. `certified`: its failures count. `charges`: it has to be taken out of service first."""

    name: str
    certified: bool
    charges: bool


@dataclass(frozen=True, slots=True)
class NoPartner:
    """Why there is none. `wait`: a node is held, occupied, has work, can't be read or has no room in the budget."""

    reason: str
    wait: bool


Refusal = Callable[[str], str | None]  # node -> why the disruption budget has no room for it; None: it has


def live_holds(holds: Iterable[Hold], running: Collection[str]) -> tuple[Hold, ...]:
    """Return the holds that count: those of gates that run, by attempt."""
    return tuple(hold for hold in holds if hold.attempt in running)


def choose_partner(
    node: str,
    fabric: Fabric,
    candidates: Mapping[str, Candidate],
    holds: Iterable[Hold],
    refusal: Refusal,
    avoid: Collection[str] = (),
    *,
    near: bool = True,
) -> Partner | NoPartner:
    """Choose the partner that costs least: certified and out of service, then idle, then out without a certificate.

    `holds`: those that count, of all gates. `avoid`: nodes that it has tested with, and those that are suspected.
    """
    if node not in fabric.groups:
        return NoPartner(f"the fabric does not know {node}", wait=False)
    group = fabric.groups[node]
    if not group:
        return NoPartner(f"{node} has no leaf and no rack in the spec", wait=False)
    held: dict[str, str] = {}
    for hold in holds:
        held[hold.partner] = f"the gate of {hold.node} holds it"
        held[hold.node] = f"its own gate tests with {hold.partner}"
    if node in held:
        return NoPartner(f"{node}: {held[node]}", wait=True)
    away: list[str] = []
    found: list[tuple[int, bool, str]] = []
    names = fabric.members[group] if near else _behind_others(fabric, group)
    for name, candidate in _others(node, names, candidates, avoid):
        why = held.get(name) or unfit(name, candidate, refusal)
        if why:
            away.append(f"{name}: {why}")
        elif candidate.service is Service.OUT or candidate.certified:
            # By name from the node on: gates that start together don't all ask for the same partner.
            found.append((_cost(candidate), name < node, name))
    if found:
        name = min(found)[2]
        chosen = candidates[name]
        return Partner(name, chosen.certified, chosen.service is not Service.OUT)
    reason = f"no partner for {node} behind {'its leaf' if near else 'another leaf than'} {group}"
    more = [f"and {len(away) - SHOWN} more"] if len(away) > SHOWN else []
    return NoPartner("; ".join([reason, *away[:SHOWN], *more]), wait=bool(away))


def _behind_others(fabric: Fabric, group: str) -> Iterator[str]:
    for other, names in fabric.members.items():
        if other and other != group:
            yield from names


def _others(
    node: str, names: Iterable[str], candidates: Mapping[str, Candidate], avoid: Collection[str]
) -> Iterator[tuple[str, Candidate]]:
    for name in names:
        if name != node and name not in avoid and name in candidates:
            yield name, candidates[name]


def unfit(name: str, candidate: Candidate, refusal: Refusal) -> str | None:
    """Return why a node can't be a partner now, though it may be later."""
    if candidate.barred:
        return candidate.barred
    if candidate.occupied:
        return "an action or a gate of its own runs"
    if candidate.service is Service.WORKING:
        return "it has work"
    if candidate.service is Service.UNKNOWN:
        return "whether it has work can't be read"
    if candidate.service is Service.IDLE and candidate.certified:
        return refusal(name)
    return None


def _cost(candidate: Candidate) -> int:
    if not candidate.certified:
        return 2
    return 0 if candidate.service is Service.OUT else 1
