"""The part of `SqlLedger` that deals in leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger import leases, schema
from reconciler.drivers.ledger.cache import Memory
from reconciler.drivers.ledger.engine import Database
from reconciler.drivers.ledger.lease_time import LeaseTime, SharedClock
from reconciler.drivers.ledger.leases import Time
from reconciler.model.records import Lease

T = TypeVar("T")


class Leasing:
    def __init__(self, database: Database, clock: SharedClock | None) -> None:
        self._database = database
        self._lease_time = LeaseTime(clock)

    def acquire(self, scope: str, holder: str, ttl_s: float, now: datetime) -> Lease:
        with self._database.write([schema.leases]) as connection:
            self._lease_time.start(connection, now)
            return leases.acquire(connection, scope, holder, ttl_s, self._time(now), now)

    def renew(self, lease: Lease, ttl_s: float, now: datetime) -> Lease:
        with self._database.write([schema.leases]) as connection:
            return leases.renew(connection, lease, ttl_s, self._time(now))

    def drop(self, lease: Lease) -> None:
        with self._database.write([schema.leases]) as connection:
            leases.drop(connection, lease)

    def leases(self) -> Sequence[Lease]:
        """All that were not dropped, those that ran out too."""
        return list(self._list(schema.leases, leases.held))

    def holder(self, scope: str, now: datetime) -> Lease | None:
        held = next((lease for lease in self.leases() if lease.scope == scope), None)
        return held if held is not None and held.expires_at > self.lease_time(now) else None

    def prove(self, lease: Lease, now: datetime) -> None:
        held = leases.still(self.leases(), lease)
        if held is None:
            with self._database.read() as connection:
                raise leases.lost(connection, lease.token, lease.scope)
        if held.expires_at <= self.lease_time(now):
            raise leases.ran_out(held)

    def lease_time(self, now: datetime) -> datetime:
        """Now, by the clock that leases go by. `now`: of the caller, where they go by that."""
        with self._database.read() as connection:
            return self._lease_time.now(connection, now)

    def _time(self, now: datetime) -> Time:
        return lambda connection: self._lease_time.now(connection, now)

    def fence(self, lease: Lease | None) -> None:
        """One that ran out and that nobody took is proof enough for what is only written here."""

        def proved(connection: sa.Connection) -> None:
            assert lease is not None
            if leases.still(leases.held(connection), lease) is None:
                raise leases.lost(connection, lease.token, lease.scope)

        self._database.fence = None if lease is None else proved

    def take_away(self, token: int, by: str, now: datetime) -> Lease | None:
        """Free the lease that has this token, whoever holds it; None when none has."""
        with self._database.write([schema.leases]) as connection:
            return leases.take_away(connection, token, by, now)

    def _check_token(self, connection: sa.Connection, token: int, now: datetime) -> None:
        leases.check_token(connection, token, self._time(now))

    def _list(self, table: sa.Table, read: Callable[[sa.Connection], T]) -> T:
        """Return the decoded contents of a whole table, which are kept in memory until it changes."""

        def known(memory: Memory) -> T | None:
            return memory.lists.get(table.name)

        def anew(connection: sa.Connection, memory: Memory) -> T:
            memory.lists[table.name] = found = read(connection)
            return found

        return self._database.recall(known, anew)
