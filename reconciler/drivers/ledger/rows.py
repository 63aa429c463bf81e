"""Encode values as cells and decode them. Decoding raises ValueError, which the caller confines to one node."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, TypeVar

from reconciler.model.documents import DocumentError, load
from reconciler.model.gate import Certificate
from reconciler.model.json_text import parse_json
from reconciler.model.records import Applied, Hold

T = TypeVar("T")
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def to_instant(cell: Any, what: str) -> datetime:
    try:
        at = datetime.fromisoformat(cell)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} {cell!r} is not a time") from error
    if at.tzinfo is None:
        raise ValueError(f"{what} {cell!r} has no time zone")
    return at


class Decoded(dict[Any, T]):
    """Keeps what cells say, each different one decoded once: many rows have the same time, outcome or value."""

    def __init__(self, decode: Callable[[Any], T]) -> None:
        super().__init__()
        self._decode = decode

    def __missing__(self, cell: Any) -> T:
        value = self[cell] = self._decode(cell)
        return value


Columns = Sequence[Sequence[Any]]  # of rows that are decoded at once


_ZONE = attrgetter("tzinfo")


def times_of(cells: Sequence[Any]) -> Sequence[Any]:
    """Decode a column of times. None stays. ValueError or TypeError: one of them is no time."""
    if None in cells:
        found = iter(times_of([cell for cell in cells if cell is not None]))
        return [None if cell is None else next(found) for cell in cells]
    times = list(map(datetime.fromisoformat, cells))
    if None in map(_ZONE, times):
        raise ValueError("a time has no time zone")
    return times


def instants() -> Decoded[datetime]:
    """Return an empty memory of times, which raises ValueError for a cell that is no time, as `to_instant` does."""
    return Decoded(lambda cell: to_instant(cell, "time"))


def or_long_ago(cell: Any) -> datetime:
    """Decode a time that only people read. A damaged one becomes 1970, which shows that it is not known."""
    try:
        return to_instant(cell, "time")
    except ValueError:
        return LONG_AGO


def clean(text: str) -> str:
    """Return text from BMCs and hosts without what a database can't store: NUL and lone surrogates."""
    return text.replace("\0", "").encode(errors="replace").decode()


def to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))  # ASCII: lone surrogates and NUL are escaped


def from_json(cell: Any, what: str) -> Any:
    try:
        return parse_json(cell)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} is not JSON: {str(cell)[:60]!r}") from error


def to_object(cell: Any, what: str) -> dict[str, Any]:
    match from_json(cell, what):
        case dict() as value:
            return value
        case other:
            raise ValueError(f"{what} is not a JSON object: {other!r:.60}")


def to_applied(row: Any) -> Applied:
    return Applied(
        from_json(row.value, f"applied value of {row.path}"),
        row.spec_digest,
        row.commit_id,
        to_instant(row.at, f"time of applied {row.path}"),
    )


def to_hold(row: Any) -> tuple[Hold, str]:
    """Return the hold, and what is damaged. Without readable times it holds for ever: damage must never free a node."""
    try:
        until = None if row.until is None else to_instant(row.until, f"end of hold {row.id}")
        since = to_instant(row.since, f"hold {row.id}")
        return Hold(row.id, row.subject, row.reason, row.owner, since, until, row.position), ""
    except ValueError as error:
        return Hold(row.id, row.subject, row.reason, row.owner, LONG_AGO, position=row.position), str(error)


def to_certificate(row: Any) -> Certificate:
    try:
        certificate = load(Certificate, row.document, name=f"certificate {row.id}")
    except DocumentError as error:
        raise ValueError(str(error)) from error
    if certificate.node != row.node:
        raise ValueError(f"certificate {row.id} is about {certificate.node}")
    return certificate
