"""Slurm's reservations of maintenance (scontrol(1), "RESERVATIONS"): one for each node, named for its ledger.

MAINT counts the time as planned and lets one overlap others, which is why those are read first. IGNORE_JOBS makes it
although jobs run there. Slurm then starts no job whose time limit reaches into it, and deletes it when it ends.
Times are UTC, as commands.py asks for. Recorded from slurmctld 22.05.8.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Final

from reconciler.drivers.slurm.commands import Commands
from reconciler.drivers.slurm.hostlist import expand
from reconciler.drivers.slurm.nodes import Unreadable
from reconciler.model.errors import DriverError, Failure
from reconciler.model.reservations import Reservation, Reservations

_PREFIX: Final = "reconciler-"
_NONE: Final = "No reservations in the system"
_RECORD: Final = re.compile(r"^ReservationName=(?P<name>.*?) StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) ")
_NODES: Final = re.compile(r" Nodes=(\S+) ")
_FLAGS: Final = re.compile(r" Flags=(\S+) ")


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    name: str
    nodes: tuple[str, ...]
    start: datetime
    end: datetime
    flags: frozenset[str]
    active: bool


def decode(output: str) -> Iterator[SlurmReservation]:
    """Yield the reservations of `scontrol show reservation -o`. Raise Unreadable."""
    for line in output.splitlines():
        if not line.strip() or line.startswith(_NONE):
            continue
        record = _RECORD.search(line)
        if record is None:
            raise Unreadable(f"no record of a reservation: {line.strip()[:80]!r}")
        nodes, flags = _NODES.search(line), _FLAGS.search(line)
        try:
            names = () if nodes is None or nodes[1] == "(null)" else tuple(expand(nodes[1]))
            span = _instant(record["start"]), _instant(record["end"])
        except ValueError as error:
            raise Unreadable(f"reservation {record['name']}: {error}") from error
        given = frozenset() if flags is None else frozenset(flags[1].split(","))
        yield SlurmReservation(record["name"], names, *span, given, " State=ACTIVE " in line)


def in_ours_alone(found: Collection[SlurmReservation], ledger: str) -> frozenset[str]:
    """Return the nodes that are in a maintenance reservation of this ledger now, and in nobody else's."""
    active = [one for one in found if one.active and "MAINT" in one.flags]
    ours = {name for one in active if is_ours(one, ledger) for name in one.nodes}
    return frozenset(ours - {name for one in active if not is_ours(one, ledger) for name in one.nodes})


def is_ours(one: SlurmReservation, ledger: str) -> bool:
    return bool(ledger) and [_name(ledger, node) for node in one.nodes] == [one.name]


async def read(commands: Commands) -> list[SlurmReservation]:
    output = await commands.read("scontrol", "show", "reservation", "-o")
    try:
        return list(decode(output))
    except Unreadable as error:
        raise DriverError(Failure.MALFORMED, f"scontrol show reservation: {error}") from error


class SlurmReservations:
    """The reservations of one ledger. `names`: a node's name in the spec -> in slurm.conf, where they differ."""

    def __init__(self, commands: Commands, names: Mapping[str, str], ledger: str) -> None:
        self._commands = commands
        self._theirs = dict(names)
        self._ours = {theirs: ours for ours, theirs in names.items()}
        self._ledger = ledger

    async def found(self) -> Reservations:
        ours: dict[str, Reservation] = {}
        others: list[Reservation] = []
        for one in await read(self._commands):
            held = [Reservation(self._ours.get(node, node), one.start, one.end) for node in one.nodes]
            if is_ours(one, self._ledger):
                ours[held[0].node] = held[0]
            else:
                others += held
        return Reservations(ours, tuple(others))

    async def reserve(self, wanted: Reservation, before: Reservation | None) -> None:
        node = self._theirs.get(wanted.node, wanted.node)
        minutes = max(1, ceil((wanted.end - wanted.start).total_seconds() / 60))
        name = f"reservationname={_name(self._ledger, node)}"
        span = (f"starttime={wanted.start.astimezone(UTC):%Y-%m-%dT%H:%M:%S}", f"duration={minutes}")
        if before is None:
            whom = (f"nodes={node}", "users=root", "flags=MAINT,IGNORE_JOBS")
            await self._commands.write("scontrol", "create", "reservation", name, *whom, *span)
        else:
            await self._commands.write("scontrol", "update", name, *span)

    async def release(self, node: str) -> None:
        await release(self._commands, self._theirs.get(node, node), self._ledger)


async def release(commands: Commands, node: str, ledger: str) -> None:
    """Delete the reservation of this ledger. `node`: as Slurm names it."""
    try:
        await commands.write("scontrol", "delete", f"reservationname={_name(ledger, node)}")
    except DriverError as error:
        if error.kind is not Failure.CONFLICT:
            raise


def _name(ledger: str, node: str) -> str:
    return f"{_PREFIX}{ledger}-{node}"


def _instant(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
