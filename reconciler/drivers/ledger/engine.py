"""Connections of the ledger to SQLite or PostgreSQL, transactions, and error messages.

SQLite runs in WAL with `synchronous=FULL`: an intent that was committed survives a power cut, or the next run might
repeat a destructive action. A write transaction begins with BEGIN IMMEDIATE, so that two runners can't both read
"free" and then both write "mine".
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import ConnectionPoolEntry

from reconciler.drivers.ledger import changes, migrations
from reconciler.drivers.ledger.backup import back_up
from reconciler.drivers.ledger.cache import Cache, CommitCount, Snapshot, Version
from reconciler.drivers.ledger.lease_time import SharedClock
from reconciler.drivers.ledger.live_leases import end_leases
from reconciler.drivers.ledger.schema import metadata
from reconciler.model.confined import Confined
from reconciler.model.errors import BadLedgerUrl, LedgerError, NoLedger
from reconciler.model.printable import HIDDEN, shown_url, without_secrets

T = TypeVar("T")

_NO_FILE = re.compile(r"postgres(ql)?(\+\w+)?:|.*\bpassword=")  # a URL or a DSN in another notation, no file
_READING = "ledger_reading"
_CACHE = "ledger_cache"  # in the info of a connection, which lives as long as that does
_VERSIONS: dict[str, tuple[str, Callable[[Any], Version]]] = {
    "sqlite": ("PRAGMA data_version", CommitCount),
    "postgresql": ("SELECT pg_current_snapshot()::text", Snapshot.of),
}
_AGAIN_S = 0.05  # wall clock: between two tries at a file that others are creating
_ADVISORY_LOCK = 0x7265636F  # "reco": one creator or migrator at a time

# Primary SQLite result codes, and what to do about each. The file's name goes in front.
_ADVICE = {
    sqlite3.SQLITE_BUSY: "is locked by another process; wait for it to end, or see who has it open with `fuser`",
    sqlite3.SQLITE_LOCKED: "is locked by another process; wait for it to end, or see who has it open with `fuser`",
    sqlite3.SQLITE_FULL: "can't be written, the disk is full; free some space and run again",
    sqlite3.SQLITE_IOERR: "can't be read or written; check the disk and its file system",
    sqlite3.SQLITE_READONLY: "is read-only; give this user write access to the file and its directory",
    sqlite3.SQLITE_PERM: "may not be opened by this user; give it read and write access",
    sqlite3.SQLITE_CANTOPEN: "can't be opened; check that its directory exists and that this user may write to it",
    sqlite3.SQLITE_CORRUPT: "is damaged; move it away and restore it from a backup (attempts and holds are in it)",
    sqlite3.SQLITE_NOTADB: "is not a ledger; name another file, or move this one away and restore a backup",
}


@dataclass(frozen=True, slots=True)
class Opening:
    """How a ledger is opened. `create`: make it when it is not there; else NoLedger is raised.

    `reading`: every write is refused. `migrate`: bring an older one to the current schema; else it stays as it is.

    `clock`: leases go by it; one that has not run out forbids a migration. None: nobody else uses the ledger.
    """

    create: bool = True
    reading: bool = False
    migrate: bool = True
    clock: SharedClock | None = None


class Database(Confined):
    """An open ledger database. `name`: for messages, without a password."""

    def __init__(self, where: str | Path, *, lock_timeout_s: float, opening: Opening = Opening()) -> None:
        self.name, self._engine = _engine(where, lock_timeout_s, create=opening.create)
        self._opening = opening
        self._reading = False
        self.fence: Callable[[sa.Connection], None] | None = None  # raises where a write is not allowed any more
        self._local = threading.local()
        self._question, self._parse = _VERSIONS[self._engine.dialect.name]
        try:
            self._upgrade(self.version())
            self._reading = opening.reading
        except BaseException:  # Ctrl-C too: the open connections have no other owner
            self.close()
            raise

    def close(self) -> None:
        self._engine.dispose()

    @property
    def dialect(self) -> str:
        """The kind of database: sqlite or postgresql."""
        return self._engine.dialect.name

    def _hide(self, text: str) -> str:
        """Hide secrets of the URL: drivers quote values that they reject (`invalid sslmode value: "..."`)."""
        url = self._engine.url
        values = [value for several in url.normalized_query.values() for value in several]
        hidden = {str(value) for value in (url.password, *values) if value and str(value) not in self.name}
        for secret in sorted(hidden, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return without_secrets(text)

    @property
    def writing(self) -> bool:
        """Say whether this thread is inside of `write`."""
        return getattr(self._local, "connection", None) is not None

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a snapshot; inside of `write`, the transaction that is being written."""
        outer: sa.Connection | None = getattr(self._local, "connection", None)
        if outer is not None:
            yield outer
            return
        with self._errors(), self._engine.connect() as connection:
            reader = connection.execution_options(**{_READING: True, **_snapshot(connection)})
            with reader.begin():
                yield reader

    def read_cached(self, cached: Callable[[Cache], T | None], read: Callable[[sa.Connection, Cache], T]) -> T:
        """Return what `cached` finds in a cache that is up to date, or else what `read` reads and caches.

        Inside of `write` the cache is bypassed.
        """
        outer: sa.Connection | None = getattr(self._local, "connection", None)
        if outer is not None:
            return read(outer, Cache())
        cache = self._current_cache()
        found = None if cache is None else cached(cache)
        if found is not None:
            return found
        with self.read() as connection:
            cache = connection.info.setdefault(_CACHE, Cache())
            version = self._parse(connection.exec_driver_sql(self._question).scalar_one())
            cache.advance_to(version, lambda some: changes.changes_by(connection.exec_driver_sql, some))
            return read(connection, cache)

    def _current_cache(self) -> Cache | None:
        """Return the cache, brought up to date. None: there is none, or the database fails, and `read` says how."""
        failures = self._engine.dialect.loaded_dbapi.Error
        try:
            borrowed = self._engine.raw_connection()
        except failures:
            return None
        cache: Cache | None = borrowed.info.get(_CACHE)
        try:
            if cache is not None:
                direct: Any = borrowed.driver_connection
                (cell,) = direct.execute(self._question).fetchone()
                cache.advance_to(self._parse(cell), lambda some: changes.changes_by(direct.execute, some))
            borrowed.close()
        except failures as error:
            borrowed.invalidate(error)
            return None
        return cache

    @contextmanager
    def write(self, tables: Sequence[sa.Table] | None = None, nodes: Sequence[str] = ()) -> Iterator[sa.Connection]:
        """Open a transaction. Inside of another one of the same thread, it is part of that.

        `tables`, `nodes`: what it changes, which is dropped from the cache; None = anything.
        """
        if self._reading:
            raise LedgerError(f"the ledger {self.name} was opened to be read, and is not written: this is a bug")
        outer: sa.Connection | None = getattr(self._local, "connection", None)
        if outer is not None:
            self._invalidate(outer, tables, nodes)
            yield outer
            return
        with self._errors(), self._engine.begin() as connection:
            self._local.connection = connection
            try:
                if self.fence is not None:
                    self.fence(connection)
                self._invalidate(connection, tables, nodes)
                yield connection
            finally:
                self._local.connection = None

    def _invalidate(self, connection: sa.Connection, tables: Sequence[sa.Table] | None, nodes: Sequence[str]) -> None:
        """Drop from the cache what the transaction will change: nothing is read from it before the transaction ends."""
        cache: Cache | None = connection.info.get(_CACHE)
        if cache is None:
            return
        cache.invalidate(tables, nodes)
        if connection.dialect.name == "postgresql":
            cache.own.add(int(connection.exec_driver_sql("SELECT pg_current_xact_id()::text").scalar_one()))

    def _upgrade(self, version: int | None) -> None:
        if version is None and not self._opening.create:
            raise NoLedger(self.name)
        if version == migrations.SCHEMA_VERSION or not self._opening.migrate:
            return
        with self.migration() as (connection, version):
            if version != migrations.SCHEMA_VERSION:  # another process may have been faster
                self.migrate_to(migrations.SCHEMA_VERSION, connection, version)

    @contextmanager
    def migration(self) -> Iterator[tuple[sa.Connection, int | None]]:
        """Open a transaction in which nobody else migrates, with the version that the ledger has; None: it is empty."""
        with self.write() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            yield connection, self._version(connection)

    def migrate_to(self, to: int, connection: sa.Connection, version: int | None, backup: Path | None = None) -> None:
        """Migrate in the transaction of `migration`. Raise LeaseHeld while somebody holds a lease.

        `backup`: a new file, written before anything of this is committed.
        """
        if version is not None and self._opening.clock is not None:  # first: whoever asks for one locks in this order
            end_leases(connection, self._opening.clock, self.name, version, to)
        if backup is not None:
            self._back_up(connection, backup)
        migrations.migrate(connection, version, to)

    def _back_up(self, connection: sa.Connection, target: Path) -> None:
        """Write a backup to a new file. Nobody writes to the ledger before the transaction of `migration` ends."""
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            ours = set(sa.inspect(connection).get_table_names()) & set(metadata.tables)
            connection.exec_driver_sql(f"LOCK TABLE {', '.join(sorted(ours))} IN SHARE ROW EXCLUSIVE MODE")
        back_up(self._engine.url, target, self._hide)

    def version(self) -> int | None:
        """Return the version of the schema; None for an empty database."""
        with self.read() as connection:
            return self._version(connection)

    def _version(self, connection: sa.Connection) -> int | None:
        try:
            version = migrations.read_version(connection)
        except ValueError as error:
            raise LedgerError(f"{self.name} is not a ledger that can be used: {error}") from error
        if version is not None and version > migrations.SCHEMA_VERSION:
            raise LedgerError(
                f"{self.name} was written by a newer version of the reconciler (ledger version {version}, "
                f"this one knows {migrations.SCHEMA_VERSION}); upgrade the reconciler, or take the ledger back "
                f"with the newer one: reconciler migrate --to {migrations.SCHEMA_VERSION}"
            )
        return version

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.IntegrityError, sa.exc.DataError):
            raise  # ours: the statements of this package are wrong
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            raise LedgerError(f"the ledger {self.name} {self._hide(_advice(error))}") from None


