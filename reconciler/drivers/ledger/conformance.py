"""Checks of a database against what the ledger relies on, over the ledger's own driver.

What only reads asks for settings. What writes makes a ledger of its own beside the real one, tries it from two
connections, and takes it away: a schema of its own on PostgreSQL, a file of its own in the same directory for SQLite.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger.engine import open_engine, open_to_read
from reconciler.drivers.ledger.lease_time import SharedClock
from reconciler.drivers.ledger.migrations import SCHEMA_VERSION, read_version
from reconciler.drivers.ledger.store import SqlLedger
from reconciler.drivers.probes import Probe, WrongAnswerError, expect, run_probes
from reconciler.model.conformance import Check, ConformanceReport
from reconciler.model.errors import DriverError, Failure, LeaseHeld, LedgerError

_LOCK: Final = 0x7265636F6E66  # of PostgreSQL, for the check alone
_SKEW_S: Final = 30.0
_DURABLE: Final = frozenset({"on", "remote_write", "remote_apply", "local"})
_OLDEST: Final = 13
_REFUSALS: Final = (sa.exc.ProgrammingError, sa.exc.NotSupportedError, sa.exc.InternalError)


@dataclass(frozen=True, slots=True)
class Bench:
    """The database. `where`: a file or URL; `name`: the same for messages, without a password (of SQLite, the file)."""

    where: str
    name: str
    engine: sa.Engine
    clock: SharedClock

    @property
    def postgresql(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    def asked(self, query: str, **values: Any) -> Any:
        """Return what the database answers. Raise DriverError."""
        with self.connected() as connection:
            return connection.execute(sa.text(query), values).scalar()

    @contextmanager
    def connected(self) -> Iterator[sa.Connection]:
        """Connect during the block. Raise DriverError, and not SQLAlchemy's: of the database, and of statements."""
        try:
            with self.engine.connect() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            damaged = type(error) is sa.exc.DatabaseError  # of SQLite: the file is none; derived ones say other things
            kind = Failure.REJECTED if damaged or isinstance(error, _REFUSALS) else Failure.UNREACHABLE
            raise DriverError(kind, f"{self.name}: {_reason(error)}") from None

    def need_postgresql(self) -> None:
        if not self.postgresql:
            raise DriverError(Failure.UNSUPPORTED, "an SQLite file has none: it is for one machine")


async def _answers(bench: Bench) -> None:
    expect(bench.asked("SELECT 1") == 1, "`SELECT 1` is not answered with 1")


async def _version(bench: Bench) -> None:
    with bench.connected() as connection:
        try:
            read_version(connection)  # None: nothing is in it yet
        except ValueError as error:
            raise WrongAnswerError(f"it is no ledger that can be used: {error}") from None
    bench.need_postgresql()
    number = int(bench.asked("SHOW server_version_num"))
    expect(number >= _OLDEST * 10_000, f"PostgreSQL {number // 10_000}; the ledger is tried on {_OLDEST} and later")
    encoding = bench.asked("SHOW server_encoding")
    expect(encoding == "UTF8", f"the encoding is {encoding}, and names of nodes need UTF8")


async def _primary(bench: Bench) -> None:
    bench.need_postgresql()
    expect(not bench.asked("SELECT pg_is_in_recovery()"), "it is a standby, which takes no writes: name the primary")
    expect(bench.asked("SHOW transaction_read_only") == "off", "its transactions are read-only")


async def _durable(bench: Bench) -> None:
    if not bench.postgresql:
        mode = str(bench.asked("PRAGMA journal_mode")).lower()
        expect(mode == "wal", f"its journal mode is {mode}: keep it on a disk of this machine, not on a network's")
        return
    said = str(bench.asked("SHOW synchronous_commit"))
    expect(said in _DURABLE, f"synchronous_commit is {said}: a power cut loses intents that were journaled")
    fsync = bench.asked("SHOW fsync")
    expect(fsync == "on", f"fsync is {fsync}: a power cut may destroy the ledger")


