"""Keep the reports of searches of the fabric: in the journal, bound like all of its rows, each under its fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import instant
from reconciler.drivers.ledger.schema import journal
from reconciler.drivers.ledger.writing import write_journal
from reconciler.model.documents import DocumentError, dump, load
from reconciler.model.errors import LedgerError
from reconciler.model.fabric_report import FabricReport

_SEARCH = "search"  # event of the journal
_FABRIC = "fabric/"  # and the name of the fleet: whose rows these are


class SqlSearches(SqlRole):
    _last: tuple[int, FabricReport] | None = None  # the last report, by its row

    def save_search(self, report: FabricReport, told: str) -> int:
        whose, at = _FABRIC + report.fleet, instant(report.ended_at)
        with self._database.write([]) as connection:
            return write_journal(connection, at, report.run, whose, _SEARCH, detail=told, data=dump(report))

    def search(self, run: str) -> FabricReport | None:
        """Return the report of a search; None where the fleet has none by this id. LedgerError where it is damaged."""
        with self._database.read() as connection:
            row = connection.execute(self._searches().where(journal.c.run == run)).first()
        if row is None:
            return None
        try:
            return load(FabricReport, row.data)
        except DocumentError as error:
            raise LedgerError(f"the ledger {self._database.name} has a damaged search {run}: {error}") from None

    def last_searches(self, count: int) -> Sequence[str]:
        """Return the ids of the fleet's last searches, the newest first."""
        with self._database.read() as connection:
            return [row.run for row in connection.execute(self._searches().limit(count))]

    def last_search(self) -> FabricReport | None:
        with self._database.read() as connection:
            number = connection.execute(self._searches(journal.c.id).limit(1)).scalar()
            if number is None or (self._last is not None and self._last[0] == number):
                return self._last[1] if self._last is not None and number is not None else None
            text = connection.execute(sa.select(journal.c.data).where(journal.c.id == number)).scalar_one()
        try:
            self._last = number, load(FabricReport, text)
        except DocumentError:  # `audit verify` and `gate show` tell: a damaged report stops no pass and no search
            return None
        return self._last[1]

    def _searches(self, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
        """Return the query for the rows of the fleet, the newest first; of a ledger that sees all fleets, all rows."""
        whose = journal.c.node
        ours = whose == _FABRIC + self._fleet if self._fleet else sa.and_(whose >= _FABRIC, whose < "fabric0")
        rows = sa.select(*(columns or (journal.c.run, journal.c.data)))
        return rows.where(ours, journal.c.event == _SEARCH).order_by(journal.c.id.desc())