def _snapshot(connection: sa.Connection) -> dict[str, str]:
    """Return options for a consistent read. In PostgreSQL each statement would else see what was committed since."""
    return {"isolation_level": "REPEATABLE READ"} if connection.dialect.name == "postgresql" else {}


def _advice(error: sa.exc.DBAPIError | sa.exc.TimeoutError) -> str:
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        return _ADVICE.get(code, "failed") + f" (SQLite: {cause})"
    text = " ".join(str(cause or error).split())
    return f"does not work: {text}; check that the server is up and that this role may use the database"


def open_engine(where: str) -> tuple[str, sa.Engine]:
    """Return the name of a database that is there, for messages, and what reads from it."""
    name, engine = _engine(where, 10.0, create=False)
    return name, engine.execution_options(**{_READING: True})


def open_to_read(where: str) -> tuple[str, sa.Engine]:
    """Return the same as `open_engine`, of an SQLite file for one that leaves its journal mode as it is."""
    name, engine = open_engine(where)
    if engine.dialect.name != "sqlite":
        return name, engine
    engine.dispose()
    place = f"file:{quote(name)}?mode=ro"
    return name, sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True), poolclass=sa.NullPool)


def _engine(where: str | Path, lock_timeout_s: float, *, create: bool) -> tuple[str, sa.Engine]:
    text = str(where)
    if "://" not in text:
        if _NO_FILE.match(text):
            raise LedgerError("the ledger's URL can't be read; write postgresql://user@host/database or a file")
        return _sqlite(Path(text), lock_timeout_s, create=create)
    try:
        url = sa.make_url(text)
        # A second @ belongs to an unescaped password, whose end would be taken for the host, and be shown.
        readable = (url.port is None or 0 < url.port < 65536) and text.count("@") < 2
    except (sa.exc.ArgumentError, ValueError):  # which may quote what is a password
        readable = False
    if not readable:
        raise BadLedgerUrl(
            "the ledger's URL can't be read: its host or port is bad; write postgresql://user@host/database or a file, "
            "and %40 for an @ in a password"
        )
    if url.get_backend_name() == "sqlite":
        if not url.database:
            raise BadLedgerUrl("the ledger's URL names no file; write sqlite:///path/of/the/file, or the path alone")
        return _sqlite(Path(url.database), lock_timeout_s, create=create)
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise BadLedgerUrl(f"a ledger can't be kept in {url.get_backend_name()!r}; use a file or a postgresql:// URL")
    return _postgresql(url, lock_timeout_s)


