"""The journal as a hash chain: each row has a digest of itself and of the row before, `meta` has the last digest.

Nobody can change, remove, insert or cut off a row in the database without the chain showing where (DESIGN 9).
Certificates, serial numbers and UUIDs of nodes are bound by a row each, as are TPMs, proved boots and installs
(`seals`), the fencing token by the tokens of rows and leases. The chain is no signature: a journal that was rewritten
as a whole is detected by a head that was noted elsewhere (`audit verify --head`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import to_json, to_object
from reconciler.drivers.ledger.schema import (
    FENCE,
    HEAD,
    LEDGER_ID,
    certificates,
    journal,
    leases,
    meta,
    nodes,
    open_attempts,
)
from reconciler.drivers.ledger.seals import SEAL, Sealed, check_seals
from reconciler.model.errors import LedgerError

_EMPTY: Mapping[str, Any] = {"action": "", "target": "", "attempt": None, "token": None, "data": "null"}
_CHAINED = ("id", "at", "run", "node", "event", "action", "target", "attempt", "token", "detail", "data")
_PAGE = 5000  # rows
# Statements of each row of the journal: building one takes longer than running it.
_HEAD = sa.select(meta.c.value).where(meta.c.key == HEAD).with_for_update()
_ADD = journal.insert()
_MOVE_HEAD = meta.update().where(meta.c.key == HEAD).values(value=sa.bindparam("head"))
IDENTITY = "identity"  # event of a row that binds a node's serial number and UUID

# What decisions use and no row binds: whoever can write to the database can change it undetected.
NOT_COVERED = (
    "whether a hold that was set was released",
    "rollouts",
    "applied values",
    "silences",
    "nonces of reimages",
    "how far an install is, and whether it was withdrawn",
    "who holds a lease, and until when",
    "which plans are used up",
    "open drift",
    "the status of nodes over time",
    "fencing tokens that no row and no lease has",
)


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of a verification. `row`: the first row of the journal that was changed or is missing."""

    rows: int
    certificates: int
    head: str  # digest of the last row, from `meta`
    row: int | None = None
    # changed | removed | inserted | cut off | certificate | identity | seal | fence | attempt | rewritten | head;
    # "" = intact
    problem: str = ""
    detail: str = ""
    identities: int = 0
    not_covered: tuple[str, ...] = NOT_COVERED


# --- writing ---------------------------------------------------------------------------------------------------------


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> int:
    """Append journal rows; return the id of the first. The head stays locked until the commit.

    Ids have no gaps: a transaction that is rolled back leaves none.
    """
    try:
        last, digest = _head(connection.execute(_HEAD).scalar_one_or_none())
    except ValueError as error:
        raise LedgerError(f"the ledger's journal can't be continued: {error}; restore it from a backup") from error
    written = []
    for number, row in enumerate(rows, last + 1):
        full = {**_EMPTY, **row, "id": number}
        digest = full["digest"] = digest_of(digest, full)
        written.append(full)
    connection.execute(_ADD, written)
    connection.execute(_MOVE_HEAD, {"head": f"{last + len(written)} {digest}"})
    return last + 1


def digest_of(before: str, row: Mapping[str, Any]) -> str:
    """Return a row's digest. `before`: the digest of the row before it; the ledger's id for the first row."""
    content = to_json([row[name] for name in _CHAINED])
    return hashlib.sha256(f"{before}\n{content}".encode()).hexdigest()


def seal_of(number: int, document: str) -> dict[str, Any]:
    """Return the data of the journal row that binds a certificate's document."""
    return {"certificate": number, "sha256": hashlib.sha256(document.encode()).hexdigest()}


def identity_of(serial: str | None, uuid: str | None) -> dict[str, Any]:
    """Return the data of the journal row that binds a node's identity."""
    return {"serial": serial, "uuid": uuid}


def _head(cell: Any) -> tuple[int, str]:
    found = re.fullmatch(r"([0-9]{1,18}) (\S+)", cell) if isinstance(cell, str) else None
    if found is None:
        raise ValueError("the head of the chain is lost" if cell is None else f"the head of the chain is {cell!r}")
    return int(found[1]), found[2]


# --- verifying -------------------------------------------------------------------------------------------------------


