"""A migration of a ledger that a person asks for: what it would do, a backup before it, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from reconciler.drivers.ledger.engine import Database, Opening
from reconciler.drivers.ledger.lease_time import SharedClock
from reconciler.drivers.ledger.live_leases import live_leases
from reconciler.drivers.ledger.migrations import MIGRATIONS, SCHEMA_VERSION, obstacles
from reconciler.drivers.ledger.rows import instant, to_json, to_object
from reconciler.drivers.ledger.schema import is_event, journal
from reconciler.drivers.ledger.writing import write_journal
from reconciler.model.errors import LedgerError, NoLedger, Refused, UsageError
from reconciler.model.records import Lease

MIGRATED: Final = "migrate"  # event of the journal
_LOCK_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One version to the next. `adds`: what the newer one of both has. `obstacle`: why there is no way back, or ""."""

    before: int
    after: int
    adds: str
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The effects that a migration would have on a ledger.

    `own`: the version that this program works with. `leases`: those that forbid it. `backup`: the newest one that an
    earlier migration made of a ledger that is no newer than `to`; "" = none is known.
    """

    name: str
    database: str
    version: int
    to: int
    steps: tuple[MigrationStep, ...]
    leases: tuple[Lease, ...] = ()
    backup: str = ""
    own: int = SCHEMA_VERSION

    @property
    def obstacles(self) -> Sequence[str]:
        return [step.obstacle for step in self.steps if step.obstacle]


@dataclass(frozen=True, slots=True)
class Order:
    """A person's order to migrate a ledger. `backup`: file for a backup of before; None: make none."""

    to: int
    by: str
    at: datetime
    backup: Path | None


class LedgerMigrator:
    """A ledger of any version that this program knows, as it is. Use it in `opened`."""

    def __init__(self, database: Database, clock: SharedClock) -> None:
        self._database = database
        self._clock = clock

    @classmethod
    @contextmanager
    def opened(cls, where: str | Path, clock: SharedClock) -> Iterator[LedgerMigrator]:
        """Open a ledger that is there. Raise NoLedger where there is none."""
        opening = Opening(create=False, migrate=False, clock=clock)
        database = Database(where, lock_timeout_s=_LOCK_TIMEOUT_S, opening=opening)
        try:
            yield cls(database, clock)
        finally:
            database.close()

    def outlook(self, to: int) -> Outlook:
        """Say what a migration would do now. Raise UsageError for a version that no ledger has."""
        with self._database.read() as connection:
            return self._outlook(connection, self._database.version(), to)

    def migrate(self, order: Order) -> Outlook:
        """Back the ledger up and migrate it, all or nothing. Return what was done.

        Raise LeaseHeld while somebody holds a lease, and Refused where the way back would lose something.
        """
        with self._database.migration() as (connection, version):
            outlook = self._outlook(connection, version, order.to)
            if outlook.obstacles:
                raise Refused(refusal(outlook))
            if not outlook.steps:
                return outlook
            self._database.migrate_to(order.to, connection, version, order.backup)
            data = {"from": version, "to": order.to, "backup": str(order.backup or "")}
            detail = f"{order.by} brought the ledger from version {version} to {order.to}"
            with suppress(LedgerError):  # the journal's head is damaged: that is `audit verify`'s to tell
                write_journal(
                    connection, instant(order.at), "", "", MIGRATED, detail=detail, data=to_json(data)
                )  # fmt: skip
        return outlook

    def _outlook(self, connection: sa.Connection, version: int | None, to: int) -> Outlook:
        if version is None:
            raise NoLedger(self._database.name)
        if not 0 < to <= SCHEMA_VERSION:
            raise UsageError(f"no ledger has version {to}: this reconciler knows 1 to {SCHEMA_VERSION}")
        steps: list[MigrationStep] = []
        found = dict(obstacles(connection, version, to))
        for number in range(version, to):
            steps.append(MigrationStep(number, number + 1, MIGRATIONS[number].adds))
        for number in range(version, to, -1):
            steps.append(MigrationStep(number, number - 1, MIGRATIONS[number - 1].adds, found.get(number, "")))
        leases = tuple(live_leases(connection, self._clock)) if steps else ()
        backup = _backup(connection, to) if found else ""
        return Outlook(self._database.name, self._database.dialect, version, to, tuple(steps), leases, backup)


def refusal(outlook: Outlook) -> str:
    """Return why a ledger can't be taken back, and what to do."""
    backup = (
        f"restore the backup {outlook.backup}" if outlook.backup else "restore the backup of before that was upgraded"
    )
    return (
        f"the ledger {outlook.name} can't be taken from version {outlook.version} to {outlook.to} without loss: "
        f"{'; '.join(outlook.obstacles)}. Stop all services and {backup}"
    )


def _backup(connection: sa.Connection, to: int) -> str:
    query = sa.select(journal.c.data).where(is_event(journal, MIGRATED)).order_by(journal.c.id.desc())
    for (data,) in connection.execute(query):
        with suppress(ValueError, KeyError, TypeError):  # a cell that somebody changed names no backup
            found = to_object(data, "data of a migration")
            if int(found["from"]) <= to and found["backup"]:
                return str(found["backup"])
    return ""
