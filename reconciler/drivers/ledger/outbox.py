"""The outbox: messages that no channel has taken yet, and what each channel was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import clean, from_json, instant, or_long_ago, to_json
from reconciler.drivers.ledger.schema import channels, outbox, tickets
from reconciler.drivers.ledger.writing import insert_new, upsert, write_journal
from reconciler.model.notices import Message, Severity, Unsent
from reconciler.model.tickets import TicketPlace

ABOUT = 100  # notices of one message that are kept


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
                "about": to_json(list(message.about[:ABOUT])),
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

    # --- tickets ---

    def ticket(self, tracker: str, thread: str) -> TicketPlace | None:
        with self._database.read() as connection:
            row = connection.execute(sa.select(tickets).where(self._at(tracker, thread))).one_or_none()
        return None if row is None else TicketPlace(row.number, row.url, or_long_ago(row.begun_at))

    def tickets(self) -> Mapping[str, TicketPlace]:
        query = sa.select(tickets).where(tickets.c.fleet == self._fleet, tickets.c.number != "")
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return {row.thread: TicketPlace(row.number, row.url, or_long_ago(row.begun_at)) for row in rows}

    def ticket_begun(self, tracker: str, thread: str, now: datetime) -> None:
        with self._database.write([]) as connection:
            upsert(connection, tickets, [self._ticket(tracker, thread, now)])

    def ticket_opened(self, tracker: str, thread: str, number: str, url: str, now: datetime) -> None:
        row = self._ticket(tracker, thread, now) | {"number": clean(number), "url": clean(url)}
        with self._database.write([]) as connection:
            upsert(connection, tickets, [row])
            write_journal(connection, instant(now), "", "", "ticket", detail=f"{tracker} has ticket {number}: {url}")

    def ticket_gone(self, tracker: str, thread: str, now: datetime) -> None:
        with self._database.write([]) as connection:
            connection.execute(tickets.delete().where(self._at(tracker, thread)))
            write_journal(connection, instant(now), "", "", "ticket", detail=f"{tracker} has no such ticket any more")

    def _at(self, tracker: str, thread: str) -> sa.ColumnElement[bool]:
        own = tickets.c.fleet == self._fleet
        return own & (tickets.c.tracker == tracker) & (tickets.c.thread == thread)

    def _ticket(self, tracker: str, thread: str, now: datetime) -> dict[str, str]:
        key = {"fleet": self._fleet, "tracker": tracker, "thread": thread}
        return key | {"number": "", "url": "", "begun_at": instant(now)}

    def drop_channels(self, kept: Sequence[str]) -> None:
        with self._database.write([]) as connection:
            for table in (channels, outbox):
                others = (table.c.fleet == self._fleet) & table.c.channel.not_in(list(kept))
                connection.execute(table.delete().where(others))


def _about(cell: str) -> tuple[str, ...]:
    """Return the notices of a message; none where a damaged cell does not tell them."""
    try:
        return tuple(map(str, from_json(cell, "notices of a message")))
    except (ValueError, TypeError):
        return ()


def _unsent(row: sa.Row[tuple[object, ...]]) -> Unsent:
    """Decode a message. What a damaged cell says of its time or severity costs nobody the message."""
    cells = row._mapping
    severity = Severity(cells["severity"]) if cells["severity"] in list(Severity) else Severity.CRITICAL
    message = Message(
        cells["key"], cells["channel"], cells["thread"], severity, bool(cells["over"]), cells["title"], cells["body"],
        _about(cells["about"]),
    )  # fmt: skip
    next_at = None if cells["next_at"] is None else or_long_ago(cells["next_at"])
    return Unsent(message, or_long_ago(cells["since"]), int(cells["tries"]), cells["error"], next_at)
