"""Keep what gates measured: a row for each test of an attempt, one for each metric of it, and what the tools printed.

Rows are added, and dropped as a whole test where somebody asks for that (`ledger prune`). They are read page by page,
each in a short transaction of its own, so that a reader needs no more memory for a million of them, and keeps nobody
from writing.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.episodes import MANY
from reconciler.drivers.ledger.rows import clean, from_json, instant, or_long_ago, to_json
from reconciler.drivers.ledger.schema import gate_outputs, gate_results, gate_tests, journal
from reconciler.drivers.ledger.writing import insert_new
from reconciler.gate.printed import LONGEST
from reconciler.model.errors import LedgerError
from reconciler.model.gate import Verdict
from reconciler.model.results import SEARCH, Measurement, ResultRow, TestRun, Wanted

_PAGE = 2_000  # tests that one query returns
_TOGETHER = 50  # nodes that one query asks for by name
_UTF8 = 4  # bytes of a character at most


@dataclass(frozen=True, slots=True)
class Dropped:
    """The number of tests that were dropped, of their rows, and of texts that no other test printed."""

    tests: int
    rows: int
    outputs: int


class SqlResults(SqlRole):
    def save_results(self, runs: Sequence[TestRun], outputs: Mapping[str, str]) -> None:
        with self._database.write([]) as connection:
            for run in runs:
                key = connection.execute(gate_tests.insert().values(_row(run))).inserted_primary_key
                assert key is not None
                rows = [
                    {"run": key[0], "metric": clean(m.metric), "part": clean(m.part), "value": m.value, "unit": m.unit}
                    for m in run.measurements
                ]
                if rows:
                    connection.execute(gate_results.insert(), rows)
            for digest, text in outputs.items():
                insert_new(connection, gate_outputs, [{"digest": digest, "content": zlib.compress(text.encode())}])

    def results(self, wanted: Wanted) -> Iterator[ResultRow]:
        """Yield results by node, oldest first. A test that measured nothing is one row without a value.

        Results that are written meanwhile are among them or not, each test as a whole.
        """
        names = sorted(set(wanted.nodes))
        if not names or len(names) > MANY:
            chosen = frozenset(names)
            yield from (row for row in self._pages(wanted, None) if not chosen or row.node in chosen)
            return
        for first in range(0, len(names), _TOGETHER):
            yield from self._pages(wanted, names[first : first + _TOGETHER])

    def _pages(self, wanted: Wanted, names: Sequence[str] | None) -> Iterator[ResultRow]:
        """Yield the results of these nodes, or of all. The test that was read last is where the next page begins."""
        query = _tests(wanted)
        if names is not None:
            query = query.where(gate_tests.c.node.in_(names))
        page = query
        while True:
            with self._database.read() as connection:
                tests = connection.execute(page.limit(_PAGE)).all()
                measured = _metrics(connection, [test.id for test in tests], wanted.metric)
            for test in tests:
                rows = measured.get(test.id)
                if rows is not None or not wanted.metric:
                    yield from _results(test, rows or [None])
            if len(tests) < _PAGE:
                return
            page = query.where(sa.tuple_(gate_tests.c.node, gate_tests.c.id) > (tests[-1].node, tests[-1].id))

    def last_gate(self, node: str) -> tuple[TestRun, ...]:
        """Return the tests of the newest attempt at a gate of this node; () where none was recorded."""
        return self._newest(node, gate_tests.c.profile != SEARCH)

    def last_searched(self, node: str) -> tuple[TestRun, ...]:
        """Return what the newest search of the fabric measured of this node, its one test; () where none did."""
        return self._newest(node, gate_tests.c.profile == SEARCH)

    def _newest(self, node: str, of: sa.ColumnElement[bool]) -> tuple[TestRun, ...]:
        table = gate_tests.c
        mine = sa.select(table.attempt).where(table.node == node, of)
        newest = mine.order_by(table.id.desc()).limit(1).scalar_subquery()
        query = sa.select(gate_tests).where(table.node == node, table.attempt == newest).order_by(table.id)
        with self._database.read() as connection:
            found = connection.execute(query).all()
            measured = _metrics(connection, [row.id for row in found], "")
        return tuple(_test_run(row, tuple(measured.get(row.id, ()))) for row in found)

    def drop_results(self, before: datetime) -> Dropped:
        """Drop results of tests that began before then, but for the newest of each test, node and profile.

        What certificates say is in these newest ones, and stays with what their tools printed. Each page is dropped in
        a short transaction of its own, so that gates write meanwhile; a run that dies has dropped whole tests.
        """
        table, dropped = gate_tests.c, Dropped(0, 0, 0)
        newest = sa.select(sa.func.max(table.id)).group_by(table.node, table.profile, table.test)
        query = sa.select(table.id).where(table.started_at < instant(before), table.id.not_in(newest))
        page = query.order_by(table.id).limit(_PAGE)
        while True:
            with self._database.write([]) as connection:
                tests = list(connection.execute(page).scalars())
                rows = connection.execute(gate_results.delete().where(gate_results.c.run.in_(tests))).rowcount
                connection.execute(gate_tests.delete().where(table.id.in_(tests)))
            dropped = Dropped(dropped.tests + len(tests), dropped.rows + rows, 0)
            if len(tests) < _PAGE:
                return replace(dropped, outputs=self._drop_outputs() if dropped.tests else 0)

    def _drop_outputs(self) -> int:
        """Drop what tools printed in no test that is kept. Evidence that the journal names stays as long as that."""
        named = journal.c.data.contains(gate_outputs.c.digest)
        kept = sa.or_(
            sa.exists().where(gate_tests.c.output == gate_outputs.c.digest),
            sa.exists().where(journal.c.event == "amendment", named),
        )
        with self._database.write([]) as connection:
            if connection.dialect.name == "postgresql":  # a gate that prints the same again meanwhile would lose it
                connection.exec_driver_sql("LOCK TABLE gate_tests, gate_outputs IN SHARE ROW EXCLUSIVE MODE")
            return connection.execute(gate_outputs.delete().where(~kept)).rowcount

    def output(self, digest: str) -> str | None:
        """Return what a tool printed, by the digest of the text or its first digits; None where that is not kept.

        LedgerError where the text is damaged, or where more than one text begins so.
        """
        if not re.fullmatch("[0-9a-f]{1,64}", digest):
            return None
        column = gate_outputs.c.digest
        query = sa.select(gate_outputs).where(column >= digest, column < f"{digest}g").limit(2)
        with self._database.read() as connection:
            found = connection.execute(query).all()
        if len(found) > 1:
            raise LedgerError(f"the ledger {self._database.name} has more than one output that begins with {digest}")
        return _text(found[0], self._database.name) if found else None


def _text(row: Any, ledger: str) -> str:
    try:
        content = zlib.decompressobj().decompress(row.content, _UTF8 * LONGEST + 1000)
    except (zlib.error, TypeError):  # SQLite takes text for bytes
        content = b""
    if hashlib.sha256(content).hexdigest() != row.digest:
        raise LedgerError(f"the ledger {ledger} has a damaged output {row.digest}: it is not what the tool printed")
    return content.decode()


def _row(run: TestRun) -> dict[str, Any]:
    return {
        "node": run.node,
        "attempt": run.attempt,
        "profile": run.profile,
        "test": run.test,
        "tool": run.tool,
        "tool_version": clean(run.tool_version),
        "verdict": run.verdict.value,
        "reasons": to_json(list(run.reasons)),
        "peers": run.key,
        "started_at": instant(run.started_at),
        "ended_at": instant(run.ended_at),
        "output": run.output,
    }


def _tests(wanted: Wanted) -> sa.Select[Any]:
    query = sa.select(gate_tests).order_by(gate_tests.c.node, gate_tests.c.id)
    if wanted.test:
        query = query.where(gate_tests.c.test == wanted.test)
    if wanted.since is not None:
        query = query.where(gate_tests.c.started_at >= instant(wanted.since))
    return query


# Without ORDER BY: SQLite would read the whole table in that order.
_OF_TESTS = sa.select(gate_results).where(gate_results.c.run.in_(sa.bindparam("tests", expanding=True)))


def _metrics(connection: sa.Connection, tests: Sequence[int], metric: str) -> dict[int, list[Measurement]]:
    """Return what these tests measured, by metric and part; of one metric alone unless that is ""."""
    query = _OF_TESTS.where(gate_results.c.metric == metric) if metric else _OF_TESTS
    found: dict[int, list[Measurement]] = {}
    for run, name, part, value, unit in connection.execute(query, {"tests": tests}):
        found.setdefault(run, []).append(Measurement(name, part, value, unit))
    for measured in found.values():
        measured.sort()
    return found


def _results(test: Any, rows: Sequence[Measurement | None]) -> Iterator[ResultRow]:
    common = (
        test.node, test.attempt, test.profile, test.test, test.tool, test.tool_version, test.verdict, test.peers,
        or_long_ago(test.started_at), or_long_ago(test.ended_at), test.output,
    )  # fmt: skip
    for row in rows:
        if row is None:
            yield ResultRow(*common, "", "", None, "")
        else:
            yield ResultRow(*common, row.metric, row.part, row.value, row.unit)


def _test_run(row: Any, measurements: tuple[Measurement, ...]) -> TestRun:
    """Decode one test, for people: a damaged cell makes it unjudged, and hides no other."""
    try:
        verdict, reasons = Verdict(row.verdict), tuple(map(str, from_json(row.reasons, "reasons")))
    except (ValueError, TypeError) as error:
        verdict, reasons = Verdict.UNJUDGED, (f"its row in the ledger is damaged: {error}",)
    return TestRun(
        row.node,
        row.attempt,
        row.profile,
        row.test,
        row.tool,
        row.tool_version,
        verdict,
        reasons,
        row.peers,
        or_long_ago(row.started_at),
        or_long_ago(row.ended_at),
        row.output,
        measurements,
    )
