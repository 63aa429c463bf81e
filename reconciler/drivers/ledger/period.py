"""Read what happened in a period, for reports. A damaged row is counted, and hides no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger import status_intervals
from reconciler.drivers.ledger.rows import from_json, instant, instants, to_instant
from reconciler.drivers.ledger.schema import drift, is_event, journal, nodes, runs
from reconciler.drivers.ledger.schema import status_intervals as intervals
from reconciler.health.ladder import REMEDIATION
from reconciler.model.period_report import ActionTally, Episode, Past, Replacement
from reconciler.model.records import IN_PLACE_OF, ISOLATED, Attempt
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import ACTIONS

T = TypeVar("T")
_SIGNALS = "health."  # before the name of a signal, in its value path
# What takes a node out, empties it, judges it, or resets a BMC that hangs: a rung whose cause is a signal.
_TELLING = tuple(
    spec.name
    for spec in ACTIONS.values()
    if spec.takes_out or spec.drains or {c.GATE, c.BMC_ANSWERS} & {*spec.achieves}
)


def past(connection: sa.Connection, fleet: str, since: datetime, until: datetime) -> Past:
    period = _Period(fleet, instant(since), instant(until))
    reader = _Reader()
    at, coverage = reader.times, status_intervals.coverage_of(connection, fleet)
    statuses = reader.all(_intervals(connection, period), lambda row: status_intervals.interval_of(row, coverage, at))
    drifts = reader.all(connection.execute(_episodes(period)).all(), reader.episode)
    actions = reader.all(connection.execute(_actions(period)).all(), _action)
    first = {}
    for name, cell in connection.execute(_first(fleet)).all():
        try:
            first[name] = at[cell]
        except ValueError:
            continue  # it was counted above if it falls in the period
    attempts = _attempts(connection, period, _told_of(period), reader)
    replacements = reader.all(_replacements(connection, period), _replacement)
    return Past(statuses, drifts, actions, first, reader.damaged, attempts, replacements)


def illness(connection: sa.Connection, fleet: str, since: datetime, until: datetime) -> Past:
    """Return the part of a period that lemon scores are made of: the signals, and the attempts that count."""
    period, reader = _Period(fleet, instant(since), instant(until)), _Reader()
    drifts = reader.all(connection.execute(_episodes(period).where(_IS_SIGNAL)).all(), reader.episode)
    return Past(episodes=drifts, attempts=_attempts(connection, period, _FOR_LEMONS, reader), damaged=reader.damaged)


@dataclass(frozen=True, slots=True)
class _Period:
    """A period of a fleet, in the texts of the ledger. `fleet`: "" = all."""

    fleet: str
    begin: str
    end: str

    def of_journal(self, table: sa.FromClause, event: str) -> sa.ColumnElement[bool]:
        return is_event(table, event) & (table.c.at >= self.begin) & (table.c.at <= self.end)


_INTENT, _OUTCOME = journal.alias("intent"), journal.alias("outcome")
_FOR_HEALTH = (_INTENT.c.detail == REMEDIATION) | _INTENT.c.action.in_(_TELLING)
_FOR_LEMONS = (
    (_INTENT.c.detail == REMEDIATION)
    | ((_INTENT.c.action == "mark") & _INTENT.c.detail.startswith(ISOLATED, autoescape=True))
    | ((_INTENT.c.action == "run_gate") & (_OUTCOME.c.data == '"permanent"'))
)
_IS_SIGNAL = drift.c.path.startswith(_SIGNALS, autoescape=True)


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

    def all(self, rows: Iterable[Any], decode: Callable[[Any], T]) -> tuple[T, ...]:
        found = []
        for row in rows:
            try:
                found.append(decode(row))
            except ValueError:
                self.damaged += 1
        return tuple(found)

    def episode(self, row: Any) -> Episode:
        node, path, kind, first_seen, ended_at = row
        until = None if ended_at is None else self.times[ended_at]
        return Episode(node, path, kind, self.times[first_seen], until)

    def attempt(self, row: Any) -> tuple[str, Attempt]:
        node, action, target, cause, at, said, ended = row
        outcome = "started" if said is None else _outcome(said)
        end = None if ended is None else self.times[ended]
        return node, Attempt(action, target, cause, self.times[at], outcome, ended_at=end)


def _intervals(connection: sa.Connection, period: _Period) -> list[Any]:
    """Read open and ended intervals apart, and order them here.

    Where both are asked for at once and in order, SQLite at times reads all intervals of the fleet, which lie so.
    """
    table = intervals
    begun = sa.select(*status_intervals.INTERVAL).where(table.c.fleet == period.fleet, table.c.since <= period.end)
    apart = (begun.where(table.c.until.is_(None)), begun.where(table.c.until >= period.begin))
    rows = [row for query in apart for row in connection.execute(query).all()]
    try:
        return sorted(rows, key=_BY_NODE)
    except TypeError:  # a damaged cell, such as a number in place of a name
        return sorted(rows, key=lambda row: (str(row.node), str(row.since), row.id))


_BY_NODE = itemgetter(
    *([column.name for column in status_intervals.INTERVAL].index(n) for n in ("node", "since", "id"))
)


def _first(fleet: str) -> sa.Select[Any]:
    table = intervals
    return sa.select(table.c.node, sa.func.min(table.c.since)).where(table.c.fleet == fleet).group_by(table.c.node)


def _overlap(period: _Period) -> sa.ColumnElement[bool]:
    """Return the condition for drift that was there at some time of the period."""
    return (drift.c.first_seen <= period.end) & (drift.c.ended_at.is_(None) | (drift.c.ended_at >= period.begin))


def _episodes(period: _Period) -> sa.Select[Any]:
    cells = (drift.c[name] for name in ("node", "path", "kind", "first_seen", "ended_at"))
    query = sa.select(*cells).where(_overlap(period)).order_by(_oldest(drift))
    if not period.fleet:
        return query
    ours = nodes.c.fleet.is_(None) | nodes.c.fleet.in_(("", period.fleet))
    return query.join(nodes, nodes.c.node == drift.c.node, isouter=True).where(ours)


def _actions(period: _Period) -> sa.Select[Any]:
    count, different = sa.func.count().label("number"), sa.func.count(journal.c.node.distinct()).label("nodes")
    query = (
        sa.select(journal.c.action, journal.c.data, count, different)
        .where(period.of_journal(journal, "outcome"))
        .group_by(journal.c.action, journal.c.data)
        .order_by(journal.c.action, journal.c.data)
    )
    return _of_fleet(query, period.fleet, journal)


def _replacements(connection: sa.Connection, period: _Period) -> Iterator[tuple[Any, Any]]:
    """Yield (admission of a spare that ended well, mark of the node in whose place it serves), oldest first."""
    query = (
        sa.select(_OUTCOME.c.node, _OUTCOME.c.at, _INTENT.c.id, _INTENT.c.detail)
        .join(_INTENT, _INTENT.c.id == _OUTCOME.c.attempt)
        .where(period.of_journal(_OUTCOME, "outcome"), _OUTCOME.c.data == '"done"')
        .where(_INTENT.c.detail.startswith(IN_PLACE_OF, autoescape=True))
        .order_by(_oldest(_OUTCOME))
    )
    for row in connection.execute(_of_fleet(query, period.fleet, _OUTCOME)).all():
        failed = row.detail.removeprefix(IN_PLACE_OF)
        marks = sa.select(journal.c.node, journal.c.at).where(
            journal.c.node == failed, journal.c.event == "intent", journal.c.action == "mark", journal.c.at <= row.at
        )
        mark = connection.execute(marks.order_by(journal.c.id.desc()).limit(1)).first()
        if mark is not None:
            yield row, mark


def _replacement(rows: tuple[Any, Any]) -> Replacement:
    spare, failed = rows
    return Replacement(failed.node, spare.node, to_instant(failed.at, "mark"), to_instant(spare.at, "admission"))


def _action(row: Any) -> ActionTally:
    return ActionTally(row.action, _outcome(row.data), row.number, row.nodes)


@lru_cache(maxsize=64)
def _outcome(cell: Any) -> str:
    """Decode an outcome once: a hundred thousand attempts have a handful of them."""
    return str(from_json(cell, "outcome"))
