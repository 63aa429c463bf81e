"""`python -m tests.chaos`: the whole matrix; `python -m tests.chaos reimage --point "during 5"`: one cell of it."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.chaos.cases import CASES, Case
from tests.chaos.cell import Cell, Result, applies_to, as_json, cells_of, play, reference
from tests.chaos.engine_cell import DATABASE_CUT, OUTAGES, Outcome, report_line
from tests.chaos.engine_cell import play as play_engine
from tests.chaos.outages import COLUMNS, KILLED, POSTGRESQL_AWAY
from tests.chaos.world import Bench, World, node_of, running
from tests.ledger.postgresql import NoServer, Server, running_server

ENGINE = "engine"  # a case of its own: the loop reads by workers
MOST_CELLS = 48  # of one case, including the node of its reference run
CASES_AT_ONCE = 2  # one lab starts and makes its reference run while the cells of the other run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Kill the reconciler, or take away what it stands on, at every point."
    )
    names = [*(case.name for case in CASES), ENGINE]
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(names)}; all if left out")
    parser.add_argument("--point", action="append", help='such as "after intent" or "during 2"; all if left out')
    parser.add_argument("--column", action="append", choices=COLUMNS, help="what applies_to it; all if left out")
    parser.add_argument("--time-scale", type=float, help="of the lab; as the case says if left out")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="cells at once; most of it waits")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave ledgers and what the runs said there")
    given = parser.parse_args()
    unknown = set(given.cases) - set(names)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    cases = [case for case in CASES if not given.cases or case.name in given.cases]
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        directory = (given.keep or Path(scratch)).resolve()
        began = time.monotonic()
        print(_row("action", "point", "", "result", "boots cycles installs flashes", "runs", "s"), flush=True)
        columns = given.column or COLUMNS
        with (
            process_pool(given.jobs) as pool,
            ThreadPoolExecutor(CASES_AT_ONCE) as labs,
            database_server(columns) as server,
        ):
            played = [
                labs.submit(play_case, case, directory, pool, given.point, given.time_scale, columns, server)
                for case in cases
            ]
            results = [result for one in played for result in one.result()]
            outages = _play_engine(directory, given.point, server) if not given.cases or ENGINE in given.cases else []
        (directory / "results.jsonl").write_text("".join(as_json(result) + "\n" for result in results))
    broken = [
        *((result.cell.name, result.broke, "\n".join(result.told)) for result in results if result.broke),
        *((f"{ENGINE} / {one.outage}", one.broke, one.told) for one in outages if one.broke),
    ]
    took, number = time.monotonic() - began, len(results) + len(outages)
    print(f"\n{number} cells in {took:.0f} s: {number - len(broken)} ok, {len(broken)} broke")
    for name, broke, told in broken:
        print(f"\n{name}: {'; '.join(broke)}\n{told}")
    return 1 if broken or not number else 0


def _play_engine(directory: Path, points: list[str] | None, server: Server | None) -> list[Outcome]:
    """Play the outages of an engine one after the other. Each has several processes, and times of its own."""
    found = []
    for outage in OUTAGES:
        if (points is None or outage in points) and (server is not None or outage != DATABASE_CUT):
            found.append(play_engine(outage, directory / outage.replace(" ", "-"), server))
            print(report_line(found[-1]), flush=True)
    return found


@contextlib.contextmanager
def database_server(columns: Sequence[str]) -> Iterator[Server | None]:
    """Start PostgreSQL if a column needs it. Yield None, with a message on stderr, where it is not installed."""
    with contextlib.ExitStack() as stack:
        server = None
        if POSTGRESQL_AWAY in columns:
            try:
                server = stack.enter_context(running_server())
            except NoServer as error:
                print(f"column {POSTGRESQL_AWAY!r} is left out: {error}", file=sys.stderr)
        yield server


def play_case(
    case: Case,
    directory: Path,
    pool: Executor,
    points: list[str] | None,
    time_scale: float | None,
    columns: Sequence[str],
    server: Server | None,
) -> list[Result]:
    """Run all cells of a case. Each has its own node and ledger; they share a lab and one reference run."""
    columns = [column for column in columns if applies_to(column, case) and (column != POSTGRESQL_AWAY or server)]
    if not columns:
        return []
    where = directory / case.name.replace(" ", "-").replace(",", "").replace(":", "-")
    with running(where, [case] * MOST_CELLS, time_scale or case.time_scale) as world:
        writes, wrong = pool.submit(reference, case, Bench(world, node_of(0))).result()
        if wrong:
            found = [Result(Cell(case, "never"), tuple(wrong), {}, 0, 0.0)]
            print(_report_line(found[0]), flush=True)
            return found
        cells = [cell for column in columns for cell in cells_of(case, writes, column)]
        cells = [cell for cell in cells if points is None or cell.where in points]
        found = []
        for result in run_in_parallel(world, cells, pool, server, first=1):
            print(_report_line(result), flush=True)
            found.append(result)
    return sorted(found, key=lambda result: cells.index(result.cell))


def process_pool(jobs: int) -> ProcessPoolExecutor:
    """Return one process pool for all labs, because starting and importing take longer than a plan."""
    os.environ["RECONCILER_ACTOR"] = "chaos"
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))


def run_in_parallel(
    world: World, cells: Sequence[Cell], pool: Executor, server: Server | None, *, first: int = 0
) -> Iterator[Result]:
    """Run cells on the nodes from `first` on, in parallel, and yield results as they come."""
    futures = []
    for at, cell in enumerate(cells, start=first):
        database = server.database() if server is not None and cell.column == POSTGRESQL_AWAY else ""
        futures.append(pool.submit(play, cell, Bench(world, node_of(at), database)))
    for future in as_completed(futures):
        yield future.result()


def _report_line(result: Result) -> str:
    cell = result.cell
    count = result.counters
    counters = " ".join(str(count.get(name, "-")) for name in ("boots", "power_cycles", "installs", "flashes"))
    where = cell.where + (f" x{cell.times}" if cell.times > 1 else "")
    where += "" if cell.column == KILLED else f", {cell.column}"
    verdict = "ok" if not result.broke else "BROKE: " + "; ".join(result.broke)
    return _row(cell.case.name, where, cell.write, verdict, counters, str(result.runs), f"{result.seconds:.0f}")


def _row(case: str, point: str, write: str, verdict: str, counters: str, runs: str, seconds: str) -> str:
    return f"{case:22} {point:32} {write[:34]:34} {counters:30} {runs:>4} {seconds:>4}  {verdict}"


if __name__ == "__main__":
    sys.exit(main())
