"""Queries of a million rows of results, on SQLite and PostgreSQL, beside the floor of counting them."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.rows import instant
from reconciler.drivers.ledger.schema import gate_results, gate_tests
from reconciler.model.results import ResultRow, Wanted
from reconciler.render.gate import as_csv
from tests.bench.report import Table
from tests.ledger.postgresql import NoServer, running_server

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TESTS = {  # metrics of each test: GATE rows in all
    "nccl": ("busbw_peak",), "diag": ("memory.gpus", "pcie.gpus", "diagnostic.gpus"),
    "nvbandwidth": tuple(f"{case}.{part}" for case in ("h2d", "d2h", "d2d") for part in ("min", "max", "average")),
    "rails": ("gbps",), "burn": ("gflops", "temperature_c", "power_w"),
}  # fmt: skip
PARTS = {"rails": tuple(f"mlx5_{at}" for at in range(12)), "burn": tuple(map(str, range(8)))}
GATE = sum(len(metrics) * (len(PARTS.get(test, ())) + 1) for test, metrics in TESTS.items())
NODES = 500
ROUNDS = 5


def section(rows: int) -> Sequence[Table]:
    return [_table(rows, name, where) for name, where in places()]


def places() -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        yield "SQLite", str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ledger.sqlite")
        try:
            server = stack.enter_context(running_server())
        except NoServer as error:
            print(f"PostgreSQL: {error}")
            return
        yield "PostgreSQL", server.database()


def _table(rows: int, name: str, where: str) -> Table:
    ledger = SqlLedger(where)
    try:
        engine = ledger._database._engine
        _fill(engine, rows // GATE)
        gates = rows // GATE
        node, last = f"gpu-{NODES // 2:04d}", T0 + timedelta(hours=gates // NODES - 1)
        count = sa.select(sa.func.count()).select_from(gate_results)

        def counted() -> int:
            with engine.connect() as connection:
                return int(connection.execute(count).scalar_one())

        floor, cpu, found = _best(counted)
        queries: dict[str, Callable[[], int]] = {
            "one node, everything": lambda: _rows(ledger, Wanted((node,))),
            "one node, one metric": lambda: _rows(ledger, Wanted((node,), "nccl", "busbw_peak")),
            "32 nodes, one metric": lambda: _rows(
                ledger, Wanted(tuple(f"gpu-{at:04d}" for at in range(32)), "nccl", "busbw_peak")
            ),
            "all nodes, one metric": lambda: _rows(ledger, Wanted((), "nccl", "busbw_peak")),
            "all nodes, the last hour": lambda: _rows(ledger, Wanted((), since=last)),
            "the last gate of a node": lambda: sum(len(run.measurements) for run in ledger.last_gate(node)),
        }
        lines: list[tuple[str | float | int, ...]] = [("count(*)", found, floor * 1000, cpu * 1000, 1.0)]
        for what, query in queries.items():
            seconds, cpu, number = _best(query)
            lines.append((what, number, seconds * 1000, cpu * 1000, seconds / floor))
        began, used = time.perf_counter(), time.process_time()
        size = sum(len(part) for part in as_csv(ResultRow, ledger.results(Wanted(()))))
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        lines.append((f"all as CSV, {size / 2**20:,.0f} MiB", found, seconds * 1000, cpu * 1000, seconds / floor))
        began, used = time.perf_counter(), time.process_time()
        dropped = ledger.drop_results(T0 + timedelta(hours=gates // NODES // 2))
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        lines.append(("the older half dropped", dropped.rows, seconds * 1000, cpu * 1000, seconds / floor))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    finally:
        ledger.close()
    title = f"Results of gates in {name}: best of {ROUNDS}; {memory:,.0f} MiB at most in the process"
    return Table(title, ("query", "rows", "ms", "ms of CPU here", "times count(*)"), tuple(lines))


def _rows(ledger: SqlLedger, wanted: Wanted) -> int:
    return sum(1 for _ in ledger.results(wanted))


def _best(query: Callable[[], int]) -> tuple[float, float, int]:
    """Return the least seconds by the wall clock, the least of CPU in this process, and the rows."""
    times, cpu, found = [], [], 0
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        found = query()
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return min(times), min(cpu), found


def _fill(engine: sa.Engine, gates: int) -> None:
    """Write gates in the order in which they would run: each node once an hour."""
    number = 0
    with engine.begin() as connection:
        for attempt in range(gates):
            at = T0 + timedelta(hours=attempt // NODES, seconds=attempt % NODES)
            tests, metrics = [], []
            for test, names in TESTS.items():
                number += 1
                tests.append(
                    {
                        "id": number, "node": f"gpu-{attempt % NODES:04d}", "attempt": attempt, "profile": "",
                        "test": test, "tool": test, "tool_version": "2.17.4", "verdict": "pass", "reasons": "[]",
                        "peers": f"{len(test):064x}", "started_at": instant(at), "ended_at": instant(at),
                        "output": f"{number:064x}",
                    }
                )  # fmt: skip
                metrics += [
                    {"run": number, "metric": name, "part": part, "value": 400.0 + attempt % 97, "unit": "GB/s"}
                    for name in names
                    for part in ("", *PARTS.get(test, ()))
                ]
            connection.execute(gate_tests.insert(), tests)
            connection.execute(gate_results.insert(), metrics)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE gate_tests, gate_results")
