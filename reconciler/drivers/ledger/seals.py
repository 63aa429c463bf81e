"""Bind rows of other tables to the journal: a row of event `seal` has the digest of what they say (DESIGN 9).

A row is sealed in the transaction that writes it, and again whenever a sealed column changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import to_json, to_object
from reconciler.drivers.ledger.schema import attestations, install_attempts, journal

SEAL: Final = "seal"  # event of a row that binds a row of another table

# What decisions use. How far an install is changes with every report, and nobody is trusted for it.
_COLUMNS: Final[Mapping[sa.Table, tuple[str, ...]]] = {
    attestations: ("node", "endorsement", "boot_id", "reference", "at", "phase"),
    install_attempts: (
        "digest", "node", "document", "network", "host_key", "certificate", "attested_key", "revoked", "begun_at",
    ),
}  # fmt: skip
_CALLED: Final[Mapping[sa.Table, str]] = {attestations: "the TPM or the proved boot", install_attempts: "an install"}

Sealed = dict[tuple[str, str], tuple[int, str, str]]  # row of the journal, digest and node, by table and key


def row_digest(table: sa.Table, row: Mapping[str, Any]) -> str:
    """Return the digest of a row's sealed columns; "" if a cell is of a type that we never write."""
    try:
        content = to_json([row[name] for name in _COLUMNS[table]])
    except TypeError:
        return ""
    return hashlib.sha256(content.encode()).hexdigest()


def row_seal(table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of the journal row that binds a row."""
    return {"table": table.name, "key": row[_COLUMNS[table][0]], "sha256": row_digest(table, row)}


def stored(connection: sa.Connection, table: sa.Table, key: str) -> dict[str, Any] | None:
    """Return a row as it is stored, by its key."""
    query = sa.select(table).where(table.c[_COLUMNS[table][0]] == key)
    found = connection.execute(query).mappings().one_or_none()
    return None if found is None else dict(found)


def last_seal(connection: sa.Connection, table: sa.Table, node: str, key: str) -> str | None:
    """Return the digest that the journal knows of a row; None: it was never sealed."""
    query = sa.select(journal.c.data).where(journal.c.node == node, journal.c.event == SEAL)
    for (cell,) in connection.execute(query.order_by(journal.c.id.desc())):
        try:
            bound = to_object(cell, "seal")
        except ValueError:
            continue  # which `audit verify` names
        if (bound.get("table"), bound.get("key")) == (table.name, key):
            return str(bound.get("sha256"))
    return None


def sealed_rows(connection: sa.Connection) -> list[tuple[sa.Table, dict[str, Any]]]:
    """Return every row that is to be sealed, for a ledger of a version that sealed none."""
    return [
        (table, dict(row))
        for table, names in _COLUMNS.items()
        for row in connection.execute(sa.select(*(table.c[name] for name in names)).order_by(names[0])).mappings()
    ]


def check_seals(connection: sa.Connection, seals: Sealed) -> tuple[int | None, str, str] | None:
    """Compare rows with their last seals; return the journal row, the problem and what it is about."""
    seen = set()
    for table, row in sealed_rows(connection):
        key, called = (table.name, str(row[_COLUMNS[table][0]])), f"{_CALLED[table]} of node {row['node']}"
        seen.add(key)
        if key not in seals:
            return None, SEAL, f"no row of the journal knows {called}: it was inserted"
        number, digest, _ = seals[key]
        if row_digest(table, row) != digest:
            return number, SEAL, f"{called} was changed since"
    called_by_name = {table.name: called for table, called in _CALLED.items()}
    for bound, (number, _, node) in seals.items():
        if bound not in seen:
            return number, SEAL, f"{called_by_name.get(bound[0], bound[0])} of node {node} was removed"
    return None
