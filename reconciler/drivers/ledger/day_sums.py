"""Sums of days that are over: what came and went on each is counted once, and reports read a page in place of its rows.

A page stands for the rows of one table and one day (UTC). It says how many they were, the sum of their numbers and by
which rules it was made, and is believed only while all are so. A row that comes late, by a clock that is behind, or
that is pruned, therefore makes reports read the rows of its day again, until a leader's round comes by that day and
makes the page anew. No write has to keep a page right: a report is the same with all pages, some or none, whoever
wrote, and whichever write was killed.

What is no plain case stays in its page row by row: signals of illness, drift over midnight, and damaged cells.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import from_json, to_json
from reconciler.drivers.ledger.schema import day_sums, drift, is_event, journal, nodes, runs
from reconciler.drivers.ledger.writing import upsert
from reconciler.model.drift import ACTIONABLE
from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.inputs import digest_of
from reconciler.model.records import IN_PLACE_OF

DAYS: Final = 400  # before today, of which a leader makes pages
MOST_ROWS: Final = 200_000  # of a page: a pass of a leader waits while one is made, 0.16 s of CPU for 50,000
_SETTLED: Final = timedelta(hours=1)  # after the end of a day: no write of it is under way any more
_DAY: Final = timedelta(days=1)
_UTC: Final = "+00:00"
_ACTIONABLE = frozenset(kind.value for kind in ACTIONABLE)
EPISODE = tuple(drift.c[name] for name in ("id", "node", "path", "kind", "first_seen", "ended_at"))
SIGNALS: Final = "health."  # before the name of a signal, in its value path
# By which rules a page was made: those that its shape doesn't show. Raise the number with the code that makes pages.
RULES: Final = digest_of([1, sorted(_ACTIONABLE), SIGNALS, IN_PLACE_OF])


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
    is_page: Callable[[Any], bool]  # of what JSON says: whether it has the shape that `make` gives
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

    def count(self, connection: sa.Connection, fleet: str, day: str) -> tuple[int, int] | None:
        """Return how many rows a day has, and the sum of their numbers; None: with other fleets' too many to look."""
        within = self.within(start_of(day), end_of(day))
        some = sa.select(self.at.table.c.id).where(within).limit(MOST_ROWS + 1).subquery()
        number, ids = connection.execute(sa.select(sa.func.count(), sa.func.sum(some.c.id))).one()
        if number > MOST_ROWS:
            return None
        if not self.by_fleet or not number:
            return number, int(ids or 0)
        return self.counts(connection, fleet, start_of(day), end_of(day)).get(day, (0, 0))


def pages(connection: sa.Connection, source: Source, fleet: str, begin: str, end: str) -> dict[str, Any]:
    """Return the pages of whole days of a period that are as their rows are, by day."""
    first = begin[:10] if begin == start_of(begin[:10]) else end_of(begin[:10])[:10]
    kept = day_sums.c
    query = sa.select(kept.day, kept.number, kept.ids, kept.data).where(
        *_of(source, fleet), kept.rules == RULES, kept.day >= first, kept.day < end[:10]
    )
    stored = connection.execute(query.order_by(kept.day)).all()
    now = source.counts(connection, fleet, start_of(first), start_of(end[:10])) if stored else {}
    found = {}
    for day, number, ids, data in stored:
        if now.get(day, (0, 0)) == (number, ids):
            with suppress(ValueError, TypeError, zlib.error):  # a damaged page: its rows are read
                said = from_json(zlib.decompress(data).decode(), f"page of {day}")
                if source.is_page(said):
                    found[day] = said
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
    _, *texts = row
    if not _are(str, texts):
        return None
    _, path, kind, *cells = texts
    if not all(cell.endswith(_UTC) for cell in cells):
        return None
    if kind not in _ACTIONABLE or path.startswith(SIGNALS) or cells[0][:10] != cells[1][:10]:
        return None
    try:
        return datetime.fromisoformat(cells[0]), datetime.fromisoformat(cells[1])
    except ValueError:
        return None


def _is_drift_page(said: Any) -> bool:
    if not isinstance(said, dict) or said.keys() != {"came", "went", "us", "where", "alone"}:
        return False
    hours, where, alone = (said["came"], said["went"]), said["where"], said["alone"]
    if not (all(_are(int, some) and len(some) == 24 for some in hours) and _are(int, said["us"])):
        return False
    if not (isinstance(where, dict) and all(_are(str, some) for some in where.values()) and _are(list, alone)):
        return False
    return all(len(row) == len(EPISODE) and _are(int, row[:1]) and _are(str, row[1:]) for row in alone)


