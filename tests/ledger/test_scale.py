"""Questions about the past are answered from indices: what they cost goes by what they ask for, not by what is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger, durations, node_history
from reconciler.health.ladder import REMEDIATION
from reconciler.model.errors import LeaseHeld
from reconciler.model.records import FLEET, ISOLATED
from tests.bench import ledger_rows
from tests.ledger.conftest import Open
from tests.ledger.test_audit import tamper
from tests.ledger.test_ledger import token

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
END = ledger_rows.BEGIN + 9 * DAY
LARGE = re.compile(
    r"SCAN (journal|drift|spells|intent|outcome|recent)\b|SEARCH spells USING INDEX spells_node \(fleet=\?\)"
)


@contextmanager
def statements(ledger: SqlLedger) -> Iterator[list[tuple[str, Any]]]:
    """Collect what is asked of the database."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    engine = ledger._database._engine
    sa.event.listen(engine, "before_cursor_execute", note)
    yield asked
    sa.event.remove(engine, "before_cursor_execute", note)


def _lose_a_lease(ledger: SqlLedger) -> None:
    with pytest.raises(LeaseHeld):
        ledger.begin("r", "gpu-00001", "mark", "", "", {}, 99, END)


QUESTIONS: Mapping[str, Callable[[SqlLedger], object]] = {
    "history": lambda ledger: ledger.history("gpu-00001", 100, pool="training-1"),
    "histories": lambda ledger: ledger.histories(["gpu-00001", "gpu-00002", FLEET], 20),
    "report": lambda ledger: ledger.past(END - DAY, END),
    "lemons": lambda ledger: ledger.illness(END - DAY, END),
    "unfinished": lambda ledger: ledger.unfinished(),
    "durations": lambda ledger: ledger.durations(100),
    "pass": lambda ledger: ledger.record_drift("r", [], [f"gpu-{at:05d}" for at in range(600)], END),
    "lease": _lose_a_lease,
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlLedger]:
    ledger = SqlLedger(tmp_path_factory.mktemp("filled") / "ledger.sqlite", fleet=ledger_rows.FLEET)
    ledger_rows.fill(ledger._database._engine, 10_000, [f"gpu-{at:05d}" for at in range(50)], 9)
    yield ledger
    ledger.close()


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_reads_a_whole_table_of_the_past(filled: SqlLedger, name: str) -> None:
    with statements(filled) as asked:
        QUESTIONS[name](filled)
    plans = []
    with filled._database._engine.connect() as connection:
        for statement, parameters in asked:
            if statement.lstrip().startswith("SELECT"):
                plans += [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert plans
    assert [plan for plan in plans if LARGE.search(plan)] == [], plans


def test_what_is_filled_in_is_a_ledger(filled: SqlLedger) -> None:
    found = filled.audit()
    assert (found.problem, found.detail) == ("", "")
    assert found.rows > 9_000
    past = filled.past(END - DAY, END)
    assert len(past.status_intervals) > 50
    assert past.damaged == 0
    assert {one.outcome for some in past.attempts.values() for one in some} == {"done"}
    assert filled.unfinished() == []


def test_many_histories_are_those_of_each(ledger: SqlLedger) -> None:
    for number in range(5):
        for node in ("a", "b", "pool/train", FLEET):
            ledger.hold(node, f"reason {number}", "ops", None, T0 + timedelta(minutes=number))
    found = ledger.histories(["a", "b", "nobody", FLEET], 3)
    assert sorted(found) == sorted(["a", "b", FLEET])
    for node, entries in found.items():
        assert entries == list(ledger.history(node, 3))
        assert [entry.at for entry in entries] == [T0 + timedelta(minutes=at) for at in (2, 3, 4)]
    last = ledger.history("a", 3, pool="train")
    assert {(entry.node, entry.at) for entry in last} == {
        (node, T0 + timedelta(minutes=4)) for node in ("a", "pool/train", FLEET)
    }


@pytest.mark.parametrize("page", [2, 20_000])
def test_durations_are_of_the_newest_attempts_that_one_run_did(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(durations, "_PAGE", page)
    for minutes, outcome in ((1, "done"), (2, "transient"), (3, "done"), (4, "done"), (5, "")):
        number = ledger.begin("r", "a", "mark", str(minutes), "", {}, token(ledger), T0)
        ledger.note("a", "told", "something between", T0)
        if minutes == 3:
            ledger.resume(number, "s", token(ledger), T0)
        if outcome:
            ledger.finish(number, outcome, "", T0 + timedelta(minutes=minutes))
    assert ledger.durations() == [("a", "mark", "4", 240.0), ("a", "mark", "1", 60.0)]
    assert ledger.durations(1) == [("a", "mark", "4", 240.0)]


def test_no_more_of_the_journal_is_read_than_durations_are_asked_for(filled: SqlLedger) -> None:
    with statements(filled) as asked:
        filled.durations(1_000)
    assert len([one for one, _ in asked if "journal" in one]) == 3, "the first, the last, and one page"


def attempt(ledger: SqlLedger, action: str, cause: str, outcome: str, at: datetime = T0) -> int:
    number = ledger.begin("r", "a", action, "", cause, {}, token(ledger), at)
    if outcome:
        ledger.finish(number, outcome, "", at + timedelta(minutes=1))
    return number


def test_lemons_are_counted_from_a_part_of_the_period(ledger: SqlLedger) -> None:
    counted = [("mark", f"{ISOLATED}health.xid_79", "done"), ("soft_restart", REMEDIATION, ""),
               ("run_gate", "gate", "permanent")]  # fmt: skip
    for one in [*counted, ("mark", "image.version", "done"), ("run_gate", "gate", "done"), ("drain", "x", "done")]:
        attempt(ledger, *one)
    attempt(ledger, "soft_restart", REMEDIATION, "done", T0 - 2 * DAY)
    items = [("a", "health.xid_79", "drifted", 0, 1), ("a", "bios.X", "drifted", 0, 1)]
    ledger.record_drift("r", items, ["a"], T0)
    found = ledger.illness(T0 - DAY, T0 + DAY)
    assert [(one.action, one.cause, one.outcome) for one in found.attempts["a"]] == [
        (action, cause, outcome or "started") for action, cause, outcome in counted
    ]
    assert [one.path for one in found.episodes] == ["health.xid_79"]


def test_an_attempt_is_open_until_its_outcome_and_an_older_ledger_is_searched_for_them(
    ledger: SqlLedger, reopen: Open, where: str
) -> None:
    attempt(ledger, "mark", "", "done")
    left = attempt(ledger, "drain", "", "")
    assert [number for number, *_ in ledger.unfinished()] == [left]
    tamper(where, "DROP TABLE open_attempts", "DROP INDEX journal_intents", "DROP INDEX journal_outcomes",
           "DROP INDEX journal_leases", "DROP INDEX drift_ended",
           "UPDATE meta SET value = '10' WHERE key = 'schema_version'")  # fmt: skip
    again = reopen()
    assert [number for number, *_ in again.unfinished()] == [left]
    assert again.audit().problem == ""
    again.finish(left, "done", "", T0)
    assert again.unfinished() == []
    assert again.audit().problem == ""


@pytest.mark.parametrize(
    ("statement", "row", "told"),
    [
        ("DELETE FROM open_attempts", 3, "attempt 3 on node a has no outcome, and is not listed as open"),
        ("INSERT INTO open_attempts VALUES (1)", None, "attempt 1 is listed as open, and is not"),
    ],
)
def test_whoever_hides_an_attempt_that_did_not_end_is_found(
    ledger: SqlLedger, where: str, statement: str, row: int | None, told: str
) -> None:
    attempt(ledger, "mark", "", "done")
    attempt(ledger, "drain", "", "")
    tamper(where, statement)
    found = ledger.audit()
    assert (found.row, found.problem, found.detail) == (row, "attempt", told)


def test_the_runs_of_a_long_journal_are_read_in_pages(filled: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases take tens of thousands of values in one statement at most: 32,766 in SQLite, 65,535 in PostgreSQL."""
    whole = filled.journal(None, 3000)
    assert len({entry.run for _, entry in whole}) > 2
    monkeypatch.setattr(node_history, "_PAGE", 2)
    with statements(filled) as asked:
        assert filled.journal(None, 3000) == whole
    given = [parameters for statement, parameters in asked if " runs" in statement]
    assert len(given) > 1
    assert all(len(one) <= 2 for one in given)


def test_histories_read_no_attempt_again_that_they_have(filled: SqlLedger) -> None:
    """Most outcomes stand on the page of their intent: only those of others are looked up by number."""
    nodes = [f"gpu-{at:05d}" for at in range(50)]
    with statements(filled) as asked:
        entries = [entry for of_node in filled.histories(nodes, 20).values() for entry in of_node]
    intents = {entry.attempt for entry in entries if entry.event == "intent"}
    outcomes = [entry for entry in entries if entry.event == "outcome"]
    looked_up = [numbers for text, numbers in asked if "journal.at \nFROM journal" in text]
    assert [{*numbers} for numbers in looked_up] == [{entry.attempt for entry in outcomes} - intents]
    assert len(outcomes) > 2 * len(looked_up[0])
    assert all(entry.seconds is not None for entry in outcomes)
