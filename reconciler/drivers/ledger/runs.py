"""Runs, and the plans that they used up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import clean, instant, or_long_ago, to_instant
from reconciler.drivers.ledger.schema import plans, runs
from reconciler.drivers.ledger.writing import upsert, write_journal
from reconciler.model.records import RunRecord


class SqlRuns(SqlRole):
    def plan_used(self, plan_id: str) -> bool:
        query = sa.select(plans.c.plan).where(plans.c.plan == plan_id)
        with self._database.read() as connection:
            return connection.execute(query).one_or_none() is not None

    def use_plan(self, plan_id: str, now: datetime) -> None:
        if self.plan_used(plan_id):
            return
        with self._database.write([]) as connection:
            upsert(connection, plans, [{"plan": plan_id, "used_at": instant(now)}])

    def start_run(self, run: str, command: str, commit: str, plan: str, now: datetime) -> None:
        values = {"run": run, "command": command, "commit_id": commit, "plan": plan}
        values |= {"started_at": instant(now), "fleet": self._fleet}
        with self._database.write([]) as connection:
            connection.execute(runs.insert().values(values))
            write_journal(connection, instant(now), run, "", "run", detail=f"{command} started")

    def end_run(self, run: str, exit_code: int, summary: str, now: datetime) -> None:
        values = {"ended_at": instant(now), "exit_code": exit_code, "summary": clean(summary)}
        with self._database.write([]) as connection:
            connection.execute(runs.update().where(runs.c.run == run).values(values))
            write_journal(connection, instant(now), run, "", "run", detail=f"exit {exit_code}: {summary}")

    def runs(self, names: Collection[str]) -> Mapping[str, RunRecord]:
        """Return the runs with these names that are on record, by name."""
        found = {}
        with self._database.read() as connection:
            for row in connection.execute(sa.select(runs).where(runs.c.run.in_(names))):
                ended = None
                with suppress(ValueError):
                    ended = None if row.ended_at is None else to_instant(row.ended_at, "end")
                begun = or_long_ago(row.started_at)
                found[row.run] = RunRecord(
                    row.run, row.command, row.commit_id, row.plan, begun, ended, row.exit_code, row.summary or ""
                )
        return found

    def last_commit(self) -> str:
        """Return the spec's commit that the newest `apply` or `run` had; "" when there was none."""
        ours = runs.c.fleet.in_(("", self._fleet)) if self._fleet else sa.true()
        acting = runs.c.command.in_(("apply", "run")) & (runs.c.commit_id != "")
        query = sa.select(runs.c.commit_id).where(ours & acting).order_by(runs.c.started_at.desc()).limit(1)
        with self._database.read() as connection:
            return connection.execute(query).scalar() or ""
