"""Attempts that have no outcome yet, and what earlier ones learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import to_object
from reconciler.drivers.ledger.schema import journal, runs


def intent(connection: sa.Connection, attempt: int) -> sa.Row[Any]:
    """The row that an attempt began with."""
    return connection.execute(sa.select(journal).where(journal.c.id == attempt, journal.c.event == "intent")).one()


def unfinished(
    connection: sa.Connection, ours: sa.ColumnElement[bool] | None
) -> Sequence[tuple[int, str, str, str, Mapping[str, Any]]]:
    """`ours`: which runs are of this fleet; None: all."""
    later = journal.alias("later")
    ended = sa.exists().where(later.c.attempt == journal.c.id, later.c.event == "outcome")
    query = sa.select(journal).where(journal.c.event == "intent", ~ended).order_by(journal.c.id)
    if ours is not None:
        query = query.join(runs, runs.c.run == journal.c.run, isouter=True).where(ours)
    intents = connection.execute(query).all()
    merged = _merged(connection, intents)
    return [(row.id, row.node, row.action, row.target, merged[row.id]) for row in intents]


def before(connection: sa.Connection, attempt: int) -> Mapping[str, Any]:
    """The merged intent of the attempt before this one at the same action, target and node; {}: there is none."""
    this = journal.alias("this")
    same = (journal.c.node == this.c.node, journal.c.action == this.c.action, journal.c.target == this.c.target)
    query = sa.select(journal).join(this, sa.and_(this.c.id == attempt, *same))
    earlier = query.where(journal.c.event == "intent", journal.c.id < attempt).order_by(journal.c.id.desc()).limit(1)
    found = connection.execute(earlier).all()
    return _merged(connection, found)[found[0].id] if found else {}


def _merged(connection: sa.Connection, intents: Sequence[sa.Row[Any]]) -> Mapping[int, dict[str, Any]]:
    """Each intent, by number, with what was learnt after it."""
    amendments = sa.select(journal).where(
        journal.c.event == "amendment", journal.c.attempt.in_([row.id for row in intents])
    )
    merged: dict[int, dict[str, Any]] = {row.id: _mapping(row.data) for row in intents}
    for row in connection.execute(amendments.order_by(journal.c.id)):
        merged[row.attempt].update(_mapping(row.data))
    return merged


def _mapping(cell: str) -> dict[str, Any]:
    """Of an intent. A damaged one tells nothing; its node's record says that it is malformed."""
    try:
        return to_object(cell, "intent")
    except ValueError:
        return {}
