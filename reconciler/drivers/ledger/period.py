"""Read what happened in a period, for reports. A damaged row is counted, and hides no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger import status_intervals
from reconciler.drivers.ledger.rows import from_json, instant, to_instant
from reconciler.drivers.ledger.schema import drift, journal, nodes, runs
from reconciler.drivers.ledger.schema import status_intervals as intervals
from reconciler.health.ladder import REMEDIATION
from reconciler.model.period_report import ActionTally, Episode, Past, Replacement, StatusInterval
from reconciler.model.records import IN_PLACE_OF, Attempt
from reconciler.model.status import NodeStatus
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import ACTIONS

T = TypeVar("T")
# What takes a node out, empties it, or judges it.
_TELLING = tuple(spec.name for spec in ACTIONS.values() if spec.takes_out or spec.drains or c.GATE in spec.achieves)


def past(connection: sa.Connection, fleet: str, since: datetime, until: datetime) -> Past:
    begin, end = instant(since), instant(until)
    reader = _Reader()
    coverage = status_intervals.coverage_of(connection, fleet)
    statuses = reader.all(connection.execute(_intervals(fleet, begin, end)), lambda row: _interval(row, coverage))
    drifts = reader.all(connection.execute(_episodes(fleet, begin, end)), _episode)
    actions = reader.all(connection.execute(_actions(fleet, begin, end)), _action)
    first = {}
    for name, at in connection.execute(_first(fleet)):
        try:
            first[name] = to_instant(at, "first seen")
        except ValueError:
            continue  # it was counted above if it falls in the period
    attempts = _attempts(connection, fleet, begin, end, reader)
    replacements = reader.all(_replacements(connection, fleet, begin, end), _replacement)
    return Past(statuses, drifts, actions, first, reader.damaged, attempts, replacements)


def _attempts(
    connection: sa.Connection, fleet: str, begin: str, end: str, reader: _Reader
) -> dict[str, tuple[Attempt, ...]]:
    """Return what was done to nodes for their health, by node, the oldest first: repairs, isolations, drains, gates."""
    intent, outcome = journal.alias("intent"), journal.alias("outcome")
    health = (intent.c.detail == REMEDIATION) | intent.c.action.in_(_TELLING)
    ended = (outcome.c.attempt == intent.c.id) & (outcome.c.event == "outcome")
    query = (
        sa.select(intent, outcome.c.data.label("said"), outcome.c.at.label("ended"))
        .join(outcome, ended, isouter=True)
        .where(intent.c.event == "intent", intent.c.at >= begin, intent.c.at <= end, health)
        .order_by(intent.c.id)
    )
    if fleet:
        ours = runs.c.fleet.is_(None) | runs.c.fleet.in_(("", fleet))
        query = query.join(runs, runs.c.run == intent.c.run, isouter=True).where(ours)
    found: dict[str, list[Attempt]] = defaultdict(list)
    for node, attempt in reader.all(connection.execute(query), _attempt):
        found[node].append(attempt)
    return {node: tuple(some) for node, some in found.items()}


def _attempt(row: Any) -> tuple[str, Attempt]:
    ended = None if row.ended is None else to_instant(row.ended, "end")
    outcome = "started" if row.said is None else str(from_json(row.said, "outcome"))
    return row.node, Attempt(row.action, row.target, row.detail, to_instant(row.at, "start"), outcome, ended_at=ended)


class _Reader:
    def __init__(self) -> None:
        self.damaged = 0

    def all(self, rows: Iterable[Any], decode: Callable[[Any], T]) -> tuple[T, ...]:
        found = []
        for row in rows:
            try:
                found.append(decode(row))
            except ValueError:
                self.damaged += 1
        return tuple(found)


def _intervals(fleet: str, begin: str, end: str) -> sa.Select[Any]:
    table = intervals
    overlap = (table.c.since <= end) & (table.c.until.is_(None) | (table.c.until >= begin))
    return sa.select(table).where(table.c.fleet == fleet, overlap).order_by(table.c.node, table.c.since, table.c.id)


def _first(fleet: str) -> sa.Select[Any]:
    table = intervals
    return sa.select(table.c.node, sa.func.min(table.c.since)).where(table.c.fleet == fleet).group_by(table.c.node)


def _episodes(fleet: str, begin: str, end: str) -> sa.Select[Any]:
    overlap = (drift.c.first_seen <= end) & (drift.c.ended_at.is_(None) | (drift.c.ended_at >= begin))
    query = sa.select(drift).where(overlap).order_by(drift.c.id)
    if not fleet:
        return query
    ours = nodes.c.fleet.is_(None) | nodes.c.fleet.in_(("", fleet))
    return query.join(nodes, nodes.c.node == drift.c.node, isouter=True).where(ours)


def _actions(fleet: str, begin: str, end: str) -> sa.Select[Any]:
    count, different = sa.func.count().label("number"), sa.func.count(journal.c.node.distinct()).label("nodes")
    query = (
        sa.select(journal.c.action, journal.c.data, count, different)
        .where(journal.c.event == "outcome", journal.c.at >= begin, journal.c.at <= end)
        .group_by(journal.c.action, journal.c.data)
        .order_by(journal.c.action, journal.c.data)
    )
    if not fleet:
        return query
    ours = runs.c.fleet.is_(None) | runs.c.fleet.in_(("", fleet))
    return query.join(runs, runs.c.run == journal.c.run, isouter=True).where(ours)


def _replacements(connection: sa.Connection, fleet: str, begin: str, end: str) -> Iterator[tuple[Any, Any]]:
    """Yield (admission of a spare that ended well, mark of the node in whose place it serves), oldest first."""
    intent = journal.alias("intent")
    query = (
        sa.select(journal.c.node, journal.c.at, intent.c.id, intent.c.detail)
        .join(intent, intent.c.id == journal.c.attempt)
        .where(journal.c.event == "outcome", journal.c.data == '"done"', journal.c.at >= begin, journal.c.at <= end)
        .where(intent.c.detail.startswith(IN_PLACE_OF, autoescape=True))
        .order_by(journal.c.id)
    )
    if fleet:
        ours = runs.c.fleet.is_(None) | runs.c.fleet.in_(("", fleet))
        query = query.join(runs, runs.c.run == journal.c.run, isouter=True).where(ours)
    for row in connection.execute(query).all():
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


def _interval(row: Any, coverage: status_intervals.Coverage | None) -> StatusInterval:
    since, seen = to_instant(row.since, "start"), to_instant(row.seen, "last seen")
    until = None if row.until is None else to_instant(row.until, "end")
    out = None if row.out_of_service is None else bool(row.out_of_service)
    if until is None:
        seen = status_intervals.observed_until(seen, coverage)
    return StatusInterval(row.node, row.pool, NodeStatus(row.status), out, since, seen, until, row.code, row.why)


def _episode(row: Any) -> Episode:
    until = None if row.ended_at is None else to_instant(row.ended_at, "end")
    return Episode(row.node, row.path, row.kind, to_instant(row.first_seen, "first seen"), until)


def _action(row: Any) -> ActionTally:
    return ActionTally(row.action, str(from_json(row.data, "outcome")), row.number, row.nodes)
