"""Reservations of nodes before work on them, and the port through which they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reservation:
    """A node, as the spec names it, that starts no job from `start` to `end`, nor one that would run into it."""

    node: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Reservations:
    """`ours`: node -> its reservation by this ledger. `others`: those of anybody else, one for each of their nodes."""

    ours: Mapping[str, Reservation]
    others: tuple[Reservation, ...] = ()

    def overlapped(self, wanted: Reservation) -> Reservation | None:
        """Return a reservation of somebody else that the node has at that time."""
        same = (one for one in self.others if one.node == wanted.node)
        return next((one for one in same if one.start < wanted.end and wanted.start < one.end), None)


class ReservationStore(Protocol):
    """The reservations of a queue of jobs. Every call raises DriverError; CONFLICT: it has changed, read it again."""

    async def found(self) -> Reservations:
        """Read all reservations. One that has ended is none."""

    async def reserve(self, wanted: Reservation, before: Reservation | None) -> None:
        """Make a reservation of ours, or move the one of before, which has not begun."""

    async def release(self, node: str) -> None:
        """Delete the reservation of ours. One that is gone is success."""
