"""Exclusive leases. Their fencing tokens grow over all scopes, so that a token alone names its lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.migrations import SCHEMA_VERSION
from reconciler.drivers.ledger.rows import instant, to_instant, to_json, to_object
from reconciler.drivers.ledger.schema import FENCE, VERSION, is_event, journal, leases, meta
from reconciler.drivers.ledger.writing import write_journal
from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.records import BMC_SCOPE, Lease

# Statements of each renewal and each proof: building one takes longer than running it.
_HELD = sa.select(leases).where(leases.c.holder != "")
_RENEW = (
    leases.update()
    .where(
        leases.c.scope == sa.bindparam("its_scope"),
        leases.c.token == sa.bindparam("its_token"),
        leases.c.holder == sa.bindparam("its_holder"),
    )
    .values(expires_at=sa.bindparam("until"))
)
_OF_TOKEN = (
    sa.select(leases).where(leases.c.token == sa.bindparam("its_token"), leases.c.holder != "").with_for_update()
)
_VERSION = sa.select(meta.c.value).where(meta.c.key == VERSION)
Time = Callable[[sa.Connection], datetime]  # the present instant, by the clock that leases go by


class SqlLeases(SqlRole):
    def acquire(self, scope: str, holder: str, ttl_s: float, now: datetime) -> Lease:
        with self._database.write([leases]) as connection:
            self._lease_time.start(connection, now)
            return _acquire(connection, scope, holder, ttl_s, self._time(now), now)

    def renew(self, lease: Lease, ttl_s: float, now: datetime) -> Lease:
        mine = {"its_scope": lease.scope, "its_token": lease.token, "its_holder": lease.holder}
        with self._database.write([leases]) as connection:
            expires_at = self._lease_time.now(connection, now) + timedelta(seconds=ttl_s)
            if connection.execute(_RENEW, mine | {"until": instant(expires_at)}).rowcount != 1:
                raise _lost(connection, lease.token, lease.scope)
        return replace(lease, expires_at=expires_at)

    def drop(self, lease: Lease) -> None:
        with self._database.write([leases]) as connection:
            _drop(connection, lease)

    def leases(self) -> Sequence[Lease]:
        """Return all leases that were not dropped, also those that ran out.

        They are never cached: renewals by others write no row that a cache would hear of.
        """
        with self._database.read() as connection:
            return list(_held(connection))

    def holder(self, scope: str, now: datetime) -> Lease | None:
        held = next((lease for lease in self.leases() if lease.scope == scope), None)
        return held if held is not None and held.expires_at > self.lease_time(now) else None

    def prove(self, lease: Lease, now: datetime) -> None:
        held = _same(self.leases(), lease)
        if held is None:
            with self._database.read() as connection:
                raise _lost(connection, lease.token, lease.scope)
        if held.expires_at <= self.lease_time(now):
            raise _ran_out(held)

    def lease_time(self, now: datetime) -> datetime:
        """Return the present instant by the clock that leases go by; `now` is the caller's, for virtual time."""
        if self._lease_time.given:
            return now
        with self._database.read() as connection:
            return self._lease_time.now(connection, now)

    def fence(self, lease: Lease | None) -> None:
        """Refuse writes once the lease is lost. One that ran out and that nobody took is enough for the ledger."""

        def check(connection: sa.Connection) -> None:
            assert lease is not None
            if _same(_held(connection), lease) is None:
                raise _lost(connection, lease.token, lease.scope)

        self._database.fence = None if lease is None else check

    def take_away(self, token: int, by: str, now: datetime) -> Lease | None:
        """Free the lease that has this token, whoever holds it, and return it; None when there is none."""
        with self._database.write([leases]) as connection:
            return _take_away(connection, token, by, now)


def _acquire(
    connection: sa.Connection, scope: str, holder: str, ttl_s: float, time: Time, written_at: datetime
) -> Lease:
    # The lock on the fence serialises all who acquire, also where the scope has no row yet.
    fence = sa.select(meta.c.value).where(meta.c.key == FENCE).with_for_update()
    last = connection.execute(fence).scalar_one_or_none()
    if last is None or not last.isdecimal():
        raise LedgerError(
            f"the ledger's fencing token is {last!r}, so nobody may write; restore the ledger from a backup"
        )
    _check_version(connection)
    token = int(last) + 1
    held, now = _read(connection, scope), time(connection)
    if held is not None and held.holder not in ("", holder):
        if held.expires_at > now:
            raise _held_by(held)
        _note_end(connection, held, holder, RAN_OUT, written_at)
    lease = Lease(scope, holder, token, now + timedelta(seconds=ttl_s), now)
    connection.execute(meta.update().where(meta.c.key == FENCE).values(value=str(token)))
    values = {"holder": holder, "token": token, "expires_at": instant(lease.expires_at), "since": instant(now)}
    if held is None:
        connection.execute(leases.insert().values(scope=scope, **values))
    else:
        connection.execute(leases.update().where(leases.c.scope == scope).values(**values))
    return lease


