"""Functions to write rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from reconciler.drivers.ledger import chain
from reconciler.drivers.ledger.rows import clean, to_json
from reconciler.drivers.ledger.seals import SEAL, last_seal, row_digest, row_seal, stored


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, or overwrite those with the same primary key. A row of only its key stays as it is."""
    if not rows:
        return
    connection.execute(_upsert(connection.dialect.name, table, tuple(rows[0])), list(rows))


@cache
def _upsert(dialect: str, table: sa.Table, names: tuple[str, ...]) -> Any:
    """Build the statement once: building takes SQLAlchemy longer than running it takes SQLite."""
    insert = _insert(dialect, table)
    columns = list(table.primary_key.columns)
    others = [name for name in names if name not in table.primary_key.columns]
    if not others:
        return insert.on_conflict_do_nothing(index_elements=columns)
    new: dict[str, Any] = {name: insert.excluded[name] for name in others}
    if "fleet" in new:  # a row that belongs to a fleet stays its own
        new["fleet"] = sa.case((table.c.fleet == "", insert.excluded.fleet), else_=table.c.fleet)
    return insert.on_conflict_do_update(index_elements=columns, set_=new)


def insert_new(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows whose primary key is new; the others stay as they are."""
    insert = _insert(connection.dialect.name, table)
    key = list(table.primary_key.columns)
    connection.execute(insert.on_conflict_do_nothing(index_elements=key), list(rows))


def _insert(dialect: str, table: sa.Table) -> Any:
    return (postgresql if dialect == "postgresql" else sqlite).insert(table)


def write_journal(
    connection: sa.Connection, at: str, run: str, node: str, event: str, *, detail: str, **values: Any
) -> int:
    row = {"at": at, "run": run, "node": node, "event": event, "detail": clean(detail)} | values
    return chain.append(connection, [row])


def write_sealed(connection: sa.Connection, at: str, table: sa.Table, row: Mapping[str, Any]) -> None:
    """Insert or overwrite a row that the journal binds.

    A row that was changed behind our back keeps its old seal: a new one would hide that from `audit verify`.
    """
    key = row[next(iter(table.primary_key.columns)).name]
    before = stored(connection, table, key)
    upsert(connection, table, [row])
    after = stored(connection, table, key)
    if after is None or (before is not None and row_digest(table, before) == row_digest(table, after)):
        return
    if last_seal(connection, table, after["node"], key) == (None if before is None else row_digest(table, before)):
        write_journal(connection, at, "", after["node"], SEAL, detail="", data=to_json(row_seal(table, after)))
