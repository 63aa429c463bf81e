"""Sums of days that are over: what came and went on each is counted once, and reports read a page in place of its rows.

A page stands for the rows of one table and one day (UTC). It says how many they were and the sum of their numbers, and
is believed only while both are so. A row that comes late, by a clock that is behind, or that is pruned, therefore makes
reports read the rows of its day again, until a leader has made the page anew. No write has to keep a page right: a
report is the same with all pages, some or none, whoever wrote, and whichever write was killed.

What is no plain case stays in its page row by row: signals of illness, drift over midnight, and damaged cells.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import from_json, instant, to_json
from reconciler.drivers.ledger.schema import day_sums, drift, is_event, journal, nodes, runs
from reconciler.drivers.ledger.writing import upsert
from reconciler.model.drift import ACTIONABLE
from reconciler.model.records import IN_PLACE_OF

LOOKS_APART: Final = timedelta(hours=1)  # between two looks of a leader for pages to make
_SETTLED: Final = timedelta(hours=1)  # after the end of a day: no write of it is under way any more
_DAY: Final = timedelta(days=1)
_UTC: Final = "+00:00"
_ACTIONABLE = frozenset(kind.value for kind in ACTIONABLE)
EPISODE = tuple(drift.c[name] for name in ("id", "node", "path", "kind", "first_seen", "ended_at"))
SIGNALS: Final = "health."  # before the name of a signal, in its value path


def start_of(day: str) -> str:
    return f"{day}T00:00:00.000000{_UTC}"


def end_of(day: str) -> str:
    return start_of((date.fromisoformat(day) + _DAY).isoformat())


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of which pages are made: by which time they belong to a day, and what a page of these rows says."""

    what: str
    at: sa.Column[Any]
    make: Callable[[sa.Connection, str, sa.ColumnElement[bool]], Any]
    chosen: sa.ColumnElement[bool]
    by_fleet: bool = False  # each fleet has its own pages

    def key(self, fleet: str) -> str:
        """Return whose pages a fleet reads; "" = those of all."""
        return fleet if self.by_fleet else ""

    def within(self, begin: str, end: str | None) -> sa.ColumnElement[bool]:
        """Return the condition for rows from `begin` until before `end`; None: until for ever."""
        return self.chosen & (self.at >= begin) & (sa.true() if end is None else self.at < end)

    def counts(self, connection: sa.Connection, fleet: str, begin: str, end: str) -> dict[str, tuple[int, int]]:
        """Return how many rows each day has, and the sum of their numbers: what an index tells."""
        day, number = sa.func.substr(self.at, 1, 10), self.at.table.c.id
        query = sa.select(day, sa.func.count(), sa.func.sum(number)).where(self.within(begin, end)).group_by(day)
        if self.by_fleet:
            query = query.where(of_nodes_of(connection, fleet))
        return {day: (number, int(ids)) for day, number, ids in connection.execute(query)}


def pages(connection: sa.Connection, source: Source, fleet: str, begin: str, end: str) -> dict[str, Any]:
    """Return the pages of whole days of a period that are as their rows are, by day."""
    first = begin[:10] if begin == start_of(begin[:10]) else end_of(begin[:10])[:10]
    kept = day_sums.c
    query = sa.select(kept.day, kept.number, kept.ids, kept.data).where(
        *_of(source, fleet), kept.day >= first, kept.day < end[:10]
    )
    stored = connection.execute(query.order_by(kept.day)).all()
    now = source.counts(connection, fleet, start_of(first), start_of(end[:10])) if stored else {}
    found = {}
    for day, number, ids, data in stored:
        if now.get(day, (0, 0)) == (number, ids):
            with suppress(ValueError, TypeError, zlib.error):  # a damaged page: its rows are read
                found[day] = from_json(zlib.decompress(data).decode(), f"page of {day}")
    return found


def _of(source: Source, fleet: str) -> tuple[sa.ColumnElement[bool], ...]:
    return day_sums.c.what == source.what, day_sums.c.fleet == source.key(fleet)


