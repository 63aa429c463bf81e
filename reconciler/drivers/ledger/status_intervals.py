"""The status of nodes over time: one row per uninterrupted interval, written when the status changes.

The fleet's row in `coverage` says that all open intervals continue, and each pass over the whole fleet updates it: a
hundred thousand unchanged nodes cost one row. An interval was observed until the coverage's `seen` if it was seen since
that coverage began, and until its own `seen` otherwise. When no pass has run for longer than `within`, the coverage and
every interval begin anew: the time between was not observed. Nor was the time between two passes of which one saw the
node in service and the other did not, unless they are close: it is unknown when that changed.

Open intervals are unique per fleet and node. Of two runners that write at once, the later one's row is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.cache import Cache, Rows
from reconciler.drivers.ledger.episodes import MANY, of_nodes
from reconciler.drivers.ledger.rows import Columns, Decoded, clean, instant, instants, or_long_ago, times_of
from reconciler.drivers.ledger.schema import coverage as coverage_table
from reconciler.drivers.ledger.schema import status_intervals
from reconciler.drivers.ledger.writing import upsert
from reconciler.model.period_report import ServiceStatus, StatusInterval
from reconciler.model.status import NodeStatus

_CLOSE = timedelta(minutes=10)  # between two passes of a loop: the time between them counts for the earlier status
_COVERAGE = sa.select(coverage_table).where(coverage_table.c.fleet == sa.bindparam("whose"))
INTERVAL = tuple(
    status_intervals.c[name]
    for name in ("id", "node", "pool", "status", "out_of_service", "since", "seen", "until", "code", "why")
)
_STATUSES = {status.value: status for status in NodeStatus}
_OUT = {None: None, 0: False, 1: True}
_STALE = 0.05  # of `within`: how old `seen` may be before a pass over some nodes updates it


@dataclass(frozen=True, slots=True)
class OpenInterval:
    """An interval that has not ended, as its row says. `status`: pool, status, out of service, code."""

    status: tuple[str, str, int | None, str]
    since: datetime
    seen: datetime


@dataclass(frozen=True, slots=True)
class Coverage:
    """The time that passes over the whole fleet cover without a gap."""

    since: datetime
    seen: datetime


@dataclass(slots=True)
class Changes:
    """The changes that a pass makes, by node. `coverage`: the fleet's new one, when the pass was over all of it."""

    ended: dict[str, datetime] = field(default_factory=dict)
    begun: dict[str, datetime] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    coverage: Coverage | None = None

    def __bool__(self) -> bool:
        return bool(self.coverage or self.ended or self.begun or self.seen)


class SqlStatuses(SqlRole):
    def record_service_status(
        self, statuses: Mapping[str, ServiceStatus], now: datetime, *, within: timedelta, whole: bool
    ) -> None:
        """Save statuses. The open intervals stay cached and are updated with what is written, except inside a batch."""
        in_batch = self._database.writing

        def cached(cache: Cache) -> dict[str, OpenInterval] | None:
            rows: Rows[OpenInterval] | None = cache.tables.get(status_intervals.name)
            return None if rows is None or rows.again else rows.by_node

        def read(connection: sa.Connection, cache: Cache) -> dict[str, OpenInterval]:
            rows: Rows[OpenInterval] | None = cache.tables.get(status_intervals.name)
            if rows is None and not whole:
                return open_intervals(connection, self._fleet, list(statuses))
            if rows is None or len(rows.again) > MANY:
                rows, names = Rows({}), None
                cache.tables[status_intervals.name] = rows
            else:
                names = list(rows.again)
            rows.renew(open_intervals(connection, self._fleet, names))
            return rows.by_node

        known = self._database.read_cached(cached, read)
        with self._database.read() as connection:
            coverage = coverage_of(connection, self._fleet)
        changes = _changes(known, coverage, statuses, now, within, whole=whole)
        if changes:
            with self._database.write([status_intervals] if in_batch else []) as connection:
                _write(connection, self._fleet, statuses, changes, now)
            _apply_changes(known, statuses, changes, now)

    def last_statuses(self) -> dict[str, StatusInterval]:
        """Return the status of each node as it was observed last. `seen`: until when it was. A damaged row is none."""
        query = sa.select(*INTERVAL).where(status_intervals.c.fleet == self._fleet, status_intervals.c.until.is_(None))
        with self._database.read() as connection:
            coverage, rows = coverage_of(connection, self._fleet), connection.execute(query).all()
        found, times = {}, instants()
        for row in rows:
            with suppress(ValueError):
                found[row.node] = interval_of(row, coverage, times)
        return found


def interval_of(row: Any, coverage: Coverage | None, times: Decoded[datetime]) -> StatusInterval:
    """Read a row of INTERVAL. Raise ValueError for one that is damaged. `times`: of all that are read at once."""
    _, node, pool, status, out, since_cell, seen_cell, until_cell, code, why = row
    since, seen = times[since_cell], times[seen_cell]
    until = None if until_cell is None else times[until_cell]
    if until is None:
        seen = observed_until(seen, coverage)
    known = _STATUSES.get(status)
    if known is None:
        raise ValueError(f"status {status!r} is none that is known")
    is_out = None if out is None else bool(out)
    return StatusInterval(node, pool, known, is_out, since, seen, until, code, why)


def intervals_of(columns: Columns, coverage: Coverage | None, names: Mapping[str, str]) -> Iterable[StatusInterval]:
    """Read rows of INTERVAL at once. ValueError, TypeError or KeyError: one of them is damaged."""
    _, node, pool, status, out, since, seen_cells, until_cells, code, why = columns
    seen, until = times_of(seen_cells), times_of(until_cells)
    if coverage is not None:
        begun, latest = coverage.since, coverage.seen  # see `observed_until`
        seen = [latest if end is None and begun <= at < latest else at for at, end in zip(seen, until, strict=True)]
    cells = (
        map(names.__getitem__, node), pool, map(_STATUSES.__getitem__, status), map(_OUT.__getitem__, out),
        times_of(since), seen, until, code, why,
    )  # fmt: skip
    return map(partial(tuple.__new__, StatusInterval), zip(*cells, strict=True))