def verify(connection: sa.Connection, noted: str = "") -> Audit:
    """Verify the whole journal, in one snapshot. `noted`: an earlier head, which must still be part of the chain.

    The chain starts with the ledger's id, which is also the head of a journal without rows.
    """
    known = {row.key: row.value for row in connection.execute(sa.select(meta.c.key, meta.c.value))}
    cell, seals = known.get(HEAD), _Seals()
    try:
        last, head = _head(cell)
    except ValueError as error:
        return Audit(_count(connection, journal), 0, str(cell or ""), None, "head", str(error))
    reader = _ChainReader(_Link(0, known.get(LEDGER_ID, "")), _Link(last, head), seals, noted.strip())
    with connection.execute(sa.select(journal).order_by(journal.c.id).execution_options(yield_per=_PAGE)) as rows:
        found = reader.read(rows.mappings())
    found = found or reader.at_end() or _certificates(connection, seals.certificates)
    found = found or _identities(connection, seals.identities) or check_seals(connection, seals.rows)
    found = found or _fence(connection, known.get(FENCE), seals.token) or _open(connection, seals.open)
    row, problem, detail = found or (None, "", "")
    counted = len(seals.certificates), len(seals.identities)
    return Audit(_count(connection, journal), counted[0], head, row, problem, detail, counted[1])


_Finding = tuple[int | None, str, str]  # row, problem, detail


@dataclass(slots=True)
class _Seals:
    """The values of other tables that journal rows bind.

    `certificates`: row, digest, node and time by number. `identities`: row and data by node. `token`: row and value of
    the highest fencing token in any row.
    """

    certificates: dict[int, tuple[int, str, str, str]] = field(default_factory=dict)
    identities: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    token: tuple[int, int] = (0, 0)
    open: dict[int, str] = field(default_factory=dict)  # node of each attempt without an outcome
    rows: Sealed = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Link:
    id: int
    digest: str


class _ChainReader:
    """Reads the chain row by row, and collects the seals."""

    def __init__(self, start: _Link, end: _Link, seals: _Seals, noted: str) -> None:
        self._before = start
        self._end = end
        self._seals = seals
        self._missed = "" if noted == start.digest else noted  # an earlier head, until it is found

    def read(self, rows: Iterable[Mapping[Any, Any]]) -> _Finding | None:
        """Return the first row that was changed, inserted or removed."""
        following = iter(rows)
        for row in following:
            if row["id"] > self._end.id:
                return row["id"], "inserted", f"the chain ends with row {self._end.id}"
            if not _fits(self._before.digest, row):
                return self._diagnose(row, next(following, None))
            self._before = _Link(row["id"], row["digest"])
            if row["digest"] == self._missed:
                self._missed = ""
            self._note_seal(row)
        return None

    def _diagnose(self, row: Mapping[str, Any], after: Mapping[str, Any] | None) -> _Finding:
        """Return what happened to a row that doesn't fit, judged by the row after it."""
        number, last = row["id"], self._before.id
        if after is not None and _fits(self._before.digest, after):
            return number, "inserted", f"the chain leads from row {last} to row {after['id']}"
        if number > last + 1:
            gone = f"row {last + 1} is" if number == last + 2 else f"rows {last + 1} to {number - 1} are"
            return last + 1, "removed", f"{gone} missing"
        event = f"{row['event']} of {row['node'] or row['run']} at {row['at']}"
        return number, "changed", event + (f", or row {last} together with its digest" if last else "")

    def at_end(self) -> _Finding | None:
        """Check that the last row is the one in `meta`."""
        last = self._before.id
        if last < self._end.id:
            return last + 1, "cut off", f"the journal ended with row {self._end.id} once, and ends with row {last}"
        if self._before != self._end:
            return last, "changed", "the head of the chain has another digest for it"
        if self._missed:
            return None, "rewritten", f"no row has the digest {self._missed}, so what was the head once is gone"
        return None

    def _note_seal(self, row: Mapping[str, Any]) -> None:
        token = row["token"]
        if isinstance(token, int) and token > self._seals.token[1]:
            self._seals.token = row["id"], token
        if row["event"] == "intent":
            self._seals.open[row["id"]] = row["node"]
        elif row["event"] == "outcome":
            self._seals.open.pop(row["attempt"], None)
        if row["event"] not in ("certificate", IDENTITY, SEAL):
            return
        try:
            bound = to_object(row["data"], "seal")
        except ValueError:
            return  # what it was about is then bound by no row, which is reported
        if row["event"] == IDENTITY:
            self._seals.identities[row["node"]] = row["id"], bound
        elif row["event"] == SEAL:
            key = str(bound.get("table")), str(bound.get("key"))
            self._seals.rows[key] = row["id"], str(bound.get("sha256")), row["node"]
        elif isinstance(bound.get("certificate"), int):
            sealed = row["id"], str(bound.get("sha256")), row["node"], row["at"]
            self._seals.certificates[bound["certificate"]] = sealed


