"""Verify the chain of the journal, and what its rows bind in other tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.anchors import ANCHOR, Anchor, Gap, anchor_of, anchored_pages, page_of
from reconciler.drivers.ledger.chain import IDENTITY, follows, head_in, identity_of, seal_of
from reconciler.drivers.ledger.rows import instant, to_instant, to_object
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

_PAGE = 5000  # rows
_OUT_OF_ORDER = timedelta(days=1)  # by which a row may be older than the one before it: a pass writes when it began

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
    # changed | removed | inserted | cut off | anchor | certificate | identity | seal | fence | attempt | rewritten |
    # head; "" = intact
    problem: str = ""
    detail: str = ""
    identities: int = 0
    not_covered: tuple[str, ...] = NOT_COVERED
    pruned: int = 0  # rows that are gone, and that anchors stand for
    anchors: int = 0
    pruned_until: str = ""  # time of the newest of them


def verify(connection: sa.Connection, noted: str = "", now: datetime | None = None) -> Audit:
    """Verify the whole journal, in one snapshot. `noted`: an earlier head, which must still be part of the chain.

    `now`: no anchor is younger; None asks that of the rows after each alone. The chain starts with the ledger's id,
    which is also the head of a journal without rows.
    """
    known = {row.key: row.value for row in connection.execute(sa.select(meta.c.key, meta.c.value))}
    cell, seals = known.get(HEAD), _Seals()
    try:
        last, head = head_in(cell)
    except ValueError as error:
        return Audit(_count(connection, journal), 0, str(cell or ""), None, "head", str(error))
    anchors = _Anchors(connection)
    reader = _ChainReader(_Link(0, known.get(LEDGER_ID, "")), _Link(last, head), seals, noted.strip(), anchors)
    latest = "" if now is None else instant(now)
    found = anchors.check()
    if found is None:
        with connection.execute(sa.select(journal).order_by(journal.c.id).execution_options(yield_per=_PAGE)) as rows:
            found = reader.read(rows.mappings())
    found = (
        found
        or reader.anchor_after(latest, "the present")
        or reader.at_end()
        or _certificates(connection, seals.certificates)
    )
    found = found or _identities(connection, seals.identities) or check_seals(connection, seals.rows)
    found = found or _fence(connection, known.get(FENCE), seals.token) or _open(connection, seals.open)
    row, problem, detail = found or (None, "", "")
    rows_left, until = _count(connection, journal), anchors.until
    return Audit(
        rows_left, len(seals.certificates), head, row, problem, detail, len(seals.identities), NOT_COVERED,
        anchors.rows, len(anchors.pages), "" if until is None else instant(until),
    )  # fmt: skip


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


class _Anchors:
    """The gaps that pruning left. They are read page by page, and only the row of an anchor itself proves it."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self.pages = frozenset(anchored_pages(connection))
        self.rows = 0  # that are gone
        self.until: datetime | None = None  # time of the newest of them
        self._page = 0  # whose gaps are kept
        self._gaps: Mapping[int, Gap] = {}
        self.row: int | None = None  # of the anchor of that page
        self.latest = ""  # time that no row of its gaps, and no row before them, is younger than

    def check(self) -> _Finding | None:
        """Check each anchor by itself, so that one that was changed is named, and not the rows that it stands for."""
        for first in sorted(self.pages):
            try:
                found = anchor_of(self._connection, first)
            except ValueError as error:
                return self._row(first), "anchor", str(error)
            if found is None or not self._fits(found):
                return self._row(first), "anchor", f"the anchor of the pruned rows from {first} on was changed"
            self.rows += found.rows
            self.until = found.until if self.until is None else max(self.until, found.until)
        return None

    def gap(self, first: int) -> Gap | None:
        """Return the gap that begins with this row."""
        page = page_of(first)
        if page not in self.pages:
            return None
        if page != self._page:
            found = anchor_of(self._connection, page)
            self._page, self._gaps = page, {gap.first: gap for gap in found.gaps} if found is not None else {}
            if found is not None:
                self.row, self.latest = found.row, instant(found.until + _OUT_OF_ORDER)
        return self._gaps.get(first)

    def _row(self, first: int) -> int | None:
        query = sa.select(sa.func.max(journal.c.id)).where(journal.c.event == ANCHOR, journal.c.attempt == first)
        return self._connection.execute(query).scalar()

    def _fits(self, anchor: Anchor) -> bool:
        """Say whether the row of an anchor follows the row before it; yes where that one is gone."""
        query = sa.select(journal).where(journal.c.id.in_((anchor.row - 1, anchor.row))).order_by(journal.c.id)
        rows = self._connection.execute(query).mappings().all()
        return len(rows) == 1 or follows(rows[0]["digest"], rows[1])


class _ChainReader:
    """Reads the chain row by row, and collects the seals."""

    def __init__(self, start: _Link, end: _Link, seals: _Seals, noted: str, anchors: _Anchors) -> None:
        self._before = start
        self._end = end
        self._seals = seals
        self._anchors = anchors
        self._at = ""  # of the row before
        self._anchored: tuple[int, str] = (0, "")  # the last row of an anchor, and a day before its time
        self._missed = "" if noted == start.digest else noted  # an earlier head, until it is found

    def read(self, rows: Iterable[Mapping[Any, Any]]) -> _Finding | None:
        """Return the first row that was changed, inserted or removed."""
        following = iter(rows)
        for row in following:
            if row["id"] > self._end.id:
                return row["id"], "inserted", f"the chain ends with row {self._end.id}"
            if (wrong := self._pass_gaps(row["id"])) is not None:
                return wrong
            if not follows(self._before.digest, row):
                return self._diagnose(row, next(following, None))
            if (wrong := self.anchor_after(row["at"], f"row {row['id']}")) is not None:
                return wrong
            if row["event"] == ANCHOR:
                self._anchored = row["id"], instant(to_instant(row["at"], "time of an anchor") - _OUT_OF_ORDER)
            self._before, self._at = _Link(row["id"], row["digest"]), row["at"]
            if row["digest"] == self._missed:
                self._missed = ""
            self._note_seal(row)
        return None

    def anchor_after(self, at: str, what: str) -> _Finding | None:
        """Return the last anchor where it says to be younger than what followed it, by more than rows ever are."""
        number, least = self._anchored
        if not at or not least > at:
            return None
        return number, "anchor", f"it says that it was written after {least}, and {what} is of {at}"

    def _pass_gaps(self, number: int) -> _Finding | None:
        """Go on from the anchors of the rows that were pruned before this row, unless younger rows are before them."""
        while self._before.id + 1 < number:
            gap = self._anchors.gap(self._before.id + 1)
            if gap is None or gap.last >= number:
                return None
            if self._at > self._anchors.latest:
                told = (
                    f"it says that row {gap.first} was of {self._anchors.latest} or before, and row {self._before.id}"
                )
                return self._anchors.row, "anchor", f"{told} is of {self._at}"
            self._before = _Link(gap.last, gap.digest)
            if gap.digest == self._missed:
                self._missed = ""
        return None

    def _diagnose(self, row: Mapping[str, Any], after: Mapping[str, Any] | None) -> _Finding:
        """Return what happened to a row that doesn't fit, judged by the row after it."""
        number, last = row["id"], self._before.id
        if after is not None and follows(self._before.digest, after):
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
            gone, until = (
                f"no row has the digest {self._missed}, so what was the head once is gone",
                self._anchors.until,
            )
            if until is not None:
                gone += f", unless it was noted before {until:%Y-%m-%d %H:%M} UTC: older rows were pruned"
            return None, "rewritten", gone
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
