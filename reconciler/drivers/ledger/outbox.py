"""The outbox: messages that no channel has taken yet, and what each channel was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import clean, instant, or_long_ago
from reconciler.drivers.ledger.schema import channels, outbox
from reconciler.drivers.ledger.writing import insert_new, upsert, write_journal
from reconciler.model.notices import Message, Severity, Unsent


class SqlOutbox(SqlRole):
    def channel_states(self) -> Mapping[str, str]:
        query = sa.select(channels.c.channel, channels.c.state).where(channels.c.fleet == self._fleet)
        with self._database.read() as connection:
            return {row.channel: row.state for row in connection.execute(query)}

    def save_notices(self, channel: str, state: str, messages: Sequence[Message], now: datetime) -> None:
        row = {"fleet": self._fleet, "channel": channel, "state": clean(state), "at": instant(now)}
        rows = [
            {
                "key": message.key,
                "fleet": self._fleet,
                "channel": channel,
                "thread": message.thread,
                "severity": message.severity.value,
                "over": int(message.over),
                "title": clean(message.title),
                "body": clean(message.body),
                "since": instant(now),
                "number": number,
                "tries": 0,
                "error": "",
                "next_at": None,
            }
            for number, message in enumerate(messages)
        ]
        with self._database.write([]) as connection:
            upsert(connection, channels, [row])
            if rows:
                insert_new(connection, outbox, rows)

    def unsent(self) -> Sequence[Unsent]:
        ours = sa.select(outbox).where(outbox.c.fleet == self._fleet)
        with self._database.read() as connection:
            rows = connection.execute(ours.order_by(outbox.c.since, outbox.c.number, outbox.c.key))
            return [_unsent(row) for row in rows]

    def message_sent(self, key: str, now: datetime) -> None:
        with self._database.write([]) as connection:
            row = connection.execute(sa.select(outbox).where(outbox.c.key == key)).one_or_none()
            if row is None:
                return
            connection.execute(outbox.delete().where(outbox.c.key == key))
            write_journal(connection, instant(now), "", "", "notice", detail=f"{row.channel} was told: {row.title}")

    def message_failed(self, key: str, error: str, next_at: datetime) -> None:
        values = {"tries": outbox.c.tries + 1, "error": clean(error), "next_at": instant(next_at)}
        with self._database.write([]) as connection:
            connection.execute(outbox.update().where(outbox.c.key == key).values(values))

    def drop_channels(self, kept: Sequence[str]) -> None:
        with self._database.write([]) as connection:
            for table in (channels, outbox):
                others = (table.c.fleet == self._fleet) & table.c.channel.not_in(list(kept))
                connection.execute(table.delete().where(others))


def _unsent(row: sa.Row[tuple[object, ...]]) -> Unsent:
    """Decode a message. What a damaged cell says of its time or severity costs nobody the message."""
    cells = row._mapping
    severity = Severity(cells["severity"]) if cells["severity"] in list(Severity) else Severity.CRITICAL
    message = Message(
        cells["key"], cells["channel"], cells["thread"], severity, bool(cells["over"]), cells["title"], cells["body"]
    )
    next_at = None if cells["next_at"] is None else or_long_ago(cells["next_at"])
    return Unsent(message, or_long_ago(cells["since"]), int(cells["tries"]), cells["error"], next_at)
