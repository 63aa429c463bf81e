"""What is asked of a ledger of months: a report, a history, the histories of a page, beside the floor of counting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import sqlalchemy as sa

from reconciler.app.runtime import paused_garbage_collection
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.durations import MOST_DURATIONS
from reconciler.drivers.ledger.schema import journal
from reconciler.model.records import FLEET
from reconciler.planner.fleet.period_report import period_report
from tests.bench.ledger_rows import BEGIN, NODES_PER_ROW, fill
from tests.bench.ledger_rows import FLEET as WHOSE
from tests.bench.report import Table
from tests.bench.results import places

DAYS, WEEK, MONTH = 90, timedelta(days=7), timedelta(days=28)
END = BEGIN + timedelta(days=DAYS)
TARGET_S = 2.0
PAGE = 10_000  # nodes on a page
ROUNDS = 3
_REPORT, _PAST = "report: a week", "of it, the ledger"


def section(rows: int) -> Sequence[Table]:
    return [_table(rows, name, where) for name, where in places()]


def _table(rows: int, name: str, where: str) -> Table:
    nodes = [f"gpu-{at:05d}" for at in range(max(int(rows * NODES_PER_ROW), 20))]
    ledger = SqlLedger(where, fleet=WHOSE)
    try:
        engine = ledger._database._engine
        fill(engine, rows, nodes, DAYS)
        questions = _questions(ledger, nodes)
        taken = {f"{what}, without pages of sums": _best(questions[what]) for what in (_REPORT, _PAST)}
        made = _looks(ledger, 2 * DAYS + 2)  # the newest day twice
        ledger._ahead = ()  # a round begins
        looked = _looks(ledger, 2 * DAYS)
        taken |= {what: _best(ask) for what, ask in questions.items()}
        size = ledger.info().bytes
    finally:
        ledger.close()
    floor = taken["floor: count(*) of the journal"][0]
    lines = [(what, wall, cpu, wall / floor) for what, (wall, cpu) in taken.items()]
    notes = (
        f"target: {TARGET_S:g} s for a report and a history of ten million rows",
        f"looks of a leader that made pages of sums: {len(made)}, {_cpu(made)}",
        f"looks that found them as they should be: {_cpu(looked)}",
        f"{size / rows:,.0f} bytes of the database for each row of the journal, with all that it stands for",
    )
    title = (
        f"Past in {name}: {rows:,} rows of the journal, {len(nodes):,} nodes, {DAYS} days: seconds, best of {ROUNDS}"
    )
    return Table(title, ("question", "wall", "CPU here", "times count(*)"), lines, notes)


def _looks(ledger: SqlLedger, number: int) -> Sequence[float]:
    """Return the CPU of each look."""
    taken = []
    for _ in range(number):
        began = time.process_time()
        ledger.sum_up(END + timedelta(hours=2))
        taken.append(time.process_time() - began)
    return taken


def _cpu(taken: Sequence[float]) -> str:
    return f"{sum(taken) / len(taken):.4f} s of CPU each, {max(taken):.4f} at most"


def _questions(ledger: SqlLedger, nodes: Sequence[str]) -> Mapping[str, Callable[[], object]]:
    engine, node = ledger._database._engine, nodes[len(nodes) // 2]
    page = [*nodes[:PAGE], "pool/training-1", FLEET]

    def count() -> None:
        with engine.connect() as connection:
            connection.execute(sa.select(sa.func.count()).select_from(journal)).scalar_one()

    def report() -> None:
        with paused_garbage_collection():  # as the command does
            past = ledger.past(END - WEEK, END)
            period_report(past, WHOSE, frozenset(nodes), END - WEEK, END)

    def histories(most: int) -> None:
        with paused_garbage_collection():  # as `report --html` does
            ledger.histories(page, most)

    return {
        "floor: count(*) of the journal": count,
        _REPORT: report,
        _PAST: lambda: ledger.past(END - WEEK, END),
        "report: lemon scores of 28 days": lambda: ledger.illness(END - MONTH, END),
        "unfinished attempts": ledger.unfinished,
        "how long actions took, the newest 20,000": lambda: durations_of(ledger),
        "history of a node": lambda: ledger.history(node, 101, pool="training-1"),
        f"histories of {len(page) - 2:,} nodes, 6 entries each": lambda: histories(6),
        f"histories of {len(page) - 2:,} nodes, 20 entries each": lambda: histories(20),
    }


def durations_of(ledger: SqlLedger) -> object:
    """Ask past the cache."""
    return ledger.durations(MOST_DURATIONS - 1)


def _best(ask: Callable[[], object]) -> tuple[float, float]:
    """Return the least seconds by the wall clock, and of CPU in this process."""
    walls, used = [], []
    for _ in range(ROUNDS):
        began, cpu = time.perf_counter(), time.process_time()
        ask()
        walls.append(time.perf_counter() - began)
        used.append(time.process_time() - cpu)
    return min(walls), min(used)