async def _clock(bench: Bench) -> None:
    bench.need_postgresql()
    theirs = bench.asked("SELECT clock_timestamp()")
    apart = abs((datetime.now(UTC) - theirs).total_seconds())  # noqa: TID251 - two wall clocks
    expect(apart <= _SKEW_S, f"its clock is {apart:.0f} s apart from this machine's: run NTP on both")


async def _session(bench: Bench) -> None:
    """A pooler by transactions gives each one another session, and locks of a session are then nobody's.

    One alone would get the same session again and again: so another connection is in a transaction meanwhile.
    """
    bench.need_postgresql()
    pid, lock = sa.text("SELECT pg_backend_pid()"), {"k": _LOCK}
    with bench.connected() as one, bench.connected() as two:
        first = one.execute(pid).scalar()
        locked = one.execute(sa.text("SELECT pg_try_advisory_lock(:k)"), lock).scalar()
        one.commit()
        beside = two.execute(pid).scalar()  # in a transaction, until the block ends
        stolen = two.execute(sa.text("SELECT pg_try_advisory_lock(:k)"), lock).scalar()
        again = one.execute(pid).scalar()
        freed = one.execute(sa.text("SELECT pg_advisory_unlock(:k)"), lock).scalar()
        one.commit()
        if stolen:
            two.execute(sa.text("SELECT pg_advisory_unlock_all()"))
    expect(
        first == again != beside,
        "the transactions of one connection run in several sessions: pool by session, not transaction",
    )
    expect(bool(locked and freed) and not stolen, "a lock of the session does not last until the next transaction")


# --- what writes -----------------------------------------------------------------------------------------------------


@contextmanager
def _scratch(bench: Bench) -> Iterator[str]:
    """Yield the place of an empty ledger of our own, and take it away."""
    name = f"reconciler_conformance_{secrets.token_hex(4)}"
    if not bench.postgresql:
        file = Path(bench.name).with_name(f".{name}.sqlite")
        try:
            yield str(file)
        finally:
            for left in file.parent.glob(f"{file.name}*"):
                with suppress(OSError):
                    left.unlink()
        return
    url = bench.engine.url.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
    try:
        _run(bench, f"CREATE SCHEMA {name}")
    except DriverError as error:
        raise WrongAnswerError(f"a schema can't be made: {error.detail}") from None
    wrong = ""
    try:
        _expect_schema(url, name)
        yield url
    except WrongAnswerError as error:
        wrong = f"{error}; "
        raise
    finally:
        try:
            _run(bench, f"DROP SCHEMA {name} CASCADE")
        except DriverError as error:
            raise WrongAnswerError(f"{wrong}the schema {name} is left: drop it by hand: {error.detail}") from None


def _run(bench: Bench, statement: str) -> None:
    with bench.connected() as connection:  # `reading` is told to SQLite's alone
        connection.execute(sa.text(statement))
        connection.commit()


def _expect_schema(url: str, name: str) -> None:
    """Expect that connections to this URL are in the schema: else what is tried next would be the real ledger."""
    _, engine = open_engine(url)
    try:
        with engine.connect() as connection:
            found = connection.execute(sa.text("SELECT current_schema()")).scalar()
    except sa.exc.SQLAlchemyError as error:
        raise WrongAnswerError(f"a schema of our own can't be reached: {_reason(error)}") from None
    finally:
        engine.dispose()
    expect(found == name, "a pooler drops the search_path that is asked for: name the server itself for these checks")


def _reason(error: sa.exc.SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or type(error).__name__).strip().partition("\n")[0][:200]


@contextmanager
def _two(bench: Bench) -> Iterator[tuple[SqlLedger, SqlLedger]]:
    """Yield a ledger of our own, as two processes have it."""
    opened = list[SqlLedger]()
    with _scratch(bench) as where:
        try:
            for _ in range(2):
                opened.append(SqlLedger(where, clock=bench.clock, lock_timeout_s=5.0))
            yield opened[0], opened[1]
        except LedgerError as error:
            raise WrongAnswerError(str(error)) from None
        finally:
            for one in opened:
                one.close()


