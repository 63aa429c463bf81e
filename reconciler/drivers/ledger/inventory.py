"""What a ledger is and how much is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.drivers.ledger.schema import LEDGER_ID, VERSION, meta, metadata


@dataclass(frozen=True, slots=True)
class Info:
    id: str
    name: str  # file or URL, without password
    database: str  # sqlite | postgresql
    version: int  # of the schema
    bytes: int
    rows: Mapping[str, int]  # by table


def info(connection: sa.Connection, name: str) -> Info:
    known = {row.key: row.value for row in connection.execute(sa.select(meta.c.key, meta.c.value))}
    dialect = connection.dialect.name
    size = "pg_database_size(current_database())" if dialect == "postgresql" else "page_count * page_size"
    origin = "" if dialect == "postgresql" else " FROM pragma_page_count(), pragma_page_size()"
    used = connection.execute(sa.text(f"SELECT {size}{origin}")).scalar_one()
    tables = [table for table in metadata.sorted_tables if table is not meta]
    rows = {t.name: connection.execute(sa.select(sa.func.count()).select_from(t)).scalar_one() for t in tables}
    return Info(known[LEDGER_ID], name, dialect, int(known[VERSION]), int(used), dict(sorted(rows.items())))