def _fits(before: str, row: Mapping[str, Any]) -> bool:
    """Say whether a row follows the row with this digest. We never write bytes, which raise TypeError."""
    try:
        return bool(digest_of(before, row) == row["digest"])
    except TypeError:
        return False


def _identities(connection: sa.Connection, seals: Mapping[str, tuple[int, Mapping[str, Any]]]) -> _Finding | None:
    """Check each node's identity against its last row."""
    seen = set()
    query = sa.select(nodes.c.node, nodes.c.serial, nodes.c.uuid).order_by(nodes.c.node)
    with connection.execute(query.execution_options(yield_per=_PAGE)) as rows:
        for row in rows:
            seen.add(row.node)
            if row.node not in seals:
                if row.serial is not None or row.uuid is not None:
                    return (
                        None,
                        IDENTITY,
                        f"no row of the journal knows the serial number of {row.node}: it was inserted",
                    )
            elif seals[row.node][1] != identity_of(row.serial, row.uuid):
                return seals[row.node][0], IDENTITY, f"the serial number or UUID of node {row.node} was changed since"
    gone = next((node for node in seals if node not in seen), None)
    return None if gone is None else (seals[gone][0], IDENTITY, f"the serial number of node {gone} was removed")


def _fence(connection: sa.Connection, cell: Any, highest: tuple[int, int]) -> _Finding | None:
    """Check that the fencing token is at least as high as any token in rows and leases."""
    if not (isinstance(cell, str) and re.fullmatch(r"[0-9]{1,18}", cell)):
        return None, "fence", f"the fencing token is {'lost' if cell is None else repr(cell)}: nobody can take a lease"
    fence, (row, token) = int(cell), highest
    if fence < token:
        return row, "fence", f"the fencing token is {fence}, and the row was written under {token}: tokens may repeat"
    for lease in connection.execute(sa.select(leases.c.scope, leases.c.token)):
        if not isinstance(lease.token, int) or lease.token > fence:
            return None, "fence", f"the fencing token is {fence}, and the lease on {lease.scope} has {lease.token}"
    return None


def _open(connection: sa.Connection, began: Mapping[int, str]) -> _Finding | None:
    """Check the open attempts against the journal, by which a run goes on with what another has left."""
    listed = set(connection.execute(sa.select(open_attempts.c.attempt)).scalars())
    for number, node in began.items():
        if number not in listed:
            return number, "attempt", f"attempt {number} on node {node} has no outcome, and is not listed as open"
    other = next((number for number in listed if number not in began), None)
    return None if other is None else (None, "attempt", f"attempt {other} is listed as open, and is not")


def _certificates(connection: sa.Connection, seals: Mapping[int, tuple[int, str, str, str]]) -> _Finding | None:
    """Check each certificate against its row."""
    query = sa.select(certificates).order_by(certificates.c.id)
    seen = set()
    with connection.execute(query.execution_options(yield_per=_PAGE)) as rows:
        for row in rows:
            what = f"certificate {row.id} of node {row.node}"
            if row.id not in seals:
                return None, "certificate", f"no row of the journal knows {what}: it was inserted"
            number, digest, node, at = seals[row.id]
            if not isinstance(row.document, str) or seal_of(row.id, row.document)["sha256"] != digest:
                return number, "certificate", f"{what} was changed since"
            if row.node != node:
                return number, "certificate", f"certificate {row.id} of node {node} was given to {row.node} since"
            if row.issued_at != at:
                return number, "certificate", f"{what} was issued at {at}, and its time was changed since"
            seen.add(row.id)
    for number, (row_id, *_) in seals.items():
        if number not in seen:
            return row_id, "certificate", f"certificate {number} was removed"
    return None


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
