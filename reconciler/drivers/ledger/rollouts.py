"""Rollouts as they began."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import schema
from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import instant, to_instant, to_json, to_object
from reconciler.model.errors import LedgerError
from reconciler.model.records import Rollout


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

    def redate_rollouts(self, began: Mapping[str, datetime]) -> None:
        table = schema.rollouts
        with self._database.write([table]) as connection:
            for pool, at in began.items():
                last = sa.select(sa.func.max(table.c.id)).where(self._ours(table), table.c.pool == pool)
                this = table.c.id == last.scalar_subquery()
                connection.execute(table.update().where(this).values(started_at=instant(at)))


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
