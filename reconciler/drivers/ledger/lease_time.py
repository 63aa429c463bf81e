"""The clock that leases go by, which is the same for all runners that share a ledger.

On PostgreSQL it is the server's. An SQLite file is shared by the processes of one machine, whose wall clock anybody may
set while a lease is held; so there it is the time since boot, which nobody sets, counted from an instant that the
ledger keeps for this boot. Where the system has no boot id it is the wall clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import instant, to_instant
from reconciler.drivers.ledger.schema import BOOTED, meta
from reconciler.model.errors import LedgerError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the id of this boot of this machine; "" where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class SharedClock(Protocol):
    """A clock that runs at the same rate in all processes."""

    def now(self) -> datetime:
        """Return the fleet's time by the wall clock."""

    def at(self, wall: datetime) -> datetime:
        """Return the fleet's time at an instant of the wall clock."""

    def monotonic(self) -> float:
        """Return seconds of the fleet's time since this machine booted."""


class LeaseTime:
    """Tells the present instant. `clock` None: it is the `now` of each call, as in virtual time."""

    def __init__(self, clock: SharedClock | None) -> None:
        self._clock = clock
        self._boot = ""
        self._booted: datetime | None = None  # in the fleet's time, by the wall clock of whoever took a lease first

    @property
    def given(self) -> bool:
        """Say whether the present instant is that of each call."""
        return self._clock is None

    def now(self, connection: sa.Connection, given: datetime) -> datetime:
        """Return the present instant. Call it when the row locks are held: waiting for them takes time."""
        if self._clock is None:
            return given
        if connection.dialect.name == "postgresql":
            found: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
            return self._clock.at(found.astimezone(UTC))
        self._boot = self._boot or boot_id()
        booted = self._booted = self._booted or self._read(connection)
        return given if booted is None else booted + timedelta(seconds=self._clock.monotonic())

    def start(self, connection: sa.Connection, given: datetime) -> None:
        """Save when this machine booted unless it is saved, in the transaction that takes a lease."""
        self._boot = self._boot or boot_id()
        if self._clock is None or connection.dialect.name == "postgresql" or not self._boot:
            return
        agreed = self._read(connection)
        if agreed is None:  # or it was written by a transaction that failed afterwards
            agreed = self._booted or given - timedelta(seconds=self._clock.monotonic())
            connection.execute(meta.insert().values(key=BOOTED + self._boot, value=instant(agreed)))
        self._booted = agreed

    def _read(self, connection: sa.Connection) -> datetime | None:
        key = BOOTED + self._boot
        cell = connection.execute(sa.select(meta.c.value).where(meta.c.key == key)).scalar_one_or_none()
        try:
            return None if cell is None else to_instant(cell, "time of this machine's boot")
        except ValueError as error:
            raise LedgerError(f"the ledger's row {key!r} is damaged, so nobody may write: {error}") from error
