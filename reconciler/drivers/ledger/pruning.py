"""Prune the journal: delete what is old and not needed, page by page, and anchor the chain where rows are gone.

Each page is one short transaction: it deletes ranges of ids and appends the page's anchor, or does nothing. So a run
that is killed has pruned whole pages, and the next goes on. A page whose rows are not as they were written is left as
it is, for `audit verify` to show: pruning never hides what somebody changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import chain
from reconciler.drivers.ledger.anchors import ANCHOR, PAGE, Anchor, anchor_of, data_of, joined, page_of
from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.retained import Removable, Row, certificate_in
from reconciler.drivers.ledger.rows import from_json, instant, or_long_ago, to_instant, to_json
from reconciler.drivers.ledger.schema import LEDGER_ID, certificates, journal, meta
from reconciler.drivers.ledger.writing import upsert
from reconciler.model.errors import LedgerError
from reconciler.model.records import LEAST_RETENTION

ROUNDS_APART = timedelta(days=1)  # between two looks of a leader at all pages: rows of pruned pages become needless too
_PLACE = "pruning "  # and a fleet: key in `meta` of where its leader goes on, which nothing is decided by


@dataclass(frozen=True, slots=True)
class Pruned:
    """The rows that were pruned, or would be. `problem`: why the journal was not pruned from there on; "" = nothing."""

    rows: Mapping[str, int] = field(default_factory=dict)  # by event
    pages: int = 0
    problem: str = ""

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    def __add__(self, other: Pruned) -> Pruned:
        rows = Counter(self.rows) + Counter(other.rows)
        return Pruned(dict(sorted(rows.items())), self.pages + other.pages, self.problem or other.problem)


@dataclass(frozen=True, slots=True)
class _Page:
    """The rows of a page that are there, and what was decided of them."""

    first: int
    removable: Sequence[Row] = ()
    over: bool = False  # no row of it is old: nor are those of later pages
    problem: str = ""


class SqlPruning(SqlRole):
    def prune_journal(self, age: timedelta, run: str, now: datetime, *, dry: bool = False) -> Pruned:
        """Prune all rows older than `age` that nothing needs. `dry`: only count them. LedgerError: `age` is too short.

        Rows of other fleets stay.
        """
        removable, found, end = Removable(self._fleet, _cutoff(age, now), dry=dry), Pruned(), self._last_row()
        for first in range(1, end - PAGE + 1, PAGE):  # the last page may still grow, and the head of the chain stays
            page = self._judged(first, removable)
            if page.over or page.problem:
                return found + Pruned(problem=page.problem)
            found += _counted(page.removable) if dry else self._prune_page(page, run, now)
        return found

    def prune_some(self, age: timedelta, run: str, now: datetime, pages: int) -> Pruned:
        """Prune at most so many pages, and remember where to go on; begin anew a day after all were looked at."""
        place = self._place_of_pruning()
        first, since = int(place.get("first", 1)), or_long_ago(place.get("over"))
        if first == 1 and now - since < ROUNDS_APART:
            return Pruned()
        removable, found, end = Removable(self._fleet, _cutoff(age, now)), Pruned(), self._last_row()
        for _ in range(pages):
            page = self._judged(first, removable) if first + PAGE <= end else _Page(first, over=True)
            if page.problem:
                return found + Pruned(problem=page.problem)
            if page.over:
                self._save_place({"first": 1, "over": instant(now)})
                return found
            found += self._prune_page(page, run, now)
            first += PAGE
        self._save_place({"first": first})
        return found

    # --- one page ---

    def _judged(self, first: int, removable: Removable) -> _Page:
        """Choose the rows of a page that go, in a snapshot: others write meanwhile."""
        query = sa.select(journal).where(journal.c.id.between(first, first + PAGE - 1)).order_by(journal.c.id)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            if problem := _problem(connection, first, rows):
                return _Page(first, problem=problem)
            found = removable.of(connection, rows)
        return _Page(first, found, over=bool(rows) and all(row.at >= removable.before for row in rows))

    def _prune_page(self, page: _Page, run: str, now: datetime) -> Pruned:
        """Delete the rows that were chosen and are still there, and append the anchor that stands for them."""
        if not page.removable:
            return Pruned()
        with self._database.write([]) as connection:
            chain.lock(connection)  # one prunes at a time
            wanted = sa.select(journal.c.id).where(journal.c.id.in_([row.id for row in page.removable]))
            there = set(connection.execute(wanted).scalars())
            going = [row for row in page.removable if row.id in there]
            if not going:
                return Pruned()
            before = anchor_of(connection, page.first)
            _delete(connection, going)
            chain.append(connection, [_anchor(page.first, before, going, run, now)])
        return _counted(going)

    def _last_row(self) -> int:
        with self._database.read() as connection:
            return connection.execute(sa.select(sa.func.max(journal.c.id))).scalar() or 0

    # --- where to go on ---

    def _place_of_pruning(self) -> Mapping[str, Any]:
        query = sa.select(meta.c.value).where(meta.c.key == _PLACE + self._fleet)
        with self._database.read() as connection:
            cell = connection.execute(query).scalar()
        try:
            found = {} if cell is None else from_json(cell, "place of pruning")
        except ValueError:
            found = {}
        return found if isinstance(found, dict) and isinstance(found.get("first", 1), int) else {}

    def _save_place(self, place: Mapping[str, Any]) -> None:
        with self._database.write([]) as connection:
            upsert(connection, meta, [{"key": _PLACE + self._fleet, "value": to_json(place)}])


def _cutoff(age: timedelta, now: datetime) -> datetime:
    if age < LEAST_RETENTION:
        raise LedgerError(f"rows of the journal are kept for {LEAST_RETENTION.days} days at least")
    return now - age


def _counted(rows: Sequence[Row]) -> Pruned:
    return Pruned(Counter(row.event for row in rows), int(bool(rows)))


def _problem(connection: sa.Connection, first: int, rows: Sequence[Row]) -> str:
    """Say which row of a page does not follow the one before it. Gaps are passed by their anchors."""
    try:
        anchor = anchor_of(connection, first)
        before = _before(connection, first)
    except ValueError as error:
        return f"{error}; see reconciler audit verify"
    gaps = {} if anchor is None else {gap.first: gap for gap in anchor.gaps}
    last, digest = first - 1, before
    for row in rows:
        gap = gaps.get(last + 1)
        if row.id != last + 1 and gap is not None:
            last, digest = gap.last, gap.digest
        if row.id != last + 1 or not chain.follows(digest, row._mapping):
            return f"row {row.id} does not follow row {last}, and nothing from there on is pruned; see audit verify"
        last, digest = row.id, row.digest
    return ""


def _before(connection: sa.Connection, first: int) -> str:
    """Return the digest of the last row before a page. ValueError where neither it nor its anchor is there."""
    if first == 1:
        return str(connection.execute(sa.select(meta.c.value).where(meta.c.key == LEDGER_ID)).scalar())
    digest = connection.execute(sa.select(journal.c.digest).where(journal.c.id == first - 1)).scalar()
    anchor = anchor_of(connection, page_of(first - 1)) if digest is None else None
    if anchor is not None and anchor.gaps[-1].last == first - 1:
        digest = anchor.gaps[-1].digest
    if digest is None:
        raise ValueError(f"row {first - 1} is missing, and nothing from there on is pruned")
    return str(digest)


def _delete(connection: sa.Connection, rows: Sequence[Row]) -> None:
    """Delete rows by ranges of their ids, with the certificates that they bind."""
    spent = [number for row in rows if row.event == "certificate" and (number := certificate_in(row)) is not None]
    if spent:
        connection.execute(certificates.delete().where(certificates.c.id.in_(spent)))
    ranges = [{"begin": gap.first, "end": gap.last} for gap in joined((), [(row.id, "") for row in rows])]
    within = journal.c.id.between(sa.bindparam("begin"), sa.bindparam("end"))
    connection.execute(journal.delete().where(within), ranges)


def _anchor(first: int, before: Anchor | None, rows: Sequence[Row], run: str, now: datetime) -> Mapping[str, Any]:
    """Return the row that stands for all that is gone of a page."""
    gaps = joined(() if before is None else before.gaps, [(row.id, row.digest) for row in rows])
    times = [to_instant(row.at, f"time of row {row.id}") for row in rows]
    if before is not None:
        times += [before.since, before.until]
    since, until = min(times), max(times)
    detail = f"{len(rows)} rows of rows {first} to {first + PAGE - 1} were pruned"
    data = data_of(gaps, since, until)
    return {
        "at": instant(now),
        "run": run,
        "node": "",
        "event": ANCHOR,
        "attempt": first,
        "detail": detail,
        "data": data,
    }
