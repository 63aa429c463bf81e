"""A pass over a whole fleet is written with as many statements for many nodes as for few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FEW, MANY = 3, 700  # more than are named in one query


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect the statements of all engines; one for many rows counts once."""
    said: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        said.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", hear)
    try:
        yield said
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", hear)


def names(count: int) -> list[str]:
    return [f"n{number:04d}" for number in range(count)]


def test_identities_of_many_nodes_take_as_many_statements_as_those_of_few(ledger: SqlLedger) -> None:
    counts = []
    for nodes in (names(FEW), names(MANY)[FEW:]):
        with statements() as said:
            ledger.remember_identities({name: (f"S-{name}", f"u-{name}") for name in nodes}, T0)
        counts.append(len(said))
    assert counts[0] == counts[1] < 10, counts
    audit = ledger.audit()
    assert (audit.problem, audit.identities, audit.rows) == ("", MANY, MANY)
    assert [ledger.node(name).serial for name in names(MANY)] == [f"S-{name}" for name in names(MANY)]


def test_silences_of_many_nodes_take_as_many_statements_as_those_of_few(ledger: SqlLedger) -> None:
    counts = []
    for nodes in (names(FEW), names(MANY)[FEW:]):
        with statements() as said:
            ledger.note_silences([(name, "ssh", True) for name in nodes], T0)
        with statements() as lifted:
            ledger.note_silences([(name, "ssh", False) for name in nodes], T0 + MINUTE)
        counts.append((len(said), len(lifted)))
    assert counts[0] == counts[1], counts
    assert not any(record.silent_since for record in ledger.nodes(names(MANY)).values())


def test_each_identity_is_taken_as_far_as_it_was_read(ledger: SqlLedger) -> None:
    ledger.remember_identities({"a": ("S1", "u-1"), "b": ("S2", "u-2")}, T0)
    ledger.remember_identities({"b": ("S3", None), "c": ("S4", None), "a": ("S1", "u-9"), "d": (None, "u-4")}, T0)
    found = ledger.nodes(["a", "b", "c", "d"])
    assert [(record.serial, record.uuid) for record in found.values()] == [
        ("S1", "u-9"), ("S3", "u-2"), ("S4", None), (None, "u-4"),
    ]  # fmt: skip
    assert [entry.node for _, entry in ledger.journal(None, 4)] == ["b", "c", "a", "d"]
    assert ledger.audit().problem == ""


def test_a_silence_that_is_known_keeps_its_beginning_and_one_that_ended_begins_anew(ledger: SqlLedger) -> None:
    ledger.note_silences([("a", "ssh", True), ("b", "ssh", True)], T0)
    ledger.note_silences([("a", "ssh", True), ("b", "ssh", True), ("b", "ssh", False)], T0 + MINUTE)
    found = ledger.nodes(["a", "b"])
    assert [dict(record.silent_since) for record in found.values()] == [{"ssh": T0}, {"ssh": T0 + MINUTE}]


def test_nothing_is_written_of_nothing(ledger: SqlLedger) -> None:
    with statements() as said:
        ledger.remember_identities({}, T0)
        ledger.note_silences([], T0)
    assert said == []


def test_all_of_it_is_written_or_nothing(ledger: SqlLedger) -> None:
    with suppress(RuntimeError), ledger.batch():
        ledger.remember_identities({"a": ("S1", None), "b": ("S2", None)}, T0)
        raise RuntimeError
    assert ledger.audit().rows == 0
    assert ledger.node("a").serial is None
