"""Leases that stand in the way of a migration: a process that holds one was not made for other tables.

Who holds none is stopped when it asks for one: see `leases`.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from reconciler.drivers.ledger.lease_time import LeaseTime, SharedClock
from reconciler.drivers.ledger.rows import to_instant
from reconciler.drivers.ledger.schema import FENCE, leases, meta
from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.records import Lease

_HELD = sa.select(leases.c.scope, leases.c.holder, leases.c.token, leases.c.expires_at)  # as in every version


def live_leases(connection: sa.Connection, clock: SharedClock) -> Sequence[Lease]:
    """Return the leases that have not run out, of a ledger of any version."""
    now = LeaseTime(clock).now(connection, clock.now())
    found = []
    for row in connection.execute(_HELD.where(leases.c.holder != "").order_by(leases.c.scope)):
        try:
            expires_at = to_instant(row.expires_at, f"end of the lease on {row.scope}")
        except ValueError as error:
            raise LedgerError(f"the ledger's lease row is damaged, so nobody may migrate it: {error}") from error
        if expires_at > now:
            found.append(Lease(row.scope, row.holder, row.token, expires_at))
    return found


def end_leases(connection: sa.Connection, clock: SharedClock, where: str, version: int, to: int) -> None:
    """Drop the leases that ran out, whose holders may yet wake. Raise LeaseHeld where one has not.

    Until the transaction ends, nobody takes another.
    """
    connection.execute(sa.select(meta.c.value).where(meta.c.key == FENCE).with_for_update())
    for held in live_leases(connection, clock):
        raise LeaseHeld(
            held.holder,
            f"the ledger {where} is of version {version} and is to be of version {to}, and {held.holder} holds the "
            f"lease on {held.scope}: stop that process, which was made for its tables; the lease of one that is dead "
            f"runs out at {held.expires_at:%Y-%m-%d %H:%M:%SZ}",
        )
    connection.execute(leases.delete())