def open_intervals(
    connection: sa.Connection, fleet: str, nodes: Sequence[str] | None = None
) -> dict[str, OpenInterval]:
    """Return the open intervals of all nodes, or of these. A damaged one counts as seen in 1970, and begins anew."""
    some = sa.true() if nodes is None else of_nodes(status_intervals.c.node, nodes)
    row = status_intervals.c
    query = sa.select(row.node, row.pool, row.status, row.out_of_service, row.code, row.since, row.seen)
    query = query.where(row.fleet == fleet, row.until.is_(None), some)
    known: dict[str, datetime] = {}  # many began at the same time
    found = {}
    for node, pool, status, out, code, since, seen in connection.execute(query):
        for cell in (since, seen):
            if cell not in known:
                known[cell] = or_long_ago(cell)
        found[node] = OpenInterval((pool, status, out, code), known[since], known[seen])
    return found


def coverage_of(connection: sa.Connection, fleet: str) -> Coverage | None:
    row = connection.execute(_COVERAGE, {"whose": fleet}).one_or_none()
    return None if row is None else Coverage(or_long_ago(row.since), or_long_ago(row.seen))


def observed_until(seen: datetime, coverage: Coverage | None) -> datetime:
    """Return until when an interval was observed whose row says `seen`."""
    return max(seen, coverage.seen) if coverage is not None and seen >= coverage.since else seen


def _write(
    connection: sa.Connection, fleet: str, statuses: Mapping[str, ServiceStatus], changes: Changes, now: datetime
) -> None:
    """Write changes. Where another runner has written since they were computed, its rows stay."""
    if changes.coverage is not None:
        row = {"fleet": fleet, "since": instant(changes.coverage.since), "seen": instant(changes.coverage.seen)}
        upsert(connection, coverage_table, [row])
    mine = (
        (status_intervals.c.fleet == fleet)
        & (status_intervals.c.node == sa.bindparam("which"))
        & status_intervals.c.until.is_(None)
    )
    if changes.ended:
        ended = [{"which": node, "until": instant(at)} for node, at in changes.ended.items()]
        connection.execute(status_intervals.update().where(mine).values(until=sa.bindparam("until")), ended)
    if changes.seen:
        connection.execute(
            status_intervals.update().where(mine).values(seen=instant(now)), [{"which": node} for node in changes.seen]
        )
    if changes.begun:
        insert = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(status_intervals)
        index = {
            "index_elements": [status_intervals.c.fleet, status_intervals.c.node],
            "index_where": status_intervals.c.until.is_(None),
        }
        rows = [_row(fleet, node, statuses[node], instant(at)) for node, at in changes.begun.items()]
        connection.execute(insert.on_conflict_do_nothing(**index), rows)


def _apply_changes(
    known: dict[str, OpenInterval], statuses: Mapping[str, ServiceStatus], changes: Changes, now: datetime
) -> None:
    """Update `known` with what was written."""
    for node in changes.ended:
        known.pop(node, None)
    for node in changes.seen:
        known[node] = replace(known[node], seen=now)
    for node, at in changes.begun.items():
        known[node] = OpenInterval(_cells(statuses[node]), at, at)


def _changes(
    known: Mapping[str, OpenInterval],
    coverage: Coverage | None,
    statuses: Mapping[str, ServiceStatus],
    now: datetime,
    within: timedelta,
    *,
    whole: bool,
) -> Changes:
    """Compare statuses with the open intervals; `known` has those of these nodes at least."""
    changes = Changes()
    if whole:
        continues = coverage is not None and now - coverage.seen <= within
        changes.coverage = (
            Coverage(coverage.since, max(now, coverage.seen))
            if coverage is not None and continues
            else Coverage(now, now)
        )
    for node, status in statuses.items():
        old = known.get(node)
        if old is None:
            changes.begun[node] = now
            continue
        end = observed_until(old.seen, coverage)
        if now - end > within:
            changes.ended[node], changes.begun[node] = end, now
        elif old.status != _cells(status):
            changes.begun[node] = max(now, end)  # clocks of two runners may differ
            changes.ended[node] = end if now - end > _CLOSE and _is_unexpected(old, status) else changes.begun[node]
        elif now - end > within * _STALE if changes.coverage is None else old.seen < changes.coverage.since:
            changes.seen.append(node)
    if whole:  # the others left the spec
        changes.ended |= {
            node: observed_until(old.seen, coverage) for node, old in known.items() if node not in statuses
        }
    return changes


def _is_unexpected(old: OpenInterval, now: ServiceStatus) -> bool:
    """Say whether a node left or entered service, and not by an action of ours."""
    _, status, out, _ = _cells(now)
    return old.status[2] != out and NodeStatus.ACTING.value not in (old.status[1], status)


def _row(fleet: str, node: str, service: ServiceStatus, at: str) -> dict[str, Any]:
    pool, status, out, code = _cells(service)
    return {
        "fleet": fleet,
        "node": node,
        "pool": pool,
        "status": status,
        "out_of_service": out,
        "code": code,
        "why": clean(service.why),
        "since": at,
        "seen": at,
    }


def _cells(status: ServiceStatus) -> tuple[str, str, int | None, str]:
    """Return what begins a new interval when it changes. `why` does not: it may change with every reading."""
    return status.pool, status.status.value, None if status.out is None else int(status.out), status.code
