"""Anchors: what the chain goes on from where rows of the journal were pruned.

The journal is pruned by pages of a fixed number of rows. An anchor is a row of the chain that stands for one page: it
has each gap in it with the digest of the last row that is gone, and how old these rows were. The row after a gap is
verified against that digest. When more of a page is pruned later, a newer anchor stands for all of it.

Ids of rows have no gaps of their own (`chain.append`), so a gap tells how many rows are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import instant, to_instant, to_json, to_object
from reconciler.drivers.ledger.schema import is_event, journal
from reconciler.model.records import LEAST_RETENTION

ANCHOR: Final = "prune"  # event of an anchor; its `attempt` is the first row of its page
PAGE: Final = 2_000  # rows; part of the format: a ledger that was pruned once stays divided so

_OF_PAGE = (
    sa.select(journal.c.id, journal.c.at, journal.c.data)
    .where(is_event(journal, ANCHOR), journal.c.attempt == sa.bindparam("first"))
    .order_by(journal.c.id.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows that were pruned, one after the other. `digest`: of the last one."""

    first: int
    last: int
    digest: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """The newest anchor of a page. `since`, `until`: times of the oldest and the newest row that is gone."""

    row: int
    gaps: tuple[Gap, ...]
    since: datetime
    until: datetime

    @property
    def rows(self) -> int:
        return sum(gap.last - gap.first + 1 for gap in self.gaps)


def page_of(row: int) -> int:
    """Return the first row of the page that a row is on."""
    return (row - 1) // PAGE * PAGE + 1


def anchored_pages(connection: sa.Connection) -> Sequence[int]:
    """Return the first row of each page that has an anchor, in order."""
    query = sa.select(journal.c.attempt).where(is_event(journal, ANCHOR)).distinct().order_by(journal.c.attempt)
    return [first for first in connection.execute(query).scalars() if isinstance(first, int)]


def anchor_of(connection: sa.Connection, first: int) -> Anchor | None:
    """Return the newest anchor of a page. ValueError for one that says what no pruning wrote."""
    row = connection.execute(_OF_PAGE, {"first": first}).one_or_none()
    return None if row is None else _decoded(row, first)


def data_of(gaps: Iterable[Gap], since: datetime, until: datetime) -> str:
    """Return the data of the row of an anchor."""
    listed = [[gap.first, gap.last, gap.digest] for gap in gaps]
    return to_json({"gaps": listed, "since": instant(since), "until": instant(until)})


def joined(gaps: Iterable[Gap], gone: Iterable[tuple[int, str]]) -> tuple[Gap, ...]:
    """Return the gaps of a page when more rows (id and digest) go."""
    parts = sorted([*gaps, *(Gap(row, row, digest) for row, digest in gone)], key=lambda gap: gap.first)
    found: list[Gap] = []
    for part in parts:
        if found and found[-1].last + 1 == part.first:
            found[-1] = Gap(found[-1].first, part.last, part.digest)
        else:
            found.append(part)
    return tuple(found)


def _decoded(row: Any, first: int) -> Anchor:
    what = f"the anchor of rows {first} to {first + PAGE - 1}"
    data = to_object(row.data, what)
    since, until = (to_instant(data.get(name), f"{name} of {what}") for name in ("since", "until"))
    gaps = tuple(_gaps(data, what))
    if not gaps or gaps[0].first < first or gaps[-1].last >= first + PAGE:
        raise ValueError(f"{what} stands for other rows")
    if not since <= until <= to_instant(row.at, f"time of {what}") - LEAST_RETENTION:
        raise ValueError(f"{what} says that rows were pruned that were not {LEAST_RETENTION.days} days old")
    return Anchor(row.id, gaps, since, until)


def _gaps(data: Mapping[str, Any], what: str) -> Iterable[Gap]:
    """Yield the gaps, which are apart and in order."""
    last = -1
    listed = data.get("gaps")
    for entry in listed if isinstance(listed, list) else ():
        match entry:
            case [int() as begin, int() as end, str() as digest] if last + 1 < begin <= end:
                yield Gap(begin, end, digest)
                last = end
            case _:
                raise ValueError(f"{what} has a gap that is none: {entry!r:.60}")
