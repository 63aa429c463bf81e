"""Tell which transactions of PostgreSQL wrote to tables that are cached: a trigger on each of them lists its own.

A server has many other transactions: of other databases, of monitoring, of autovacuum. Before these were told apart,
each of them cost a leader of 10,000 nodes two seconds to read all records again. A trigger also sees what a person
writes with a database shell. Leases are not cached, and their renewals are not listed.

A transaction writes one row, its own, so that nobody waits for anybody. Old rows are deleted on the way, those that
another transaction is deleting left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import schema

KEPT = 100_000  # transactions, by their numbers: more than a cache asks for
_CACHED = (
    schema.nodes, schema.path_sets, schema.applied, schema.silences, schema.holds, schema.certificates,
    schema.attestations, schema.install_attempts, schema.repairs, schema.journal, schema.rollouts,
    schema.status_intervals,
)  # fmt: skip
_LIST = f"""
CREATE OR REPLACE FUNCTION ledger_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  this bigint := pg_current_xact_id()::text::bigint;
BEGIN
  INSERT INTO changes VALUES (this) ON CONFLICT DO NOTHING;
  IF this % 50 = 0 THEN
    DELETE FROM changes WHERE xid IN (
      SELECT xid FROM changes WHERE xid < this - {KEPT} LIMIT 1000 FOR UPDATE SKIP LOCKED
    );
  END IF;
  PERFORM set_config('ledger.changed', this::text, true);
  RETURN NULL;
END $$"""  # noqa: S608 - a number of ours
# Once in a transaction: many statements of one write a row each.
_FIRST = "current_setting('ledger.changed', true) IS DISTINCT FROM pg_current_xact_id()::text"


def list_changes(connection: sa.Connection) -> None:
    """Create the list and its triggers, where the database is PostgreSQL."""
    if connection.dialect.name != "postgresql":
        return
    connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS changes (xid BIGINT PRIMARY KEY)")
    connection.exec_driver_sql(_LIST.replace("%", "%%"))
    for table in _CACHED:
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS ledger_changed ON {table.name}")
        connection.exec_driver_sql(
            f"CREATE TRIGGER ledger_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table.name} "
            f"FOR EACH STATEMENT WHEN ({_FIRST}) EXECUTE FUNCTION ledger_changed()"
        )


def unlist_changes(connection: sa.Connection) -> None:
    """Take the list and its triggers away again."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION IF EXISTS ledger_changed CASCADE")
        connection.exec_driver_sql("DROP TABLE IF EXISTS changes")


def writers(execute: Callable[..., Any], ended: frozenset[int]) -> frozenset[int]:
    """Return those of these transactions, which have ended, that wrote to cached tables. `execute`: of a driver."""
    query = "SELECT xid FROM changes WHERE xid BETWEEN %s AND %s"
    return ended.intersection(number for (number,) in execute(query, (min(ended), max(ended))).fetchall())
