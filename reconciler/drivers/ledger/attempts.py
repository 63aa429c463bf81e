"""Attempts: intents that are journaled before an action begins, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import leases, schema
from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import instant, to_json, to_object
from reconciler.drivers.ledger.schema import journal, open_attempts, runs
from reconciler.drivers.ledger.writing import write_journal

# Built once: building a statement takes longer than running it.
_INTENT = sa.select(journal).where(journal.c.id == sa.bindparam("attempt"), journal.c.event == "intent")
_OPEN = open_attempts.insert()
_CLOSE = open_attempts.delete().where(open_attempts.c.attempt == sa.bindparam("ended"))


class SqlAttempts(SqlRole):
    def begin(
        self,
        run: str,
        node: str,
        action: str,
        target: str,
        cause: str,
        intent: Mapping[str, Any],
        token: int,
        now: datetime,
    ) -> int:
        with self._database.write([schema.journal], [node]) as connection:
            leases.check_token(connection, token, self._time(now))
            values = {"action": action, "target": target, "token": token, "data": to_json(intent)}
            attempt = write_journal(connection, instant(now), run, node, "intent", detail=cause, **values)
            connection.execute(_OPEN, {"attempt": attempt})
            return attempt

    def resume(self, attempt: int, run: str, token: int, now: datetime) -> None:
        with self._database.write([]) as connection:
            leases.check_token(connection, token, self._time(now))
            self._write_event(attempt, "resume", "null", f"continued by {run}", now)

    def amend(self, attempt: int, intent: Mapping[str, Any], now: datetime) -> None:
        self._write_event(attempt, "amendment", to_json(intent), "", now)

    def finish(self, attempt: int, outcome: str, detail: str, now: datetime) -> None:
        with self._database.write([]) as connection:
            self._write_event(attempt, "outcome", to_json(outcome), detail, now)
            connection.execute(_CLOSE, {"ended": attempt})

    def _write_event(self, attempt: int, event: str, data: str, detail: str, now: datetime) -> None:
        with self._database.write([]) as connection:
            intent = connection.execute(_INTENT, {"attempt": attempt}).one()
            of = {"action": intent.action, "target": intent.target, "attempt": attempt, "data": data, "detail": detail}
            with self._database.write([schema.journal], [intent.node]):
                write_journal(connection, instant(now), intent.run, intent.node, event, **of)

    def before(self, attempt: int) -> Mapping[str, Any]:
        this = journal.alias("this")
        same = (journal.c.node == this.c.node, journal.c.action == this.c.action, journal.c.target == this.c.target)
        query = sa.select(journal).join(this, sa.and_(this.c.id == attempt, *same))
        query = query.where(journal.c.event == "intent", journal.c.id < attempt).order_by(journal.c.id.desc()).limit(1)
        with self._database.read() as connection:
            found = connection.execute(query).all()
            return _with_amendments(connection, found)[found[0].id] if found else {}

    def erasures(self, node: str) -> Mapping[str, Mapping[str, Any]]:
        amendments = sa.select(journal.c.data).where(
            journal.c.node == node, journal.c.event == "amendment", journal.c.action == "erase"
        )
        found: dict[str, Mapping[str, Any]] = {}
        with self._database.read() as connection:
            for (data,) in connection.execute(amendments.order_by(journal.c.id)):
                intent = _intent(data)
                for record in (intent.get("erasure"), *dict(intent.get("erasures") or {}).values()):
                    if isinstance(record, dict) and "ended_at" in record:
                        found[str(record.get("serial"))] = record
        return found

    def unfinished(self) -> Sequence[tuple[int, str, str, str, Mapping[str, Any]]]:
        query = sa.select(journal).where(journal.c.id.in_(sa.select(open_attempts.c.attempt))).order_by(journal.c.id)
        if self._fleet:
            query = query.join(runs, runs.c.run == journal.c.run, isouter=True).where(self._ours(runs))
        with self._database.read() as connection:
            intents = connection.execute(query).all()
            merged = _with_amendments(connection, intents)
        return [(row.id, row.node, row.action, row.target, merged[row.id]) for row in intents]


def _with_amendments(connection: sa.Connection, intents: Sequence[sa.Row[Any]]) -> Mapping[int, dict[str, Any]]:
    """Return each intent by number, with its amendments merged into it."""
    amendments = sa.select(journal).where(
        journal.c.event == "amendment", journal.c.attempt.in_([row.id for row in intents])
    )
    merged: dict[int, dict[str, Any]] = {row.id: _intent(row.data) for row in intents}
    for row in connection.execute(amendments.order_by(journal.c.id)):
        merged[row.attempt].update(_intent(row.data))
    return merged


def _intent(cell: str) -> dict[str, Any]:
    """Decode an intent; {} for a damaged one, which its node's record reports as malformed."""
    try:
        return to_object(cell, "intent")
    except ValueError:
        return {}
