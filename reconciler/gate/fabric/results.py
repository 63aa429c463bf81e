"""The results of tests between two nodes, and which of their rails were low.

Two nodes test all rails at once, several runs in a row, each run both ways (ib_write_bw, or an NCCL pair by rail).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Bar:
    """Limits that a healthy rail keeps, noise included. Latency and errors count where they were measured."""

    bandwidth: float
    latency: float | None = None
    errors: int | None = None


class Leg(NamedTuple):
    """One way of one run, by rail. A bandwidth None: that rail's test could not run, which proves nothing.

    `spines`: the spine that each rail's flow took (`ibtracert`, or a traced flow), "" where that is unknown; () inside
    one group, or where it is of no rail. `cables`: those that join it to the two leaves, each by its two ports,
    where they are known. `errors`: symbol errors that the receiving NIC counted meanwhile.
    """

    bandwidth: tuple[float | None, ...]
    spines: tuple[str, ...] = ()
    latency: tuple[float | None, ...] = ()
    errors: tuple[int, ...] = ()
    cables: tuple[tuple[str, ...], ...] = ()

    def route(self, rail: int, leaves: Sequence[str]) -> tuple[str, ...]:
        """Return the cables of a rail's flow, up to its spine and down; () where its route is not known.

        Where their ports are not known, they are named by the leaves that it leaves and reaches, and the spine.
        """
        spine = self.spines[rail] if self.spines else ""
        told = self.cables[rail] if spine and self.cables else ()
        return told or tuple([f"{leaf}/{spine}" for leaf in leaves if spine])


class Spines(NamedTuple):
    """The spine of each rail there and back, "" where it is unknown; () where that of no rail is known.

    `there_cables`, `back_cables`: the cables up to it and down from it.
    """

    there: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    there_cables: tuple[tuple[str, ...], ...] = ()
    back_cables: tuple[tuple[str, ...], ...] = ()


UNKNOWN = Spines()


class PairRun(NamedTuple):
    """One run of two nodes. `control`: both were held for healthy, so that they tell what the fabric is doing."""

    round: int
    one: str
    other: str
    there: Leg
    back: Leg
    control: bool = True


class LoopbackRun(NamedTuple):
    """One run of a node with itself: each NIC sends to itself, so that neither cable nor switch takes part."""

    round: int
    node: str
    bandwidth: tuple[float | None, ...]


class Reading(NamedTuple):
    """A run of two nodes, judged. The masks have a bit for each rail. `unread`: rails that prove nothing."""

    run: PairRun
    there: int
    back: int
    unread: int


def read(run: PairRun, bar: Bar) -> Reading:
    """Judge a run by the bar. A rail that is low one way is low, though the other way could not run."""
    there, there_unread = _low(run.there, bar)
    back, back_unread = _low(run.back, bar)
    return Reading(run, there, back, (there_unread | back_unread) & ~(there | back))


def _low(leg: Leg, bar: Bar) -> tuple[int, int]:
    """Return the masks of rails that were low, and of those that could not run."""
    low, unread, least = 0, 0, bar.bandwidth
    for rail in [at for at, value in enumerate(leg.bandwidth) if value is None or not value >= least]:
        if leg.bandwidth[rail] is None:
            unread |= 1 << rail
        else:  # what is no number, too
            low |= 1 << rail
    if bar.latency is not None:
        low |= _above(leg.latency, bar.latency)
    if bar.errors is not None:
        low |= _above(leg.errors, bar.errors)
    return low & ~unread, unread


def _above(values: tuple[float | None, ...] | tuple[int, ...], most: float) -> int:
    return sum(1 << rail for rail, value in enumerate(values) if value is not None and value > most)
