"""The journal as a hash chain: each row has a digest of itself and of the row before, `meta` has the last digest.

Nobody can change, remove, insert or cut off a row in the database without the chain showing where (DESIGN 9).
Certificates, serial numbers and UUIDs of nodes are bound by a row each, as are TPMs, proved boots and installs
(`seals`), the fencing token by the tokens of rows and leases. The chain is no signature: a journal that was rewritten
as a whole is detected by a head that was noted elsewhere (`audit verify --head`). Where rows were pruned, it goes on
from an anchor.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import to_json
from reconciler.drivers.ledger.schema import (
    HEAD,
    journal,
    meta,
)
from reconciler.model.errors import LedgerError

_EMPTY: Mapping[str, Any] = {"action": "", "target": "", "attempt": None, "token": None, "data": "null"}
_CHAINED = ("id", "at", "run", "node", "event", "action", "target", "attempt", "token", "detail", "data")
# Statements of each row of the journal: building one takes longer than running it.
_HEAD = sa.select(meta.c.value).where(meta.c.key == HEAD).with_for_update()
_ADD = journal.insert()
_MOVE_HEAD = meta.update().where(meta.c.key == HEAD).values(value=sa.bindparam("head"))
IDENTITY = "identity"  # event of a row that binds a node's serial number and UUID


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> int:
    """Append journal rows; return the id of the first. The head stays locked until the commit.

    Ids have no gaps: a transaction that is rolled back leaves none.
    """
    last, digest = lock(connection)
    written = []
    for number, row in enumerate(rows, last + 1):
        full = {**_EMPTY, **row, "id": number}
        digest = full["digest"] = digest_of(digest, full)
        written.append(full)
    connection.execute(_ADD, written)
    connection.execute(_MOVE_HEAD, {"head": f"{last + len(written)} {digest}"})
    return last + 1


def lock(connection: sa.Connection) -> tuple[int, str]:
    """Return the head of the chain, id and digest, which nobody else moves before the transaction ends."""
    try:
        return head_in(connection.execute(_HEAD).scalar_one_or_none())
    except ValueError as error:
        raise LedgerError(f"the ledger's journal can't be continued: {error}; restore it from a backup") from error


def digest_of(before: str, row: Mapping[Any, Any]) -> str:
    """Return a row's digest. `before`: the digest of the row before it; the ledger's id for the first row."""
    content = to_json([row[name] for name in _CHAINED])
    return hashlib.sha256(f"{before}\n{content}".encode()).hexdigest()


def seal_of(number: int, document: str) -> dict[str, Any]:
    """Return the data of the journal row that binds a certificate's document."""
    return {"certificate": number, "sha256": hashlib.sha256(document.encode()).hexdigest()}


def identity_of(serial: str | None, uuid: str | None) -> dict[str, Any]:
    """Return the data of the journal row that binds a node's identity."""
    return {"serial": serial, "uuid": uuid}


def head_in(cell: Any) -> tuple[int, str]:
    found = re.fullmatch(r"([0-9]{1,18}) (\S+)", cell) if isinstance(cell, str) else None
    if found is None:
        raise ValueError("the head of the chain is lost" if cell is None else f"the head of the chain is {cell!r}")
    return int(found[1]), found[2]


def follows(before: str, row: Mapping[Any, Any]) -> bool:
    """Say whether a row follows the row with this digest. We never write bytes, which raise TypeError."""
    try:
        return bool(digest_of(before, row) == row["digest"])
    except TypeError:
        return False
