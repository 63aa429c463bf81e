"""Read what happened in a period, for reports. A damaged row is counted, and hides no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger import day_sums, status_intervals
from reconciler.drivers.ledger.day_sums import EPISODE, SIGNALS, start_of
from reconciler.drivers.ledger.rows import Columns, Decoded, from_json, instant, instants, times_of, to_instant
from reconciler.drivers.ledger.schema import drift, is_event, journal, runs
from reconciler.drivers.ledger.schema import status_intervals as intervals
from reconciler.health.ladder import REMEDIATION
from reconciler.model.period_report import ActionTally, DriftDay, Episode, Past, Replacement
from reconciler.model.records import IN_PLACE_OF, ISOLATED, Attempt
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import ACTIONS

T = TypeVar("T")
# What takes a node out, empties it, judges it, or resets a BMC that hangs: a rung whose cause is a signal.
_TELLING = tuple(
    spec.name
    for spec in ACTIONS.values()
    if spec.takes_out or spec.drains or {c.GATE, c.BMC_ANSWERS} & {*spec.achieves}
)


def legible(connection: sa.Connection, ask: Callable[[], Past]) -> Past:
    """Return the answer. Where texts in SQLite are no UTF-8, which fails a query, ask again with marks in their place,
    and count them as damaged.
    """
    try:
        return ask()
    except sa.exc.OperationalError as error:  # pitfall M6: a damaged cell must not hide the others
        if "decode" not in str(error.orig):
            raise
    marked = set()

    def mark(text: bytes) -> str:
        legible = text.decode(errors="replace")
        if legible.encode() != text:
            marked.add(text)
        return legible

    direct: Any = connection.connection.driver_connection
    direct.text_factory = mark
    try:
        found = ask()
    finally:
        direct.text_factory = str
    return replace(found, damaged=found.damaged + len(marked))


def past(connection: sa.Connection, fleet: str, since: datetime, until: datetime) -> Past:
    period = _Period(fleet, instant(since), instant(until))
    reader = _Reader()
    coverage = status_intervals.coverage_of(connection, fleet)
    statuses = reader.whole(
        _intervals(connection, period),
        lambda columns: status_intervals.intervals_of(columns, coverage, reader.names),
        lambda row: status_intervals.interval_of(row, coverage, reader.times),
    )
    drifts, days = _drift(connection, period, reader)
    actions, replacements = _outcomes(connection, period, reader)
    first = _first_seen(connection.execute(_first(fleet)).all(), reader)
    attempts = _attempts(connection, period, _told_of(period), reader)
    return Past(statuses, drifts, actions, first, reader.damaged, attempts, replacements, tuple(days))


def illness(connection: sa.Connection, fleet: str, since: datetime, until: datetime) -> Past:
    """Return the part of a period that lemon scores are made of: the signals, and the attempts that count."""
    period, reader = _Period(fleet, instant(since), instant(until)), _Reader()
    drifts = reader.episodes(_signals(connection, period))
    return Past(episodes=drifts, attempts=_attempts(connection, period, _FOR_LEMONS, reader), damaged=reader.damaged)


@dataclass(frozen=True, slots=True)
class _Period:
    """A period of a fleet, in the texts of the ledger. `fleet`: "" = all."""

    fleet: str
    begin: str
    end: str

    def is_ours(self, fleet: str) -> bool:
        return not self.fleet or fleet in ("", self.fleet)

    def of_journal(self, table: sa.FromClause, event: str) -> sa.ColumnElement[bool]:
        return is_event(table, event) & (table.c.at >= self.begin) & (table.c.at <= self.end)


_INTENT, _OUTCOME = journal.alias("intent"), journal.alias("outcome")
_FOR_HEALTH = (_INTENT.c.detail == REMEDIATION) | _INTENT.c.action.in_(_TELLING)
_FOR_LEMONS = (
    (_INTENT.c.detail == REMEDIATION)
    | ((_INTENT.c.action == "mark") & _INTENT.c.detail.startswith(ISOLATED, autoescape=True))
    | ((_INTENT.c.action == "run_gate") & (_OUTCOME.c.data == '"permanent"'))
)
_IS_SIGNAL = drift.c.path.startswith(SIGNALS, autoescape=True)


def _told_of(period: _Period) -> sa.ColumnElement[bool]:
    """Return which attempts a report tells of: what scores count, and what was done to nodes while they were ill.

    Most attempts are at new images, of nodes that are well.
    """
    ill = sa.select(drift.c.node).where(_IS_SIGNAL, _overlap(period))
    return _FOR_LEMONS | (_FOR_HEALTH & _INTENT.c.node.in_(ill))


def _attempts(
    connection: sa.Connection, period: _Period, wanted: sa.ColumnElement[bool], reader: _Reader
) -> dict[str, tuple[Attempt, ...]]:
    """Return what was done to nodes for their health, by node, the oldest first: repairs, isolations, drains, gates."""
    ended = (_OUTCOME.c.attempt == _INTENT.c.id) & (_OUTCOME.c.event == "outcome")
    cells = (_INTENT.c[name] for name in ("node", "action", "target", "detail", "at"))
    query = (
        sa.select(*cells, _OUTCOME.c.data.label("said"), _OUTCOME.c.at.label("ended"))
        .join(_OUTCOME, ended, isouter=True)
        .where(period.of_journal(_INTENT, "intent"), wanted)
        .order_by(_oldest(_INTENT))
    )
    found: dict[str, list[Attempt]] = defaultdict(list)
    for node, attempt in reader.all(connection.execute(_of_fleet(query, period.fleet, _INTENT)).all(), reader.attempt):
        found[node].append(attempt)
    return {node: tuple(some) for node, some in found.items()}


def _oldest(rows: sa.FromClause) -> sa.ColumnElement[int]:
    """Return the order by age, in words that keep databases from walking through the whole table to have it."""
    return rows.c.id + 0


def _of_fleet(query: sa.Select[Any], fleet: str, rows: sa.FromClause) -> sa.Select[Any]:
    """Keep the rows of the journal that runs of this fleet or of none have written."""
    if not fleet:
        return query
    ours = runs.c.fleet.is_(None) | runs.c.fleet.in_(("", fleet))
    return query.join(runs, runs.c.run == rows.c.run, isouter=True).where(ours)


class _Reader:
    def __init__(self) -> None:
        self.damaged = 0
        self.times = instants()
        self.names: Decoded[str] = Decoded(str)  # one text of a name for all of its rows
        self.paths: Decoded[str] = Decoded(_text)

    def whole(
        self, rows: Sequence[Any], decode: Callable[[Columns], Iterable[T]], one: Callable[[Any], T]
    ) -> tuple[T, ...]:
        """Decode rows column by column, which takes a third of the time; where one is damaged, each by itself."""
        try:
            return tuple(decode(list(zip(*rows, strict=True)))) if rows else ()
        except (ValueError, TypeError, KeyError):
            return self.all(rows, one)

    def episodes(self, rows: Sequence[Any]) -> tuple[Episode, ...]:
        return self.whole(rows, self._episodes, self._episode)

    def _episodes(self, columns: Columns) -> Iterable[Episode]:
        _, node, path, kind, first_seen, ended_at = columns
        cells = (
            map(self.names.__getitem__, node),
            map(self.paths.__getitem__, path),
            kind,
            times_of(first_seen),
            times_of(ended_at),
        )
        return map(partial(tuple.__new__, Episode), zip(*cells, strict=True))

    def all(self, rows: Iterable[Any], decode: Callable[[Any], T]) -> tuple[T, ...]:
        found = []
        for row in rows:
            try:
                found.append(decode(row))
            except ValueError:
                self.damaged += 1
        return tuple(found)

    def _episode(self, row: Any) -> Episode:
        _, node, path, kind, first_seen, ended_at = row
        until = None if ended_at is None else self.times[ended_at]
        return Episode(self.names[node], self.paths[path], kind, self.times[first_seen], until)

    def attempt(self, row: Any) -> tuple[str, Attempt]:
        node, action, target, cause, at, said, ended = row
        outcome = "started" if said is None else _outcome(said)
        end = None if ended is None else self.times[ended]
        return node, Attempt(action, target, cause, self.times[at], outcome, ended_at=end)


def _text(cell: Any) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"{cell!r} is no text")  # noqa: TRY004 - as all that is damaged
    return cell


def _intervals(connection: sa.Connection, period: _Period) -> list[Any]:
    """Read open and ended intervals apart, and order them here.

    Where both are asked for at once and in order, SQLite at times reads all intervals of the fleet, which lie so.
    """
    table = intervals
    begun = sa.select(*status_intervals.INTERVAL).where(table.c.fleet == period.fleet, table.c.since <= period.end)
    apart = (begun.where(table.c.until.is_(None)), begun.where(table.c.until >= period.begin))
    still, over = (connection.execute(query).all() for query in apart)
    last = {row[_NODE]: row for row in still}  # one of each node
    by_node: dict[str, list[Any]] = defaultdict(list)
    for row in over:
        by_node[row[_NODE]].append(row)
    found: list[Any] = []
    try:
        for node in sorted(last.keys() | by_node.keys()):
            if node in by_node:
                found += sorted([*by_node[node], last[node]] if node in last else by_node[node], key=_SINCE_ID)
            else:
                found.append(last[node])
    except TypeError:  # a damaged cell, such as a number in place of a name
        return sorted([*still, *over], key=lambda row: (str(row.node), str(row.since), row.id))
    return found


_NODE, *_AT = ([column.name for column in status_intervals.INTERVAL].index(n) for n in ("node", "since", "id"))
_SINCE_ID = itemgetter(*_AT)


def _first_seen(rows: Sequence[Any], reader: _Reader) -> dict[str, datetime]:
    names = [row.node for row in rows]
    with suppress(ValueError, TypeError):
        return dict(zip(names, times_of([since for _, since in rows]), strict=True))
    found = {}
    for name, cell in rows:
        with suppress(ValueError):  # a damaged one was counted if it falls in the period
            found[name] = reader.times[cell]
    return found


def _first(fleet: str) -> sa.Select[Any]:
    table = intervals
    return sa.select(table.c.node, sa.func.min(table.c.since)).where(table.c.fleet == fleet).group_by(table.c.node)


def _overlap(period: _Period) -> sa.ColumnElement[bool]:
    """Return the condition for drift that was there at some time of the period."""
    return (drift.c.first_seen <= period.end) & (drift.c.ended_at.is_(None) | (drift.c.ended_at >= period.begin))


def _drift(connection: sa.Connection, period: _Period, reader: _Reader) -> tuple[tuple[Episode, ...], list[DriftDay]]:
    """Return the drift of a period: days that are summed up, and the rest one by one, in the order of their rows."""
    pages = day_sums.pages(connection, day_sums.DRIFT, period.fleet, period.begin, period.end)
    summed = [
        DriftDay(
            to_instant(start_of(day), "day"),
            one["came"],
            one["went"],
            [us / 1e6 for us in one["us"]],
            one["where"],
        )
        for day, one in pages.items()
    ]
    begun = (drift.c.first_seen <= period.end) & day_sums.of_nodes_of(connection, period.fleet)
    within = [day_sums.DRIFT.within(*gap) for gap in day_sums.gaps(period.begin, pages)]
    query = sa.select(*EPISODE).where(begun).order_by(_oldest(drift))
    rows = [row for part in (drift.c.ended_at.is_(None), *within) for row in connection.execute(query.where(part))]
    rows += [row for one in pages.values() for row in one["alone"] if not row[_BEGUN] > period.end]
    return reader.episodes(sorted(rows, key=itemgetter(0))), summed


_BEGUN = [column.name for column in EPISODE].index("first_seen")


def _signals(connection: sa.Connection, period: _Period) -> Sequence[Any]:
    ours = day_sums.of_nodes_of(connection, period.fleet)
    query = sa.select(*EPISODE).where(_overlap(period), _IS_SIGNAL, ours).order_by(_oldest(drift))
    return connection.execute(query).all()


# --- the journal -----------------------------------------------------------------------------------------------------


def _outcomes(
    connection: sa.Connection, period: _Period, reader: _Reader
) -> tuple[tuple[ActionTally, ...], tuple[Replacement, ...]]:
    """Return the attempts that ended in a period, and the spares that were admitted in place of other nodes."""
    pages = day_sums.pages(connection, day_sums.OUTCOMES, "", period.begin, period.end)
    nodes_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    spares: list[Any] = []
    for page in pages.values():
        for whose, action, data, some in page["told"]:
            if period.is_ours(whose):
                nodes_of[action, data] += some
        spares += [(number, *rest) for number, whose, *rest in page["spares"] if period.is_ours(whose)]
    for begin, end in day_sums.gaps(period.begin, pages):
        within = day_sums.OUTCOMES.within(begin, end) & (journal.c.at <= period.end)
        query = sa.select(journal.c.action, journal.c.data, journal.c.node).where(within)
        for action, data, node in connection.execute(_of_fleet(query, period.fleet, journal)).all():
            nodes_of[action, data].append(node)
        admitted = (
            sa.select(journal.c.id, journal.c.node, journal.c.at, _INTENT.c.detail)
            .join(_INTENT, _INTENT.c.id == journal.c.attempt)
            .where(within, journal.c.data == '"done"', _INTENT.c.detail.startswith(IN_PLACE_OF, autoescape=True))
        )
        spares += connection.execute(_of_fleet(admitted, period.fleet, journal)).all()
    in_order = sorted(nodes_of, key=lambda key: tuple(map(str, key)))  # a damaged cell may be bytes
    tallies = reader.all(((*key, nodes_of[key]) for key in in_order), _action)
    return tallies, reader.all(_replaced(connection, spares), _replacement)


def _replaced(connection: sa.Connection, spares: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (node and time of the admission of a spare, mark of the node in whose place it serves), oldest first."""
    for _, spare, at, detail in sorted(spares):
        failed = detail.removeprefix(IN_PLACE_OF)
        marks = sa.select(journal.c.node, journal.c.at).where(
            journal.c.node == failed, journal.c.event == "intent", journal.c.action == "mark", journal.c.at <= at
        )
        mark = connection.execute(marks.order_by(journal.c.id.desc()).limit(1)).first()
        if mark is not None:
            yield (spare, at), mark


def _replacement(rows: tuple[Any, Any]) -> Replacement:
    (spare, at), failed = rows
    return Replacement(failed.node, spare, to_instant(failed.at, "mark"), to_instant(at, "admission"))


def _action(row: Any) -> ActionTally:
    action, data, some = row
    return ActionTally(action, _outcome(data), len(some), len(set(some)))


@lru_cache(maxsize=64)
def _outcome(cell: Any) -> str:
    """Decode an outcome once: a hundred thousand attempts have a handful of them."""
    return str(from_json(cell, "outcome"))
