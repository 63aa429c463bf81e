"""Drift history: one row per episode, from the pass that first saw a difference to the first that saw it gone.

A difference that can't be read at present is not gone: its row stays open as last seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import chain
from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import clean, from_json, instant, or_long_ago, to_json
from reconciler.drivers.ledger.schema import drift
from reconciler.model.drift import ACTIONABLE, DriftClass

DriftRow = tuple[str, str, str, Any, Any]  # node, path, class, desired, observed
_ACTIONABLE = frozenset(kind.value for kind in ACTIONABLE)
_BY_ID = drift.update().where(drift.c.id == sa.bindparam("row_id"))
MANY = 500  # above this, reading a whole table beats naming each node


def of_nodes(column: sa.ColumnElement[str], names: Sequence[str]) -> sa.ColumnElement[bool]:
    return column.in_(names) if len(names) <= MANY else sa.true()


class SqlDrift(SqlRole):
    def record_drift(
        self,
        run: str,
        items: Sequence[DriftRow],
        nodes: Sequence[str],
        now: datetime,
        *,
        unread: Mapping[str, tuple[str, ...]] | None = None,
        under: str = "",
    ) -> Mapping[tuple[str, str], tuple[datetime, datetime]]:
        with self._database.write([]) as connection:
            return _record(connection, run, items, nodes, now, unread or {}, under)

    def open_drift(self, node: str) -> Sequence[tuple[str, str, Any, Any, datetime]]:
        """Return a node's open differences as last seen: (path, class, desired, observed, first seen).

        A damaged cell is returned as it is: they are for people.
        """
        query = (
            sa.select(drift)
            .where(drift.c.node == node, drift.c.ended_at.is_(None))
            .order_by(drift.c.first_seen, drift.c.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [(r.path, r.kind, _value(r.desired), _value(r.observed), or_long_ago(r.first_seen)) for r in rows]

    def drift_since(self) -> Mapping[tuple[str, str], datetime]:
        """Return when each open difference was first seen, by node and path."""
        query = sa.select(drift.c.node, drift.c.path, drift.c.first_seen).where(drift.c.ended_at.is_(None))
        with self._database.read() as connection:
            return {(r.node, r.path): or_long_ago(r.first_seen) for r in connection.execute(query)}


def _record(
    connection: sa.Connection,
    run: str,
    items: Sequence[DriftRow],
    nodes: Sequence[str],
    now: datetime,
    unread: Mapping[str, tuple[str, ...]],
    under: str,
) -> Mapping[tuple[str, str], tuple[datetime, datetime]]:
    seen = frozenset(nodes)
    query = sa.select(drift).where(drift.c.ended_at.is_(None), of_nodes(drift.c.node, nodes))
    open_now = (row for row in connection.execute(query) if row.node in seen and row.path.startswith(under))
    past = {(row.node, row.path): row for row in open_now}
    present = {(item[0], item[1]): item for item in items}
    ended = [key for key in past if key not in present and not key[1].startswith(unread.get(key[0], ()))]
    fresh = [item for key, item in present.items() if key not in past]
    at = instant(now)
    if ended:
        connection.execute(_BY_ID, [{"row_id": past[key].id, "ended_at": at} for key in ended])
    if fresh:
        connection.execute(drift.insert(), [_cells(item) | {"first_seen": at, "last_seen": at} for item in fresh])
    if again := [key for key, item in present.items() if key in past and not _hidden(item, past[key])]:
        connection.execute(_BY_ID, [_cells(present[k]) | {"row_id": past[k].id, "last_seen": at} for k in again])
    _journal(connection, run, at, fresh, [past[key] for key in ended])
    return {key: (or_long_ago(past[key].first_seen) if key in past else now, now) for key in present}


def _hidden(item: DriftRow, row: Any) -> bool:
    """Say whether a difference that was seen before can't be read at present."""
    return item[2] == DriftClass.UNKNOWN.value and row.kind in _ACTIONABLE


def _value(cell: str) -> Any:
    try:
        return from_json(cell, "value")
    except ValueError:
        return cell


def _cells(item: DriftRow) -> dict[str, str]:
    node, path, kind, desired, observed = item
    return {"node": node, "path": path, "kind": kind, "desired": to_json(desired), "observed": to_json(observed)}


def _journal(connection: sa.Connection, run: str, at: str, fresh: Sequence[DriftRow], ended: Sequence[Any]) -> None:
    begun = [
        (item[0], f"{item[1]} {item[2]}: {to_json(item[4])} instead of {to_json(item[3])}", _seen(item))
        for item in fresh
    ]
    over = [(row.node, f"{row.path} as desired again", {"path": row.path, "since": row.first_seen}) for row in ended]
    common = {"at": at, "run": run, "event": "drift"}
    rows = [common | {"node": node, "detail": clean(text), "data": to_json(data)} for node, text, data in begun + over]
    if rows:
        chain.append(connection, rows)


def _seen(item: DriftRow) -> dict[str, Any]:
    _, path, kind, desired, observed = item
    return {"path": path, "kind": kind, "desired": desired, "observed": observed}