def _sqlite(path: Path, lock_timeout_s: float, *, create: bool) -> tuple[str, sa.Engine]:
    if not create and not path.exists():
        raise NoLedger(str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"the ledger {path} can't be created: {error.strerror}: {error.filename}") from error
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": lock_timeout_s})

    def connected(connection: Any, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # pysqlite must not begin transactions of its own: `began` does
        _to_wal(connection, lock_timeout_s)
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    def began(connection: sa.Connection) -> None:
        reading = connection.get_execution_options().get(_READING)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", began)
    return str(path), engine


def _to_wal(connection: Any, within_s: float) -> None:
    """Set WAL mode, once per file: SQLite needs the file alone for it, and may refuse without waiting."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    ends = time.monotonic() + within_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends:
                raise
            time.sleep(_AGAIN_S)
        else:
            return


def _postgresql(url: sa.URL, lock_timeout_s: float) -> tuple[str, sa.Engine]:
    name = shown_url(url.render_as_string(hide_password=False))
    milliseconds = int(lock_timeout_s * 1000)
    # A runner that is stopped in the middle of a transaction must not keep its locks for ever.
    limits = {"lock_timeout": milliseconds, "statement_timeout": 120_000, "idle_in_transaction_session_timeout": 60_000}
    options = " ".join(f"-c {name}={limit}" for name, limit in limits.items())
    arguments = {"connect_timeout": 10, "options": options}
    try:
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args={key: value for key, value in arguments.items() if key not in url.query},
        )
    except ModuleNotFoundError as error:
        raise LedgerError(
            f"the ledger {name} needs the PostgreSQL driver: pip install '.[postgresql]' in the checkout"
        ) from error
    return name, engine
