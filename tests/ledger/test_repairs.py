"""Orders to exchange parts, on SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from reconciler.app.repair import ticket_of
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.schema import VERSION
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.repairs import PlacedPart, Repair, RepairPhase
from reconciler.notify.tickets import Ticket, TrackerState, to_text
from tests.ledger.conftest import Open

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
OLD, NEW = PlacedPart("dimm", "DIMM_A3", "S1"), PlacedPart("dimm", "DIMM_A3", "S2")
ORDER = Repair(0, "n0", RepairPhase.OUT, "ann", T0, (OLD,), (OLD, PlacedPart("gpu", "1B:00", None)), "ECC")


def test_an_order_stays_until_its_parts_are_accepted(reopen: Open) -> None:
    first = reopen()
    assert first.node("n0").repair is None
    made = first.save_repair(ORDER, "ann begins", T0)
    assert made.id
    ledger = reopen()
    assert ledger.node("n0").repair == replace(ORDER, id=made.id, changed_at=T0)
    assert ledger.node("n1").repair is None
    assert ledger.retired_parts() == {}
    closed = replace(made, phase=RepairPhase.CLOSED, exchanged=((OLD, NEW),))
    assert first.save_repair(closed, "accepted", T0 + HOUR).changed_at == T0 + HOUR
    assert ledger.node("n0").repair is None
    assert ledger.node("n0").released_at == T0 + HOUR, "as for a hold: what was seen before is judged anew"
    assert ledger.node("n0").holds == ()
    assert [one.phase for one in ledger.repairs()] == [RepairPhase.CLOSED]
    assert {serial: (one.node, one.at) for serial, one in ledger.retired_parts().items()} == {"S1": ("n0", T0 + HOUR)}
    told = [entry.detail for _, entry in ledger.journal(None, 50) if entry.event == "repair"]
    assert told == ["ann begins", "accepted"]
    assert not ledger.audit().problem


def test_a_repair_that_an_older_version_closed_counts_as_the_release_that_it_is(
    ledger: SqlLedger, reopen: Open
) -> None:
    """Those versions wrote a row of the repair, and none of a release."""
    token = ledger.acquire("fleet", "me", 1e9, T0).token

    def fails(at: datetime) -> None:
        ledger.finish(ledger.begin("run", "n0", "run_gate", "", "", {}, token, at), "permanent", "", at)

    ledger.hold("n0", "looked at", "ann", None, T0)
    ledger.release("n0", "ann", T0)
    fails(T0)
    made = ledger.save_repair(ORDER, "ann begins", T0 + HOUR)
    ledger.save_repair(replace(made, phase=RepairPhase.CLOSED, exchanged=((OLD, NEW),)), "accepted", T0 + HOUR)
    with ledger._database.write([]) as connection:
        last = "(SELECT MAX(id) FROM journal WHERE event = 'release')"
        connection.exec_driver_sql(f"DELETE FROM journal WHERE id = {last}")
    record = reopen().node("n0")
    assert record.is_seen_to(record.attempts[0])
    fails(T0 - HOUR)  # by a clock that was set back
    record = ledger.node("n0")
    assert [record.is_seen_to(one) for one in record.attempts] == [True, False]


def test_a_part_that_is_put_back_and_accepted_is_not_retired_any_more(ledger: SqlLedger) -> None:
    for old, new in ((OLD, NEW), (NEW, OLD)):
        order = replace(ORDER, phase=RepairPhase.CLOSED, exchanged=((old, new),))
        ledger.save_repair(order, "accepted", T0)
    assert set(ledger.retired_parts()) == {"S2"}


def test_an_order_that_is_damaged_leaves_its_node_alone(ledger: SqlLedger) -> None:
    """Pitfall M6: a damaged row must never free a node."""
    ledger.save_repair(ORDER, "x", T0)
    with ledger._database.write([]) as connection:
        connection.exec_driver_sql("UPDATE repairs SET document = '{}'")
    ledger.hold("n0", "so that it is read anew", "ann", None, T0)
    assert "repair 1 is damaged" in ledger.node("n0").malformed


def test_an_older_ledger_gets_the_table(where: str) -> None:
    ledger = SqlLedger(where)
    with ledger._database.write([]) as connection:
        for statement in ("DROP TABLE repairs", "DROP TABLE tickets", "ALTER TABLE outbox DROP COLUMN about"):
            connection.exec_driver_sql(statement)
        connection.execute(sa.text("UPDATE meta SET value = '9' WHERE key = :key"), {"key": VERSION})
    ledger.close()
    newer = SqlLedger(where)
    try:
        assert newer.save_repair(ORDER, "x", T0).id
        assert newer.unsent() == []
    finally:
        newer.close()


def test_a_ledger_in_memory_keeps_orders_as_the_others_do() -> None:
    ledger = MemoryLedger("memory")
    made = ledger.save_repair(ORDER, "x", T0)
    assert ledger.node("n0").repair == made
    ledger.save_repair(replace(made, phase=RepairPhase.CLOSED, exchanged=((OLD, NEW),)), "y", T0 + HOUR)
    assert (ledger.node("n0").repair, ledger.node("n0").released_at) == (None, T0 + HOUR)
    assert set(ledger.retired_parts()) == {"S1"}


def test_the_open_ticket_of_a_node_is_found(ledger: SqlLedger) -> None:
    tickets = {str(n): Ticket(f"t{n}", node, OLD, T0, over_at=over) for n, (node, over) in enumerate(STATES)}
    ledger.save_notices("ticket/ops", to_text(TrackerState(tickets)), [], T0)
    for thread in ("t0", "t1", "t2"):
        ledger.ticket_begun("ops", thread, T0)
    assert ticket_of(ledger, "n0") == "", "nobody knows yet whether it was opened"
    for thread in ("t0", "t1", "t2"):
        ledger.ticket_opened("ops", thread, "7", f"https://x/{thread}", T0)
    assert ticket_of(ledger, "n0") == "https://x/t0"
    ledger.ticket_gone("ops", "t0", T0)
    assert ledger.ticket("ops", "t0") is None


STATES = (("n0", None), ("n0", T0), ("n1", None))
