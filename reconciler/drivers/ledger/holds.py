"""Holds, until they are released."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.episodes import MANY
from reconciler.drivers.ledger.rows import clean, instant, to_hold, to_instant
from reconciler.drivers.ledger.schema import holds, journal, silences
from reconciler.drivers.ledger.writing import write_journal
from reconciler.model.records import RELEASE, Hold, after, events_since

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
        with self._database.write([holds, journal], [subject]) as connection:
            values = {"released_at": end_of_hold(connection, subject, now), "released_by": owner}
            release = holds.update().where(open_holds).values(values)
            released = connection.execute(release).rowcount
            if released:
                write_journal(connection, instant(now), "", subject, RELEASE, detail=owner)
        return released

    def holds(self) -> Sequence[Hold]:
        return self._whole_table(holds, _open)


def end_of_hold(connection: sa.Connection, subject: str, now: datetime) -> str:
    """Return when a hold ends: after all that was seen of the node, also where the clock was set back since."""
    query = sa.select(silences.c.source, silences.c.since).where(silences.c.node == subject)
    since = {source: to_instant(at, f"begin of {source}") for source, at in connection.execute(query)}
    return instant(after(now, *events_since(since)))


def released(connection: sa.Connection, names: Collection[str]) -> Mapping[str, datetime]:
    """Return when a hold of these nodes was last lifted."""
    if not names:
        return {}
    query = sa.select(holds.c.subject, sa.func.max(holds.c.released_at)).group_by(holds.c.subject)
    if len(names) <= MANY:
        query = query.where(holds.c.subject.in_(names))
    rows = connection.execute(query.where(holds.c.released_at.is_not(None)))
    return {name: to_instant(at, "end of a hold") for name, at in rows}


def _open(connection: sa.Connection) -> tuple[Hold, ...]:
    return tuple(to_hold(row)[0] for row in connection.execute(_OPEN))
