"""Messages that wait to be sent, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.schema import VERSION
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.errors import LeaseHeld
from reconciler.model.notices import Message, Severity, Unsent
from tests.ledger.conftest import Open

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def message(key: str, channel: str = "oncall", body: str = "GPU 3 is gone") -> Message:
    return Message(key, channel, "thread-1", Severity.CRITICAL, False, "demo: gpu-001 needs a repair", body)


def test_a_message_stays_until_it_was_sent_and_who_was_told_is_on_record(reopen: Open) -> None:
    reopen().save_notices("oncall", "{}", [message("b"), message("a")], T0)
    ledger = reopen()
    ledger.save_notices("oncall", '{"number": 2}', [message("a", body="another text of the same key")], T0 + MINUTE)
    assert ledger.unsent() == [Unsent(message("b"), T0), Unsent(message("a"), T0)]
    assert ledger.channel_states() == {"oncall": '{"number": 2}'}
    ledger.message_failed("b", "the server is away\0", T0 + 5 * MINUTE)
    ledger.message_failed("b", "the server is still away", T0 + 9 * MINUTE)
    ledger.message_sent("a", T0 + MINUTE)
    ledger.message_sent("a", T0 + MINUTE)  # by a leader that was cut off, a second time
    assert ledger.unsent() == [Unsent(message("b"), T0, 2, "the server is still away", T0 + 9 * MINUTE)]
    told = [entry.detail for _, entry in ledger.journal(None, 50) if entry.event == "notice"]
    assert told == ["oncall was told: demo: gpu-001 needs a repair"]
    assert not ledger.audit().problem


def test_a_channel_that_left_the_spec_is_forgotten(ledger: SqlLedger) -> None:
    for name in ("oncall", "chat"):
        ledger.save_notices(name, "{}", [message(name, name)], T0)
    ledger.drop_channels(["chat"])
    assert list(ledger.channel_states()) == ["chat"]
    assert [one.message.key for one in ledger.unsent()] == ["chat"]


def test_fleets_that_share_a_ledger_have_their_own_channels(where: str) -> None:
    one, other = SqlLedger(where, fleet="one"), SqlLedger(where, fleet="other")
    try:
        one.save_notices("oncall", "1", [message("a")], T0)
        other.save_notices("oncall", "2", [message("b")], T0)
        assert one.channel_states() == {"oncall": "1"}
        assert [found.message.key for found in other.unsent()] == ["b"]
        one.drop_channels([])
        assert [found.message.key for found in other.unsent()] == ["b"]
    finally:
        one.close()
        other.close()


def test_a_leader_that_lost_its_lease_puts_nothing_into_the_outbox(reopen: Open) -> None:
    first, second = reopen(), reopen()
    lease = first.acquire("demo", "first", 60, T0)
    first.fence(lease)
    first.save_notices("oncall", "1", [], T0)
    second.take_away(lease.token, "ops", T0)
    second.acquire("demo", "second", 60, T0 + MINUTE)
    with pytest.raises(LeaseHeld):
        first.save_notices("oncall", "2", [message("a")], T0 + MINUTE)
    with pytest.raises(LeaseHeld):
        first.message_sent("a", T0 + MINUTE)
    assert second.channel_states() == {"oncall": "1"}


def test_a_damaged_row_costs_nobody_its_message(ledger: SqlLedger) -> None:
    ledger.save_notices("oncall", "{}", [message("a")], T0)
    with ledger._database.write([]) as connection:
        connection.exec_driver_sql("UPDATE outbox SET severity = 'x', since = 'y', next_at = 'z'")
    (found,) = ledger.unsent()
    assert found.message == message("a")


def test_an_older_ledger_gets_an_outbox(where: str) -> None:
    ledger = SqlLedger(where)
    with ledger._database.write([]) as connection:
        for statement in ("DROP TABLE outbox", "DROP TABLE channels"):
            connection.exec_driver_sql(statement)
        connection.execute(sa.text("UPDATE meta SET value = '8' WHERE key = :key"), {"key": VERSION})
    ledger.close()
    newer = SqlLedger(where)
    try:
        newer.save_notices("oncall", "{}", [message("a")], T0)
        assert [one.message for one in newer.unsent()] == [message("a")]
    finally:
        newer.close()


def test_a_ledger_in_memory_keeps_messages_as_the_others_do() -> None:
    ledger = MemoryLedger("memory")
    ledger.save_notices("oncall", "1", [message("b"), message("a")], T0)
    ledger.save_notices("oncall", "2", [message("a")], T0 + MINUTE)
    ledger.save_notices("chat", "3", [message("c", "chat")], T0)
    ledger.message_failed("b", "away", T0 + MINUTE)
    ledger.message_sent("a", T0)
    ledger.message_sent("a", T0)
    ledger.drop_channels(["oncall"])
    assert ledger.unsent() == [Unsent(message("b"), T0, 1, "away", T0 + MINUTE)]
    assert ledger.channel_states() == {"oncall": "2"}