def gaps(begin: str, days: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the times from `begin` on that none of these days has, as pairs of begin and end. The last has no end."""
    found: list[tuple[str, str | None]] = []
    for day in days:
        if begin < start_of(day):
            found.append((begin, start_of(day)))
        begin = end_of(day)
    return [*found, (begin, None)]


def of_nodes_of(connection: sa.Connection, fleet: str) -> sa.ColumnElement[bool]:
    """Return the condition for drift of this fleet's nodes and of none's. Mostly a ledger has no others."""
    foreign = sa.select(nodes.c.node).where(nodes.c.fleet.not_in(("", fleet)))
    if not fleet or connection.execute(foreign.limit(1)).first() is None:
        return sa.true()
    return drift.c.node.not_in(foreign)


# --- what pages say --------------------------------------------------------------------------------------------------


def _drift_page(connection: sa.Connection, fleet: str, within: sa.ColumnElement[bool]) -> Any:
    """Return when differences of one day came and went, how long each was there, and where; and the others as rows."""
    query = sa.select(*EPISODE).where(within, of_nodes_of(connection, fleet)).order_by(drift.c.id)
    came, went, lasted, alone = [0] * 24, [0] * 24, [], []
    where: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(query).all():
        span = _span(row)
        if span is None:
            alone.append(list(row))
            continue
        came[span[0].hour] += 1
        went[span[1].hour] += 1
        lasted.append((span[1] - span[0]) // timedelta(microseconds=1))
        where[row.path].append(row.node)
    return {"came": came, "went": went, "us": lasted, "where": where, "alone": alone}


def _span(row: Any) -> tuple[datetime, datetime] | None:
    """Return when a difference came and went; None for one that a report has to see by itself."""
    _, node, path, kind, *cells = row
    if not all(isinstance(cell, str) and cell.endswith(_UTC) for cell in cells) or not isinstance(node, str):
        return None
    if kind not in _ACTIONABLE or path.startswith(SIGNALS) or cells[0][:10] != cells[1][:10]:
        return None
    try:
        return datetime.fromisoformat(cells[0]), datetime.fromisoformat(cells[1])
    except ValueError:
        return None


_OUTCOME, _INTENT = journal.alias("outcome"), journal.alias("intent")


def _outcomes_page(connection: sa.Connection, _: str, within: sa.ColumnElement[bool]) -> Any:
    """Return the nodes of each outcome, by fleet, and the admissions of spares."""
    whose = sa.func.coalesce(runs.c.fleet, "")
    told: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    query = sa.select(whose, journal.c.action, journal.c.data, journal.c.node).where(within)
    for fleet, action, data, node in connection.execute(query.join(runs, runs.c.run == journal.c.run, isouter=True)):
        told[fleet, action, data].append(node)
    spares = (
        sa.select(journal.c.id, whose, journal.c.node, journal.c.at, _INTENT.c.detail)
        .join(_INTENT, _INTENT.c.id == journal.c.attempt)
        .join(runs, runs.c.run == journal.c.run, isouter=True)
        .where(within, journal.c.data == '"done"', _INTENT.c.detail.startswith(IN_PLACE_OF, autoescape=True))
    )
    return {
        "told": [[*key, some] for key, some in told.items()],
        "spares": [list(row) for row in connection.execute(spares)],
    }


DRIFT: Final = Source("drift", drift.c.ended_at, _drift_page, sa.true(), by_fleet=True)
OUTCOMES: Final = Source("outcomes", journal.c.at, _outcomes_page, is_event(journal, "outcome"))


# --- making them -----------------------------------------------------------------------------------------------------


class SqlDaySums(SqlRole):
    _due: Sequence[tuple[Source, str]] = ()  # pages to make, those of the newest days last
    _looked: datetime | None = None

    def sum_up(self, now: datetime, most: int = 1) -> int:
        """Make at most so many pages that are missing or not as their rows are. Return how many were made.

        Which are due is looked up once an hour: it costs a walk along two indices.
        """
        if not self._due and not (self._looked and timedelta() <= now - self._looked < LOOKS_APART):
            self._due, self._looked = self._lacking(now), now
        some, self._due = self._due[-most:], self._due[:-most]
        for source, day in some:
            self._make(source, day)
        return len(some)

    def _lacking(self, now: datetime) -> Sequence[tuple[Source, str]]:
        end = instant(now.astimezone(UTC) - _SETTLED)[:10]
        due = []
        with self._database.read() as connection:
            for source in (DRIFT, OUTCOMES):
                there = source.counts(connection, self._fleet, "", start_of(end))
                kept = self._kept(connection, source)
                due += [(source, day) for day in {*there, *kept} if kept.get(day) != there.get(day, (0, 0))]
        return sorted((one for one in due if _is_day(one[1])), key=lambda one: one[1])

    def _kept(self, connection: sa.Connection, source: Source) -> Mapping[str, tuple[int, int]]:
        cells = day_sums.c
        query = sa.select(cells.day, cells.number, cells.ids).where(*_of(source, self._fleet))
        return {day: (number, ids) for day, number, ids in connection.execute(query)}

    def _make(self, source: Source, day: str) -> None:
        begin, end = start_of(day), end_of(day)
        with self._database.read() as connection:  # one snapshot: the page is of the rows that were counted
            number, ids = source.counts(connection, self._fleet, begin, end).get(day, (0, 0))
            said = source.make(connection, self._fleet, source.within(begin, end))
        try:
            data = zlib.compress(to_json(said).encode())
        except TypeError:  # damaged cells that are no text: the rows of this day are read one by one
            return
        row = {
            "what": source.what,
            "fleet": source.key(self._fleet),
            "day": day,
            "number": number,
            "ids": ids,
            "data": data,
        }
        with self._database.write([]) as connection:
            upsert(connection, day_sums, [row])


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
