"""Holds, until they are released."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import clean, instant, to_hold
from reconciler.drivers.ledger.schema import holds
from reconciler.drivers.ledger.writing import write_journal
from reconciler.model.records import Hold

_OPEN = sa.select(holds).where(holds.c.released_at.is_(None)).order_by(holds.c.id)


class SqlHolds(SqlRole):
    def hold(
        self, subject: str, reason: str, owner: str, until: datetime | None, now: datetime, *, position: str = ""
    ) -> Hold:
        end = None if until is None else instant(until)
        texts = {"subject": subject, "reason": clean(reason), "owner": clean(owner), "position": position}
        values = {**texts, "since": instant(now), "until": end}
        with self._database.write([holds], [subject]) as connection:
            key = connection.execute(holds.insert().values(values)).inserted_primary_key
            write_journal(connection, instant(now), "", subject, "hold", detail=f"{owner}: {reason}")
        assert key is not None
        return Hold(key[0], subject, reason, owner, now, until, position)

    def release(self, subject: str, owner: str, now: datetime) -> int:
        open_holds = (holds.c.subject == subject) & holds.c.released_at.is_(None)
        release = holds.update().where(open_holds).values(released_at=instant(now), released_by=owner)
        with self._database.write([holds], [subject]) as connection:
            released = connection.execute(release).rowcount
            if released:
                write_journal(connection, instant(now), "", subject, "release", detail=owner)
        return released

    def holds(self) -> Sequence[Hold]:
        return self._whole_table(holds, _open)


def _open(connection: sa.Connection) -> tuple[Hold, ...]:
    return tuple(to_hold(row)[0] for row in connection.execute(_OPEN))