def _are(kind: type, some: Any) -> bool:
    """Say whether this is a list whose items are all of this type."""
    return isinstance(some, list) and set(map(type, some)) <= {kind}


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


def _is_outcomes_page(said: Any) -> bool:
    if not isinstance(said, dict) or said.keys() != {"told", "spares"} or not all(map(_is_rows, said.values())):
        return False
    return all(len(row) == 4 and _are(str, row[:3]) and _are(str, row[3]) for row in said["told"]) and all(
        len(row) == 5 and _are(int, row[:1]) and _are(str, row[1:]) for row in said["spares"]
    )


def _is_rows(said: Any) -> bool:
    return _are(list, said)


DRIFT: Final = Source("drift", drift.c.ended_at, _drift_page, _is_drift_page, sa.true(), by_fleet=True)
OUTCOMES: Final = Source("outcomes", journal.c.at, _outcomes_page, _is_outcomes_page, is_event(journal, "outcome"))


# --- making them -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SummedUp:
    """The result of a look of a leader. `made`: a page. `problem`: why none could be made; "" = there is none."""

    what: str = ""
    day: str = ""
    made: bool = False
    problem: str = ""


class SqlDaySums(SqlRole):
    _last_over = date.min  # day that was over at the latest look
    _ahead: Sequence[tuple[Source, str]] = ()  # where to look, the next last
    _given_up: Set[tuple[str, str]] = frozenset()

    def sum_up(self, now: datetime) -> SummedUp:
        """Look at one day of one table, and make its page if that is missing or not as its rows are.

        Days that are newly over come first, then the others in rounds, the newest first. What fails here never stops
        a leader, whose work is another: where the ledger could not be used, this day waits for the next round, and
        where a row is damaged, for the next process. LeaseHeld: another leads.
        """
        source, day = self._next(now)
        if (source.what, day) in self._given_up:
            return SummedUp()
        try:
            return SummedUp(source.what, day, self._keep(source, day))
        except LeaseHeld:
            raise
        except LedgerError as error:
            return SummedUp(source.what, day, problem=f"{error}. It is tried again with the next round")
        except Exception as error:  # noqa: BLE001 - the boundary: a damaged row may raise anything
            self._given_up |= {(source.what, day)}
            told = f"{type(error).__name__}: {error}"
            what_next = "See that nobody has changed these rows; it is tried again after a restart"
            return SummedUp(source.what, day, problem=f"{told}. {what_next}")

    def _next(self, now: datetime) -> tuple[Source, str]:
        newest = (now.astimezone(UTC) - _SETTLED).date() - _DAY
        if newest != self._last_over:  # earlier: the clock was ahead, and so are the days of its round
            self._ahead = [*(self._ahead if newest > self._last_over else ()), *_round(newest, 1)]
            self._last_over = newest
        *self._ahead, found = self._ahead or _round(newest, DAYS)
        return found

    def _keep(self, source: Source, day: str) -> bool:
        """Make the page of a day as its rows are. Return whether that had to be done."""
        key = {"what": source.what, "fleet": source.key(self._fleet), "day": day}
        is_it = sa.and_(*(day_sums.c[name] == value for name, value in key.items()))
        with self._database.read() as connection:  # one snapshot: the page is of the rows that were counted
            found = source.count(connection, self._fleet, day)
            if found is None:
                return False
            number, ids = found
            made_of = sa.select(day_sums.c.number, day_sums.c.ids, day_sums.c.rules)
            kept = connection.execute(made_of.where(is_it)).first()
            if (kept or (0, 0, RULES)) == (number, ids, RULES):
                return False
            said = source.make(connection, self._fleet, source.within(start_of(day), end_of(day))) if number else None
        with self._database.write([]) as connection:
            if number:
                page = {"number": number, "ids": ids, "rules": RULES, "data": zlib.compress(to_json(said).encode())}
                upsert(connection, day_sums, [key | page])
            else:
                connection.execute(sa.delete(day_sums).where(is_it))
        return True


def _round(newest: date, days: int) -> Sequence[tuple[Source, str]]:
    """Return the tables and days of a round, its beginning last."""
    some = [(newest - back * _DAY).isoformat() for back in reversed(range(days))]
    return [(source, day) for day in some for source in (OUTCOMES, DRIFT)]
