"""Results of gates, on SQLite and PostgreSQL."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.drivers.ledger import SqlLedger, results
from reconciler.model.errors import LedgerError
from reconciler.model.gate import Verdict
from reconciler.model.results import Measurement, ResultRow, TestRun, Wanted
from tests.ledger.conftest import Open

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TEXT = "# Using devices\n# Avg bus bandwidth : 481.2\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
RUN = TestRun(
    "a", 7, "", "nccl", "nccl-tests", "2.17.4", Verdict.PASS, (), "k" * 64, T0, T0 + timedelta(minutes=2), DIGEST,
    (Measurement("busbw_peak", "", 481.2, "GB/s"),),
)  # fmt: skip
LINKS = replace(
    RUN, test="rails", tool="perftest", output="",
    measurements=(Measurement("gbps", "", 380.0, "Gb/s"), Measurement("gbps", "mlx5_0", 391.5, "Gb/s")),
)  # fmt: skip
HUNG = replace(
    RUN, test="diag", tool="dcgmi-diag", verdict=Verdict.ERROR, reasons=("killed at its timeout",), output="",
    measurements=(),
)  # fmt: skip


def figures(rows: Iterable[ResultRow]) -> list[tuple[str, int, str, str, str, float | None]]:
    return [(row.node, row.attempt, row.test, row.metric, row.part, row.value) for row in rows]


def later(run: TestRun, attempt: int, node: str = "a") -> TestRun:
    after = DAY * (attempt - RUN.attempt)
    return replace(run, node=node, attempt=attempt, started_at=run.started_at + after, ended_at=run.ended_at + after)


def test_each_test_part_and_metric_is_a_row_and_survives_the_process(reopen: Open) -> None:
    first = reopen()
    first.save_results((RUN, LINKS, HUNG), {DIGEST: TEXT})
    first.close()
    ledger = reopen()
    rows = list(ledger.results(Wanted(("a",))))
    assert figures(rows) == [
        ("a", 7, "nccl", "busbw_peak", "", 481.2),
        ("a", 7, "rails", "gbps", "", 380.0),
        ("a", 7, "rails", "gbps", "mlx5_0", 391.5),
        ("a", 7, "diag", "", "", None),
    ]
    assert [row.unit for row in rows] == ["GB/s", "Gb/s", "Gb/s", ""]
    assert (rows[0].key, rows[0].tool_version, rows[0].started_at) == (RUN.key, "2.17.4", T0)
    assert ledger.last_gate("a") == (RUN, LINKS, HUNG)
    assert ledger.last_gate("b") == ()
    assert ledger.output(DIGEST) == ledger.output(DIGEST[:12]) == TEXT


@pytest.mark.parametrize("page", [1, 2, 2_000])
def test_pages_leave_out_and_repeat_nothing(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(results, "_PAGE", page)
    for attempt in (7, 8, 9):
        for node in ("b", "a"):
            ledger.save_results([later(run, attempt, node) for run in (RUN, LINKS, HUNG)], {})
    whole = figures(ledger.results(Wanted(("a", "b"))))
    assert len(whole) == len(set(whole)) == 24
    assert [row[:2] for row in whole[::4]] == [("a", 7), ("a", 8), ("a", 9), ("b", 7), ("b", 8), ("b", 9)]
    assert figures(ledger.results(Wanted(()))) == whole, "without names, all nodes"
    assert figures(ledger.results(Wanted(("b",), test="nccl", since=T0 + DAY))) == [
        ("b", 8, "nccl", "busbw_peak", "", 481.2),
        ("b", 9, "nccl", "busbw_peak", "", 481.2),
    ]
    gbps = figures(ledger.results(Wanted((), metric="gbps")))
    assert len(gbps) == 12
    assert {row[2] for row in gbps} == {"rails"}
    monkeypatch.setattr(results, "MANY", 0)  # so many names that the table is read whole
    assert figures(ledger.results(Wanted(("b",), metric="gbps"))) == gbps[6:]
    assert figures(ledger.results(Wanted(("c",)))) == []


def test_what_several_tests_printed_alike_is_stored_once_and_a_changed_text_is_told(
    ledger: SqlLedger, where: str
) -> None:
    ledger.save_results((RUN,), {DIGEST: TEXT})
    ledger.save_results((later(RUN, 8),), {DIGEST: TEXT})
    assert ledger.info().rows["gate_outputs"] == 1
    assert ledger.output("0" * 64) is None
    assert ledger.output("%") is None
    if where.startswith("postgresql"):
        return
    with sqlite3.connect(where) as connection:
        connection.execute("UPDATE gate_outputs SET content = 'x'")
    with pytest.raises(LedgerError, match="damaged output"):
        ledger.output(DIGEST)


def test_words_of_a_machine_that_no_database_holds_are_cleaned(ledger: SqlLedger) -> None:
    odd = replace(
        RUN, tool_version="2\0\ud800", reasons=("\0 odd \ud800",), measurements=(Measurement("m", "\0p", 1, ""),)
    )
    ledger.save_results((odd,), {})
    (found,) = ledger.last_gate("a")
    assert (found.tool_version, found.measurements[0].part) == ("2?", "p")


def test_a_ledger_of_version_7_gets_the_tables(ledger: SqlLedger, where: str, reopen: Open) -> None:
    from tests.ledger.test_rollouts import _execute

    ledger.close()
    _execute(
        where,
        *(f"DROP TABLE {name}" for name in ("gate_tests", "gate_results", "gate_outputs")),
        "UPDATE meta SET value = '7' WHERE key = 'schema_version'",
    )
    again = reopen()
    again.save_results((RUN, HUNG), {DIGEST: TEXT})
    assert again.last_gate("a") == (RUN, HUNG)
    assert again.output(DIGEST) == TEXT


def test_old_results_are_dropped_and_the_newest_of_each_test_stay(reopen: Open) -> None:
    """The newest are those of the certificate: `rails` has not been run since its first gate."""
    ledger = reopen()
    texts = {f"{at}": hashlib.sha256(f"{at}".encode()).hexdigest() for at in (7, 8, 9, 10)}
    for at in (7, 8, 9, 10):
        run = replace(later(RUN, at), output=texts[f"{at}"])
        ledger.save_results((run, *((LINKS,) if at == 7 else ())), {texts[f"{at}"]: f"{at}"})
    ledger.save_results((replace(later(RUN, 7, "b"), output=texts["7"]),), {})
    by_hand = replace(later(RUN, 8), profile="deep", output="")
    ledger.save_results((by_hand,), {})
    assert ledger.drop_results(T0 - DAY).tests == 0
    dropped = ledger.drop_results(T0 + 2 * DAY)
    assert (dropped.tests, dropped.rows, dropped.outputs) == (2, 2, 1)
    kept = [(row.node, row.attempt, row.test, row.profile) for row in ledger.results(Wanted(()))]
    assert kept == [
        ("a", 7, "rails", ""), ("a", 7, "rails", ""), ("a", 9, "nccl", ""), ("a", 10, "nccl", ""),
        ("a", 8, "nccl", "deep"), ("b", 7, "nccl", ""),
    ]  # fmt: skip
    assert ledger.output(texts["7"]) == "7", "b printed the same, and has no newer result"
    assert ledger.output(texts["8"]) is None
    assert [ledger.output(texts[f"{at}"]) for at in (9, 10)] == ["9", "10"]
    assert ledger.drop_results(T0 + 2 * DAY).tests == 0


def test_many_results_are_dropped_page_by_page(reopen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_PAGE", 3)
    ledger = reopen()
    for at in range(7, 15):
        ledger.save_results((later(RUN, at), later(LINKS, at)), {DIGEST: TEXT})
    dropped = ledger.drop_results(T0 + 30 * DAY)
    assert (dropped.tests, dropped.rows, dropped.outputs) == (14, 21, 0)
    assert {row.attempt for row in ledger.results(Wanted(("a",)))} == {14}
    assert ledger.output(DIGEST) == TEXT
