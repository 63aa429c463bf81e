"""`SqlLedger`: model.ledger_ports.Ledger over SQL, one base class per role."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger import audit
from reconciler.drivers.ledger.attempts import SqlAttempts
from reconciler.drivers.ledger.attestations import SqlAttestations
from reconciler.drivers.ledger.day_sums import SqlDaySums
from reconciler.drivers.ledger.durations import SqlDurations
from reconciler.drivers.ledger.engine import Database, Opening
from reconciler.drivers.ledger.episodes import SqlDrift
from reconciler.drivers.ledger.holds import SqlHolds
from reconciler.drivers.ledger.installs import SqlInstalls
from reconciler.drivers.ledger.lease_time import SharedClock
from reconciler.drivers.ledger.leases import SqlLeases
from reconciler.drivers.ledger.node_history import SqlHistory
from reconciler.drivers.ledger.nodes import SqlNodes
from reconciler.drivers.ledger.outbox import SqlOutbox
from reconciler.drivers.ledger.pruning import SqlPruning
from reconciler.drivers.ledger.repairs import SqlRepairs
from reconciler.drivers.ledger.results import SqlResults
from reconciler.drivers.ledger.rollouts import SqlRollouts
from reconciler.drivers.ledger.runs import SqlRuns
from reconciler.drivers.ledger.schema import LEDGER_ID, VERSION, meta, metadata
from reconciler.drivers.ledger.searches import SqlSearches
from reconciler.drivers.ledger.status_intervals import SqlStatuses
from reconciler.model.errors import LedgerError
from reconciler.model.records import LedgerPlace

_SIZES: Final = {
    "postgresql": "SELECT pg_database_size(current_database())",
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
}


@dataclass(frozen=True, slots=True)
class Info:
    """A summary of a ledger and its size."""

    id: str
    name: str  # file or URL, without password
    database: str  # sqlite | postgresql
    version: int  # of the schema
    bytes: int
    rows: Mapping[str, int]  # by table


class SqlLedger(
    SqlNodes,
    SqlAttestations,
    SqlDrift,
    SqlStatuses,
    SqlAttempts,
    SqlInstalls,
    SqlHolds,
    SqlRollouts,
    SqlDurations,
    SqlDaySums,
    SqlLeases,
    SqlRuns,
    SqlHistory,
    SqlResults,
    SqlSearches,
    SqlOutbox,
    SqlRepairs,
    SqlPruning,
):
    """The ledger in an SQLite file or a PostgreSQL database. Close it after use."""

    def __init__(
        self,
        where: str | Path,
        *,
        fleet: str = "",
        lock_timeout_s: float = 10.0,
        clock: SharedClock | None = None,
        create: bool = True,
        reading: bool = False,
    ) -> None:
        """Open the ledger, and create or migrate it where needed. LedgerError when that can't be done.

        LeaseHeld when it is older and a process of the older version holds a lease.

        `where`: path of an SQLite file, created with its directory when absent, or a postgresql:// URL.

        `create`: False raises NoLedger for one that is absent, or for an empty database. `reading`: refuse writes.

        `fleet`: whose nodes, attempts and rollouts these are, where several fleets share a ledger. A node belongs to
        the fleet that met it first, until that forgets it. "" sees all.

        `clock`: real or scaled; leases then go by a clock that all runners share, see lease_time. None: by the `now`
        of each call, as in virtual time.
        """
        opening = Opening(create=create, reading=reading, clock=clock)
        database = Database(where, lock_timeout_s=lock_timeout_s, opening=opening)
        super().__init__(database, fleet, clock)
        self._place: LedgerPlace | None = None  # None: that of the database
        with self._database.read() as connection:
            query = sa.select(meta.c.value).where(meta.c.key == LEDGER_ID)
            ledger_id = connection.execute(query).scalar_one_or_none()
        if not ledger_id:
            self.close()
            raise LedgerError(f"the ledger {self._database.name} has lost its id; restore it from a backup")
        self._id: str = ledger_id

    @property
    def id(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        """File or URL, without password."""
        return self._database.name

    @property
    def place(self) -> LedgerPlace:
        return self._place or LedgerPlace(self._database.dialect, self.name)

    @classmethod
    def not_there(cls, name: str, scratch: Path, *, fleet: str = "", clock: SharedClock | None = None) -> SqlLedger:
        """Return an empty ledger in the directory `scratch`, in place of one that nobody has made at `name` yet."""
        found = cls(scratch / "ledger.sqlite", fleet=fleet, clock=clock)
        found._place = LedgerPlace("none", name)
        return found

    def close(self) -> None:
        self._database.close()

    def batch(self) -> AbstractContextManager[Any]:
        return self._database.write([])

    def audit(self, noted: str = "", now: datetime | None = None) -> audit.Audit:
        """Say whether the journal is as it was written. `noted`: its head as somebody noted it before, or ""."""
        with self._database.read() as connection:
            return audit.verify(connection, noted, now)

    def size(self) -> int:
        """Return the size of the database in bytes."""
        query = _SIZES[self._database.dialect]
        with self._database.read() as connection:
            return int(connection.execute(sa.text(query)).scalar_one())

    def info(self) -> Info:
        """Return the ledger's id, version, size and row counts."""
        with self._database.read() as connection:
            known = {row.key: row.value for row in connection.execute(sa.select(meta.c.key, meta.c.value))}
            tables = [table for table in metadata.sorted_tables if table is not meta]
            rows = {t.name: connection.execute(sa.select(sa.func.count()).select_from(t)).scalar_one() for t in tables}
        return Info(
            known[LEDGER_ID],
            self.name,
            self._database.dialect,
            int(known[VERSION]),
            self.size(),
            dict(sorted(rows.items())),
        )
