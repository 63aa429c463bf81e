"""The journal as a chain: each row carries a digest of itself and of the row before it, meta carries the last one.

Whoever edits the database can't change, remove, insert or cut off a row without the chain showing where (DESIGN 9).
Documents of certificates are bound by their digest, which is part of a row. The chain is no signature: who rewrites all
of it is found out by a head that was noted elsewhere (`audit verify --head`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import to_json, to_object
from reconciler.drivers.ledger.schema import HEAD, LEDGER_ID, certificates, journal, meta
from reconciler.model.errors import LedgerError

_EMPTY: Mapping[str, Any] = {"action": "", "target": "", "attempt": None, "token": None, "data": "null"}
_CHAINED = ("id", "at", "run", "node", "event", "action", "target", "attempt", "token", "detail", "data")
_PAGE = 5000  # rows


@dataclass(frozen=True, slots=True)
class Audit:
    """What a verification found. `row`: the first of the journal that is not as it was written, or is missing."""

    rows: int
    certificates: int
    head: str  # digest of the last row, as meta has it
    row: int | None = None
    problem: str = (
        ""  # changed | removed | inserted | cut off | certificate | rewritten | head; "" = all is as it was written
    )
    detail: str = ""


# --- writing ---------------------------------------------------------------------------------------------------------


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write journal rows behind the last one; the id of the first. The head stays locked until the commit.

    Ids are the chain's own, without gaps: a rolled back transaction leaves none.
    """
    query = sa.select(meta.c.value).where(meta.c.key == HEAD).with_for_update()
    try:
        last, digest = _head(connection.execute(query).scalar_one_or_none())
    except ValueError as error:
        raise LedgerError(f"the ledger's journal can't be continued: {error}; restore it from a backup") from error
    written = []
    for number, row in enumerate(rows, last + 1):
        full = {**_EMPTY, **row, "id": number}
        digest = full["digest"] = digest_of(digest, full)
        written.append(full)
    connection.execute(journal.insert(), written)
    connection.execute(meta.update().where(meta.c.key == HEAD).values(value=f"{last + len(written)} {digest}"))
    return last + 1


def digest_of(before: str, row: Mapping[str, Any]) -> str:
    """`before`: digest of the row before; the ledger's id for the first."""
    content = to_json([row[name] for name in _CHAINED])
    return hashlib.sha256(f"{before}\n{content}".encode()).hexdigest()


def seal_of(number: int, document: str) -> dict[str, Any]:
    """What the journal row of a certificate says of its document."""
    return {"certificate": number, "sha256": hashlib.sha256(document.encode()).hexdigest()}


def _head(cell: str | None) -> tuple[int, str]:
    number, _, digest = (cell or "").partition(" ")
    if not number.isdigit() or not digest:
        raise ValueError("the head of the chain is lost" if cell is None else f"the head of the chain is {cell!r}")
    return int(number), digest


# --- verifying -------------------------------------------------------------------------------------------------------


def verify(connection: sa.Connection, noted: str = "") -> Audit:
    """Read all of it, in one snapshot. `noted`: a head of earlier on, which must still be part of the chain."""
    known = {row.key: row.value for row in connection.execute(sa.select(meta.c.key, meta.c.value))}
    cell, seals = known.get(HEAD), dict[int, tuple[int, str]]()
    try:
        last, head = _head(cell)
    except ValueError as error:
        return Audit(_count(connection, journal), 0, cell or "", None, "head", str(error))
    walk = _Walk(_Link(0, known.get(LEDGER_ID, "")), _Link(last, head), seals, noted)
    with connection.execute(sa.select(journal).order_by(journal.c.id).execution_options(yield_per=_PAGE)) as rows:
        found = walk.through(rows.mappings())
    found = found or walk.ended() or _certificates(connection, seals)
    row, problem, detail = found or (None, "", "")
    return Audit(_count(connection, journal), len(seals), head, row, problem, detail)


_Finding = tuple[int | None, str, str]  # row, problem, detail


@dataclass(frozen=True, slots=True)
class _Link:
    id: int
    digest: str


class _Walk:
    """Along the chain, row by row, remembering what was passed."""

    def __init__(self, start: _Link, end: _Link, seals: dict[int, tuple[int, str]], noted: str) -> None:
        self._before = start
        self._end = end
        self._seals = seals
        self._missed = noted  # a head of earlier on, until it is met

    def through(self, rows: Iterable[Mapping[Any, Any]]) -> _Finding | None:
        """The first row that is not as it was written."""
        following = iter(rows)
        for row in following:
            if row["id"] > self._end.id:
                return row["id"], "inserted", f"the chain ends with row {self._end.id}"
            if digest_of(self._before.digest, row) != row["digest"]:
                return self._judge(row, next(following, None))
            self._before = _Link(row["id"], row["digest"])
            if row["digest"] == self._missed:
                self._missed = ""
            self._note_seal(row)
        return None

    def _judge(self, row: Mapping[str, Any], after: Mapping[str, Any] | None) -> _Finding:
        """What became of a row that doesn't fit: the one behind it tells."""
        number, last = row["id"], self._before.id
        if after is not None and digest_of(self._before.digest, after) == after["digest"]:
            return number, "inserted", f"the chain leads from row {last} to row {after['id']}"
        if number > last + 1:
            gone = f"row {last + 1} is" if number == last + 2 else f"rows {last + 1} to {number - 1} are"
            return last + 1, "removed", f"{gone} missing"
        told = f"{row['event']} of {row['node'] or row['run']} at {row['at']}"
        return number, "changed", told + (f", or row {last} together with its digest" if last else "")

    def ended(self) -> _Finding | None:
        """Whether the last row is the one that meta knows."""
        last = self._before.id
        if last < self._end.id:
            return last + 1, "cut off", f"the journal ended with row {self._end.id} once, and ends with row {last}"
        if self._before != self._end:
            return last, "changed", "the head of the chain has another digest for it"
        if self._missed:
            return None, "rewritten", f"no row has the digest {self._missed}, so what was the head once is gone"
        return None

    def _note_seal(self, row: Mapping[str, Any]) -> None:
        if row["event"] != "certificate":
            return
        try:
            said = to_object(row["data"], "seal")
            self._seals[said["certificate"]] = row["id"], said["sha256"]
        except (ValueError, KeyError):
            return  # then its certificate is bound by nothing, which is found


def _certificates(connection: sa.Connection, seals: Mapping[int, tuple[int, str]]) -> _Finding | None:
    """Whether each certificate is the one that its row is about."""
    query = sa.select(certificates.c.id, certificates.c.node, certificates.c.document).order_by(certificates.c.id)
    seen = set()
    with connection.execute(query.execution_options(yield_per=_PAGE)) as rows:
        for row in rows:
            what = f"certificate {row.id} of node {row.node}"
            if row.id not in seals:
                return None, "certificate", f"no row of the journal knows {what}: it was inserted"
            if seal_of(row.id, row.document)["sha256"] != seals[row.id][1]:
                return seals[row.id][0], "certificate", f"{what} was changed since"
            seen.add(row.id)
    for number, (row_id, _) in seals.items():
        if number not in seen:
            return row_id, "certificate", f"certificate {number} was removed"
    return None


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
