"""Rollouts as they began, and how long actions took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import schema
from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import instant, to_instant, to_json, to_object
from reconciler.model.errors import LedgerError
from reconciler.model.records import Rollout

MOST_DURATIONS = 20_000


class SqlRollouts(SqlRole):
    def rollouts(self) -> Mapping[str, Rollout]:
        return self._whole_table(schema.rollouts, lambda connection: _newest(connection, self._ours(schema.rollouts)))

    def start_rollout(self, rollout: Rollout, run: str) -> None:
        document = {"values": rollout.values, "before": rollout.before, "members": rollout.members}
        row = {
            "pool": rollout.pool,
            "digest": rollout.digest,
            "document": to_json(document),
            "rollback": int(rollout.rollback),
            "started_at": instant(rollout.started_at),
            "commit_id": rollout.commit,
            "run": run,
            "fleet": self._fleet,
        }
        with self._database.write([schema.rollouts]) as connection:
            connection.execute(schema.rollouts.insert().values(row))

    def durations(self, limit: int = MOST_DURATIONS) -> Sequence[tuple[str, str, str, float]]:
        if limit == MOST_DURATIONS:
            return self._whole_table(schema.journal, lambda connection: _durations(connection, limit))
        with self._database.read() as connection:
            return _durations(connection, limit)


def _newest(connection: sa.Connection, ours: sa.ColumnElement[bool]) -> Mapping[str, Rollout]:
    """Return the newest rollout of each pool. LedgerError for a damaged row: the open wave would be unknown."""
    table = schema.rollouts
    last = sa.select(sa.func.max(table.c.id)).where(ours).group_by(table.c.pool)
    query = sa.select(table).where(table.c.id.in_(last)).order_by(table.c.pool)
    try:
        return {row.pool: _rollout(row) for row in connection.execute(query)}
    except ValueError as error:
        raise LedgerError(f"the ledger has a damaged row, {error}; restore it from a backup") from error


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


@cache
def _ended() -> sa.Select[tuple[str, ...]]:
    """Build the query of `_durations` once: building it takes longer than running it."""
    journal = schema.journal
    outcome, resume = journal.alias("outcome"), journal.alias("resume")
    broken = sa.exists().where(resume.c.attempt == journal.c.id, resume.c.event == "resume")
    return (
        sa.select(journal.c.node, journal.c.action, journal.c.target, journal.c.at, outcome.c.at.label("ended"))
        .join(outcome, (outcome.c.attempt == journal.c.id) & (outcome.c.event == "outcome"))
        .where(journal.c.event == "intent", outcome.c.data == to_json("done"), ~broken)
        .order_by(journal.c.id.desc())
        .limit(sa.bindparam("most"))
    )


def _durations(connection: sa.Connection, limit: int) -> Sequence[tuple[str, str, str, float]]:
    """Return the durations of the newest attempts that one run did: a resumed one includes the time between runs."""
    found = []
    for row in connection.execute(_ended(), {"most": limit}):
        try:
            seconds = (to_instant(row.ended, "end") - to_instant(row.at, "start")).total_seconds()
        except ValueError:
            continue  # the node's record reports the damaged time as malformed
        found.append((row.node, row.action, row.target, seconds))
    return found
