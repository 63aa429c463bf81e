"""Tell what transactions of PostgreSQL wrote to tables that are cached, and about which nodes: triggers list it.

A server has many other transactions: of other databases, of monitoring, of autovacuum, of the leaders of other fleets.
Before these were told apart, each of them cost a leader of 10,000 nodes two seconds to read all records again. A
trigger also sees what a person writes with a database shell. Leases are not cached, and their renewals are not listed.

A transaction writes rows of its own number, so that nobody waits for anybody: the tables and nodes that it has changed,
or ANY once they are many. Old rows are deleted on the way, those that another transaction is deleting left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import schema

KEPT = 100_000  # transactions, by their numbers: more than a cache asks for
ANY = "*"
MOST = 500  # statements and nodes that are listed of a transaction: of more, all is read again
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
_LIST_NODES = f"""
CREATE OR REPLACE FUNCTION ledger_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  this bigint := pg_current_xact_id()::text::bigint;
  before text[] := string_to_array(current_setting('ledger.listed', true), ' ');
  listed bigint := 0;
  more bigint := 1;
BEGIN
  IF before[1] = this::text THEN
    listed := before[2]::bigint;
  ELSIF this % 50 = 0 THEN
    DELETE FROM changes WHERE ctid IN (
      SELECT ctid FROM changes WHERE xid < this - {KEPT} LIMIT 20000 FOR UPDATE SKIP LOCKED
    );
  END IF;
  IF TG_OP = 'TRUNCATE' THEN
    more := {MOST};
  ELSE
    EXECUTE format(
      'INSERT INTO changes SELECT DISTINCT %s::bigint, %L, %I FROM (' || CASE TG_OP
        WHEN 'INSERT' THEN 'TABLE new_rows'
        WHEN 'DELETE' THEN 'TABLE old_rows'
        ELSE '(TABLE new_rows EXCEPT TABLE old_rows) UNION ALL (TABLE old_rows EXCEPT TABLE new_rows)' END
      || ') AS changed LIMIT {MOST} ON CONFLICT DO NOTHING', this, TG_TABLE_NAME, TG_ARGV[0]);
    GET DIAGNOSTICS more = ROW_COUNT;
  END IF;
  listed := listed + greatest(more, 1);
  IF listed >= {MOST} THEN
    INSERT INTO changes VALUES (this, '{ANY}', '{ANY}') ON CONFLICT DO NOTHING;
    PERFORM set_config('ledger.changed', this::text, true);
  END IF;
  PERFORM set_config('ledger.listed', this || ' ' || listed, true);
  RETURN NULL;
END $$"""  # noqa: S608 - numbers of ours
_KEYS = ("node", "subject", "pool", "digest")  # the column by which a table is cached: the first of these that it has
_TRIGGERS = {  # PostgreSQL hands the rows of a statement to a trigger of one event alone
    "INSERT": "REFERENCING NEW TABLE AS new_rows",
    "UPDATE": "REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows",
    "DELETE": "REFERENCING OLD TABLE AS old_rows",
    "TRUNCATE": "",
}


def list_changes(connection: sa.Connection) -> None:
    """Create the list of transactions and its triggers, where the database is PostgreSQL."""
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


def list_nodes(connection: sa.Connection) -> None:
    """List tables and nodes with each transaction. What is on the list already may have written about anything."""
    if connection.dialect.name != "postgresql":
        return
    for statement in (
        f"ALTER TABLE changes ADD COLUMN IF NOT EXISTS place TEXT NOT NULL DEFAULT '{ANY}', "
        f"ADD COLUMN IF NOT EXISTS node TEXT NOT NULL DEFAULT '{ANY}'",
        "ALTER TABLE changes DROP CONSTRAINT changes_pkey, ADD PRIMARY KEY (xid, place, node)",
        _LIST_NODES.replace("%", "%%"),
    ):
        connection.exec_driver_sql(statement)
    for table in _CACHED:
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS ledger_changed ON {table.name}")
        column = next(name for name in _KEYS if name in table.columns)
        for event, rows in _TRIGGERS.items():
            name = f"ledger_changed_{event.lower()}"
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name} ON {table.name}")
            if table is schema.path_sets and event == "INSERT":
                continue  # nothing that is cached can name a new one
            connection.exec_driver_sql(
                f"CREATE TRIGGER {name} AFTER {event} ON {table.name} {rows} "
                f"FOR EACH STATEMENT WHEN ({_FIRST}) EXECUTE FUNCTION ledger_changed('{column}')"
            )


def list_no_nodes(connection: sa.Connection) -> None:
    """Go back to the list of `list_changes`."""
    if connection.dialect.name != "postgresql":
        return
    connection.exec_driver_sql("DROP FUNCTION ledger_changed CASCADE")
    connection.exec_driver_sql("DELETE FROM changes AS one USING changes AS other "
                               "WHERE one.xid = other.xid AND one.ctid > other.ctid")  # fmt: skip
    connection.exec_driver_sql("ALTER TABLE changes DROP COLUMN place, DROP COLUMN node, ADD PRIMARY KEY (xid)")
    list_changes(connection)


def changes_by(execute: Callable[..., Any], ended: frozenset[int]) -> Iterator[tuple[str, str]]:
    """Yield what these transactions, which have ended, changed of cached tables: (table, node), or (ANY, ANY).

    `execute`: of a driver.
    """
    query = "SELECT xid, place, node FROM changes WHERE xid BETWEEN %s AND %s"
    for number, place, node in execute(query, (min(ended), max(ended))).fetchall():
        if number in ended:
            yield (ANY, ANY) if place == schema.path_sets.name else (place, node)
