"""Exclusive leases. Their fencing tokens grow over all scopes, so that a token alone names its lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import instant, to_instant
from reconciler.drivers.ledger.schema import FENCE, leases, meta
from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.records import Lease


def acquire(connection: sa.Connection, scope: str, holder: str, ttl_s: float, now: datetime) -> Lease:
    # Locking the fence first makes everybody who acquires take turns, also where the scope has no row yet.
    fence = sa.select(meta.c.value).where(meta.c.key == FENCE).with_for_update()
    token = int(connection.execute(fence).scalar_one()) + 1
    held = _read(connection, scope)
    if held is not None and held.holder not in ("", holder) and held.expires_at > now:
        raise held_by(held)
    lease = Lease(scope, holder, token, now + timedelta(seconds=ttl_s), now)
    connection.execute(meta.update().where(meta.c.key == FENCE).values(value=str(token)))
    values = {"holder": holder, "token": token, "expires_at": instant(lease.expires_at), "since": instant(now)}
    if held is None:
        connection.execute(leases.insert().values(scope=scope, **values))
    else:
        connection.execute(leases.update().where(leases.c.scope == scope).values(**values))
    return lease


def renew(connection: sa.Connection, lease: Lease, ttl_s: float, now: datetime) -> Lease:
    """LeaseHeld when it was lost. A lease that ran out but that nobody took is still ours."""
    expires_at = now + timedelta(seconds=ttl_s)
    mine = (leases.c.scope == lease.scope) & (leases.c.token == lease.token) & (leases.c.holder == lease.holder)
    renewed = connection.execute(leases.update().where(mine).values(expires_at=instant(expires_at)))
    if renewed.rowcount != 1:
        raise lost(_read(connection, lease.scope), lease.scope)
    return replace(lease, expires_at=expires_at)


def drop(connection: sa.Connection, lease: Lease) -> None:
    """Dropping a lease that was lost changes nothing. The row stays: its token must not come again."""
    mine = (leases.c.scope == lease.scope) & (leases.c.token == lease.token)
    connection.execute(leases.update().where(mine).values(holder=""))


def held(connection: sa.Connection) -> list[Lease]:
    """All that were not dropped. One that ran out is its holder's still, until somebody takes it over."""
    return [_lease(row) for row in connection.execute(sa.select(leases).where(leases.c.holder != ""))]


def take_away(connection: sa.Connection, token: int) -> Lease | None:
    """The lease that has this token, which is free now; None when there is none."""
    query = sa.select(leases).where(leases.c.token == token, leases.c.holder != "").with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    lease = _lease(row)
    drop(connection, lease)
    return lease


def check_token(connection: sa.Connection, token: int, now: datetime) -> None:
    """A runner that slept through its lease must not act (pitfalls I3, M7). The row stays locked till the commit."""
    query = sa.select(leases).where(leases.c.token == token, leases.c.holder != "").with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise LeaseHeld("", "the lease was lost: another runner took it over, or an operator broke it")
    lease = _lease(row)
    if lease.expires_at <= now:
        raise LeaseHeld(lease.holder, f"the lease on {lease.scope} ran out at {lease.expires_at:%Y-%m-%d %H:%M:%SZ}")


def held_by(lease: Lease) -> LeaseHeld:
    return LeaseHeld(
        lease.holder,
        f"{lease.scope} is being written by {lease.holder}, until {lease.expires_at:%Y-%m-%d %H:%M:%SZ} at the latest",
    )


def lost(now_held: Lease | None, scope: str) -> LeaseHeld:
    if now_held is None or now_held.holder == "":
        return LeaseHeld("", f"the lease on {scope} is gone: an operator broke it")
    return LeaseHeld(now_held.holder, f"the lease on {scope} was lost to {now_held.holder}")


def _read(connection: sa.Connection, scope: str) -> Lease | None:
    row = connection.execute(sa.select(leases).where(leases.c.scope == scope).with_for_update()).one_or_none()
    return None if row is None else _lease(row)


def _lease(row: sa.Row[tuple[object, ...]]) -> Lease:
    try:
        expires_at = to_instant(row.expires_at, f"end of the lease on {row.scope}")
        since = to_instant(row.since, f"start of the lease on {row.scope}") if row.since else None
    except ValueError as error:
        raise LedgerError(f"the ledger's lease row is damaged, so nobody may write: {error}") from error
    return Lease(row.scope, row.holder, row.token, expires_at, since)
