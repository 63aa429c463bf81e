"""Exclusive leases. Their fencing tokens grow over all scopes, so that a token alone names its lease."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import instant, to_instant
from reconciler.drivers.ledger.schema import FENCE, leases, meta
from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.records import BMC_SCOPE, Lease

_HELD = sa.select(leases).where(leases.c.holder != "")


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
    """Dropping a lease that was lost changes nothing."""
    mine = (leases.c.scope == lease.scope) & (leases.c.token == lease.token)
    connection.execute(leases.delete().where(mine))  # its token can't come again: they are counted over all scopes


def held(connection: sa.Connection) -> tuple[Lease, ...]:
    """All that were not dropped. One that ran out is its holder's still, until somebody takes it over."""
    return tuple(map(_lease, connection.execute(_HELD)))


def prove(all_held: Iterable[Lease], lease: Lease, now: datetime | None = None) -> None:
    """LeaseHeld unless it is among those held. `now`: and unless it has not run out."""
    current = next((one for one in all_held if one.scope == lease.scope), None)
    if current is None or current.token != lease.token:
        raise lost(current, lease.scope)
    if now is not None and current.expires_at <= now:
        raise ran_out(current)


def take_away(connection: sa.Connection, token: int) -> Lease | None:
    """The lease that has this token, which is free now; None when there is none.

    With a fleet's go those on BMCs: whoever may not write to the fleet writes to none of them.
    """
    query = sa.select(leases).where(leases.c.token == token, leases.c.holder != "").with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    lease = _lease(row)
    drop(connection, lease)
    if not lease.scope.startswith(BMC_SCOPE):
        its = (leases.c.holder == lease.holder) & leases.c.scope.startswith(BMC_SCOPE, autoescape=True)
        connection.execute(leases.delete().where(its))
    return lease


def check_token(connection: sa.Connection, token: int, now: datetime) -> None:
    """A runner that slept through its lease must not act (pitfalls I3, M7). The row stays locked till the commit."""
    query = sa.select(leases).where(leases.c.token == token, leases.c.holder != "").with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise LeaseHeld("", "the lease was lost: another runner took it over, or an operator broke it")
    lease = _lease(row)
    if lease.expires_at <= now:
        raise ran_out(lease)


def ran_out(lease: Lease) -> LeaseHeld:
    return LeaseHeld(
        lease.holder,
        f"the lease on {lease.scope} ran out at {lease.expires_at:%Y-%m-%d %H:%M:%SZ}, while its runner was stopped or "
        "could not reach the ledger",
    )


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
