"""The base of the ledger's roles: the database, the fleet, and the clock that leases go by."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger.cache import Cache
from reconciler.drivers.ledger.engine import Database
from reconciler.drivers.ledger.lease_time import LeaseTime, SharedClock

T = TypeVar("T")


class SqlRole:
    """The base of the classes that each implement one role of the ledger (model.ledger_ports)."""

    def __init__(self, database: Database, fleet: str, clock: SharedClock | None) -> None:
        self._database = database
        self._fleet = fleet
        self._lease_time = LeaseTime(clock)

    def _ours(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Return the condition for rows of this fleet or of none."""
        return table.c.fleet.is_(None) | table.c.fleet.in_(("", self._fleet)) if self._fleet else sa.true()

    def _time(self, now: datetime) -> Callable[[sa.Connection], datetime]:
        return lambda connection: self._lease_time.now(connection, now)

    def _whole_table(self, table: sa.Table, read: Callable[[sa.Connection], T]) -> T:
        """Return the decoded contents of a whole table, which are cached until it changes."""

        def cached(cache: Cache) -> T | None:
            return cache.tables.get(table.name)

        def anew(connection: sa.Connection, cache: Cache) -> T:
            cache.tables[table.name] = found = read(connection)
            return found

        return self._database.read_cached(cached, anew)