def _check_version(connection: sa.Connection) -> None:
    """Raise LedgerError where the ledger was migrated since this process opened it: it must begin nothing there."""
    version = connection.execute(_VERSION).scalar_one_or_none()
    if version != str(SCHEMA_VERSION):
        raise LedgerError(
            f"the ledger was migrated to version {version} while this process, which knows {SCHEMA_VERSION}, had it "
            "open: start it again, with a reconciler of that version"
        )


def _drop(connection: sa.Connection, lease: Lease) -> None:
    mine = (leases.c.scope == lease.scope) & (leases.c.token == lease.token)
    connection.execute(leases.delete().where(mine))  # its token can't come again: they are counted over all scopes


def _held(connection: sa.Connection) -> tuple[Lease, ...]:
    """Return all leases that were not dropped. One that ran out stays its holder's until somebody takes it over."""
    return tuple(map(_lease, connection.execute(_HELD)))


def _same(all_held: Iterable[Lease], lease: Lease) -> Lease | None:
    """Return the lease as it is on record; None when it is not held any more."""
    return next((one for one in all_held if one.scope == lease.scope and one.token == lease.token), None)


def _take_away(connection: sa.Connection, token: int, by: str, written_at: datetime) -> Lease | None:
    """Free the lease that has this token.

    With a fleet's lease its holder loses those on BMCs too: who may not write to the fleet may write to none of them.
    """
    row = connection.execute(_OF_TOKEN, {"its_token": token}).one_or_none()
    if row is None:
        return None
    lease = _lease(row)
    taken = [lease]
    if not lease.scope.startswith(BMC_SCOPE):
        its = (leases.c.holder == lease.holder) & leases.c.scope.startswith(BMC_SCOPE, autoescape=True)
        taken += map(_lease, connection.execute(sa.select(leases).where(its).with_for_update()))
    for one in taken:
        _drop(connection, one)
        _note_end(connection, one, by, TAKEN_AWAY, written_at)
    return lease


def check_token(connection: sa.Connection, token: int, time: Time) -> None:
    """Raise LeaseHeld unless the lease is in force: a runner that slept through it must not act (pitfalls I3, M7).

    The row stays locked until the commit.
    """
    row = connection.execute(_OF_TOKEN, {"its_token": token}).one_or_none()
    if row is None:
        raise _lost(connection, token)
    lease = _lease(row)
    if lease.expires_at <= time(connection):
        raise _ran_out(lease)


def _ran_out(lease: Lease) -> LeaseHeld:
    return LeaseHeld(
        lease.holder,
        f"the lease on {lease.scope} ran out at {lease.expires_at:%Y-%m-%d %H:%M:%SZ}, while its runner was stopped or "
        "could not reach the ledger",
    )


def _held_by(lease: Lease) -> LeaseHeld:
    return LeaseHeld(
        lease.holder,
        f"{lease.scope} is being written by {lease.holder}, until {lease.expires_at:%Y-%m-%d %H:%M:%SZ} at the latest",
    )


# --- lost leases ---

RAN_OUT, TAKEN_AWAY = "ran out", "taken away"


def _note_end(connection: sa.Connection, lease: Lease, by: str, why: str, at: datetime) -> None:
    """Journal who ended the lease and why, for its holder: the lease's own row is gone or another holder's."""
    if why == RAN_OUT:
        detail = (
            f"{by} took over lease {lease.token} on {lease.scope}, which {lease.holder} had let run out at "
            f"{lease.expires_at:%Y-%m-%d %H:%M:%SZ}"
        )
    else:
        detail = f"{by} took lease {lease.token} on {lease.scope} away from {lease.holder}"
    data = to_json({"scope": lease.scope, "by": by, "why": why, "until": instant(lease.expires_at)})
    write_journal(connection, instant(at), "", "", "lease", detail=detail, token=lease.token, data=data)


def _lost(connection: sa.Connection, token: int, scope: str = "") -> LeaseHeld:
    """Return an error that says why the lease was lost. `scope`: "" = that of its token."""
    query = sa.select(journal).where(is_event(journal, "lease"), journal.c.token == token).order_by(journal.c.id.desc())
    ended = connection.execute(query.limit(1)).one_or_none()
    what = f"the lease on {scope}" if scope else "the lease"
    present = _read(connection, scope) if scope else None
    holder = "" if present is None else present.holder
    if ended is None:
        if holder:
            return LeaseHeld(holder, f"{what} was lost to {holder}")
        why = "its run gave it back, the ledger was migrated after it had run out, or its row was removed"
        return LeaseHeld("", f"{what} is gone: {why} from the database")
    try:
        data = to_object(ended.data, "end of a lease")
        by, why, until = str(data["by"]), data["why"], to_instant(data["until"], "end of a lease")
    except (ValueError, KeyError):
        return LeaseHeld(holder, f"{what} was lost: {ended.detail}")
    if why == RAN_OUT:
        when = f"{until:%Y-%m-%d %H:%M:%SZ}, while its runner was stopped or could not reach the ledger"
        return LeaseHeld(by, f"{what} was lost to {by}: it ran out at {when}")
    return LeaseHeld(holder, f"{what} is gone: {by} took it away at {ended.at[:19]}Z, with `reconciler lease release`")


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