async def _schema(bench: Bench) -> None:
    with _two(bench) as (one, other):
        expect(one.id == other.id, "two connections see two ledgers")
        version = one.info().version
        expect(version == SCHEMA_VERSION, f"its schema is of version {version}, and {SCHEMA_VERSION} was made")


async def _leases(bench: Bench) -> None:
    with _two(bench) as (one, other):
        now = bench.clock.now()
        first = one.acquire("conformance", "one", 60.0, now)
        with suppress(LeaseHeld):
            other.acquire("conformance", "other", 60.0, now)
            raise WrongAnswerError("a lease that one holds is given to another, too: two would act on a node")
        one.drop(first)
        second = other.acquire("conformance", "other", 60.0, now)
        expect(second.token > first.token, f"the token of the next holder is {second.token}, after {first.token}")
        try:
            one.renew(first, 60.0, now)
        except (LeaseHeld, LedgerError):
            return
        raise WrongAnswerError("a lease that was dropped can be renewed")


async def _expiry(bench: Bench) -> None:
    with _two(bench) as (one, other):
        now = bench.clock.now()
        lease = one.acquire("conformance", "one", 0.5, now)
        expect(lease.expires_at - one.lease_time(now) <= timedelta(seconds=1), "a lease of 0.5 s lasts longer")
        await asyncio.sleep(1.0)
        try:
            other.acquire("conformance", "other", 60.0, bench.clock.now())
        except LeaseHeld:
            raise WrongAnswerError("a lease that has run out is held for good: its clock stands still") from None


async def _seen(bench: Bench) -> None:
    """One connection sees what the other commits, also after it has cached what it read."""
    with _two(bench) as (one, other):
        before = len(other.leases())
        one.acquire("conformance", "one", 60.0, bench.clock.now())
        expect(len(other.leases()) == before + 1, "what one connection has committed, another one does not see")
        run = f"run-{secrets.token_hex(4)}"
        one.start_run(run, "conformance", "", "", bench.clock.now())
        other.end_run(run, 0, "done", bench.clock.now())


_PORT: Final = "reconciler/model/ledger_ports.py"
_OURS: Final = "a ledger of its own beside the real one, which it takes away"
PROBES: Final[tuple[Probe[Bench], ...]] = (
    (Check("answers", "SQL", "nothing is done: what is not journaled is not started"), _answers),
    (Check("version", "PostgreSQL, Versioning Policy", "a statement of the ledger may be refused"), _version),
    (Check("primary", "PostgreSQL, hot standby", "no intent can be journaled, so nothing is started"), _primary),
    (Check("durable", "PostgreSQL, synchronous_commit and fsync; SQLite, journal_mode",
           "an action may be repeated after a power cut"), _durable),
    (Check("clock", f"{_PORT}: lease_time", "reports show other times than the leases went by"), _clock),
    (Check("session", "PostgreSQL, advisory locks", "two may migrate the ledger at once"), _session),
    (Check("write-schema", f"{_PORT}", "no ledger can be made or migrated", writes=_OURS), _schema),
    (Check("write-lease", f"{_PORT}: acquire, renew, drop", "two runners act on one node", writes=_OURS), _leases),
    (Check("write-expiry", f"{_PORT}: acquire", "a runner that died is waited for", writes=_OURS), _expiry),
    (Check("write-seen", f"{_PORT}", "runners plan on what is no longer true", writes=_OURS), _seen),
)  # fmt: skip


async def check_ledger(where: str, clock: SharedClock, *, writes: bool) -> ConformanceReport:
    """Try the checks one after another. Without `writes` nothing is changed. Raise LedgerError for no address."""
    name, engine = open_to_read(where)
    try:
        bench = Bench(where, name, engine, clock)
        found = await run_probes(PROBES, bench, writes=writes, first="answers")
    finally:
        engine.dispose()
    return ConformanceReport("ledger", name, found, {"database": engine.dialect.name})
