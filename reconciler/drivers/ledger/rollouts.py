"""Rollouts as they began, and how long actions took: what the ledger tells of past changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import schema
from reconciler.drivers.ledger.rows import instant, to_instant, to_json, to_object
from reconciler.model.errors import LedgerError
from reconciler.model.records import Rollout


def newest(connection: sa.Connection, ours: sa.ColumnElement[bool]) -> Mapping[str, Rollout]:
    """By pool. LedgerError for a damaged row: without it nobody can say which wave is open."""
    table = schema.rollouts
    last = sa.select(sa.func.max(table.c.id)).where(ours).group_by(table.c.pool)
    query = sa.select(table).where(table.c.id.in_(last)).order_by(table.c.pool)
    try:
        return {row.pool: _rollout(row) for row in connection.execute(query)}
    except ValueError as error:
        raise LedgerError(f"the ledger has a damaged row, {error}; restore it from a backup") from error


def insert(connection: sa.Connection, rollout: Rollout, run: str, fleet: str) -> None:
    document = {"values": rollout.values, "before": rollout.before, "members": rollout.members}
    row = {
        "pool": rollout.pool,
        "digest": rollout.digest,
        "document": to_json(document),
        "rollback": int(rollout.rollback),
        "started_at": instant(rollout.started_at),
        "commit_id": rollout.commit,
        "run": run,
        "fleet": fleet,
    }
    connection.execute(schema.rollouts.insert().values(row))


def _rollout(row: Any) -> Rollout:
    what = f"rollout {row.id} of pool {row.pool}"
    document = to_object(row.document, what)
    try:
        values, before = ({p: tuple(v) for p, v in document[key].items()} for key in ("values", "before"))
        members = tuple(map(str, document["members"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{what} is damaged: {error!r}") from error
    started = to_instant(row.started_at, f"start of {what}")
    return Rollout(row.pool, row.digest, values, before, members, bool(row.rollback), started, row.commit_id)


def durations(connection: sa.Connection, limit: int) -> Sequence[tuple[str, str, str, float]]:
    """Of the newest attempts that ended done in one go: one that a later run went on with tells of the break too."""
    journal = schema.journal
    outcome, resume = journal.alias("outcome"), journal.alias("resume")
    broken = sa.exists().where(resume.c.attempt == journal.c.id, resume.c.event == "resume")
    query = (
        sa.select(journal.c.node, journal.c.action, journal.c.target, journal.c.at, outcome.c.at.label("ended"))
        .join(outcome, (outcome.c.attempt == journal.c.id) & (outcome.c.event == "outcome"))
        .where(journal.c.event == "intent", outcome.c.data == to_json("done"), ~broken)
        .order_by(journal.c.id.desc())
        .limit(limit)
    )
    found = []
    for row in connection.execute(query):
        try:
            seconds = (to_instant(row.ended, "end") - to_instant(row.at, "start")).total_seconds()
        except ValueError:
            continue  # a damaged time tells no duration; its node's record says that it is malformed
        found.append((row.node, row.action, row.target, seconds))
    return found
