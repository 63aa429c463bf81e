"""Repairs by a person: parts, where they sit and how they are known, and the order to exchange some of them.

A repair is an order in the ledger, like a hold: whoever leads the fleet carries it out, and it survives restarts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from reconciler.model.privacy import FreeText, Identifier, NodeName, PublicText, Unpublished

WHOLE_NODE = "node"  # kind of the part where nothing tells which part of the node is at fault


@dataclass(frozen=True, slots=True, order=True)
class PlacedPart:
    """A part that a person can exchange. `kind`: gpu, dimm, drive, nic, power_supply, fan or WHOLE_NODE.

    `place`: its slot, or what stands for it: "DIMM_A3", "00000000:1B:00.0", "1/PSU2". `serial`: a NIC's MAC address;
    None where nothing tells it.
    """

    kind: PublicText
    place: FreeText = ""
    serial: Identifier | None = None

    @property
    def name(self) -> str:
        """Return kind and place, as a person types them."""
        return f"{self.kind}:{self.place}" if self.place else self.kind

    @property
    def text(self) -> str:
        return f"{self.name} (serial {self.serial})" if self.serial else self.name


@dataclass(frozen=True, slots=True)
class FaultyPart:
    """A part with the evidence against it, in sentences."""

    part: PlacedPart
    evidence: tuple[str, ...] = ()


class RepairPhase(StrEnum):
    """How far a repair has come."""

    OUT = "out"  # the node is taken out and switched off, or is off and waits for the exchange
    RETURNING = "returning"  # the person is done: power, then the parts are read anew
    REFUSED = "refused"  # what was read is not what a repair brings: a person must look
    CLOSED = "closed"  # accepted: the gate decides what follows


@dataclass(frozen=True, slots=True)
class Repair:
    """An order to exchange parts of a node.

    `faulty`: what is to be exchanged. `before`: all parts whose serial numbers were known when it began. `accepted`:
    why a person accepts the parts as they are, such as one that was reseated. `told`: how the last read of the parts
    ended, in words. `exchanged`: the faulty parts that are others now, as (old, new). `changed_at`: of the phase.
    """

    id: int  # 0 = not saved yet
    node: NodeName
    phase: RepairPhase
    who: FreeText
    since: datetime
    faulty: tuple[PlacedPart, ...]
    before: Unpublished[tuple[PlacedPart, ...]] = ()
    reason: FreeText = ""
    accepted: FreeText = ""
    told: FreeText = ""
    exchanged: tuple[tuple[PlacedPart, PlacedPart], ...] = ()
    changed_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.phase is not RepairPhase.CLOSED

    @property
    def what(self) -> str:
        """Return the parts to exchange, in words."""
        return ", ".join(part.text for part in self.faulty) or "no part is named"


@dataclass(frozen=True, slots=True)
class RetiredPart:
    """A part that a repair took out as faulty: its serial number is not accepted again."""

    part: PlacedPart
    node: NodeName
    at: datetime


@dataclass(frozen=True, slots=True)
class Waiting:
    """A node that waits for a person. `tried`: the treatments since it last served, in words.

    `since`: when the evidence was first seen; None where the ledger does not know.
    """

    node: str
    pool: str
    finding: str
    parts: tuple[FaultyPart, ...]
    since: datetime | None
    tried: tuple[str, ...]
    evidence: tuple[str, ...]
    in_service: bool | None
    repair: Repair | None
    ticket: str = ""


def retired_parts(repairs: Iterable[Repair]) -> dict[str, RetiredPart]:
    """Return the parts that closed repairs took out, by serial number. One that is back in another repair is not."""
    found: dict[str, RetiredPart] = {}
    for repair in repairs:
        if repair.is_open:
            continue
        for old, new in repair.exchanged:
            found.pop(new.serial or "", None)
            if old.serial:
                found[old.serial] = RetiredPart(old, repair.node, repair.changed_at or repair.since)
    return found
