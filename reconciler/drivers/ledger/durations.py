"""How long actions took, read back from the end of the journal: it costs what is asked for, and not what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import to_instant, to_json
from reconciler.drivers.ledger.schema import journal

MOST_DURATIONS = 20_000
_PAGE = 20_000  # rows of the journal that one query looks at
_ENDED = sa.case((journal.c.event == "outcome", journal.c.data == to_json("done")), else_=False)
_BACK = (
    sa.select(*(journal.c[name] for name in ("id", "event", "node", "action", "target", "at", "attempt")), _ENDED)
    .where(journal.c.id > sa.bindparam("after"), journal.c.id <= sa.bindparam("upto"))
    .where(journal.c.event.in_(("intent", "resume", "outcome")))
    .order_by(journal.c.id.desc())
)
_LAST = sa.select(sa.func.max(journal.c.id))
_FIRST = sa.select(sa.func.min(journal.c.id))

Duration = tuple[str, str, str, float]


class SqlDurations(SqlRole):
    def durations(self, limit: int = MOST_DURATIONS) -> Sequence[Duration]:
        if limit == MOST_DURATIONS:
            return self._whole_table(journal, lambda connection: _durations(connection, limit))
        with self._database.read() as connection:
            return _durations(connection, limit)


def _durations(connection: sa.Connection, limit: int) -> Sequence[Duration]:
    """Return the durations of the newest attempts that one run did: a resumed one includes the time between runs.

    What became of an attempt comes after its intent, and is read before it here.
    """
    ends: dict[int, str] = {}
    found: list[Duration] = []
    wanted = limit
    for number, event, node, action, target, at, attempt, done in _backwards(connection):
        if event == "intent":
            if number not in ends:
                continue
            wanted -= 1
            try:
                seconds = (to_instant(ends.pop(number), "end") - to_instant(at, "start")).total_seconds()
                found.append((node, action, target, seconds))
            except ValueError:
                pass  # the node's record reports the damaged time as malformed
            if not wanted:
                break
        elif event == "outcome" and done:
            ends[attempt] = at
        elif event == "resume":
            ends.pop(attempt, None)
    return found


def _backwards(connection: sa.Connection) -> Iterator[Any]:
    first, upto = connection.execute(_FIRST).scalar() or 0, connection.execute(_LAST).scalar() or 0
    while upto >= max(first, 1):
        yield from connection.execute(_BACK, {"after": upto - _PAGE, "upto": upto})
        upto -= _PAGE
