"""Lenient readers of Redfish documents (pitfall A10).

A BMC may leave out any field and give any field the wrong type. A reader that must give a value raises `Unknown` with
the reason; `Gaps` runs readers one by one and keeps their reasons. Nothing here guesses: a missing value stays unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from reconciler.model.printable import without_attempts
from reconciler.model.vocab import Health

T = TypeVar("T")

Document = Mapping[str, Any]

_LONGEST = 300  # characters of a BMC's text in our messages
_PATH = re.compile(r"/(?!/)[\x21-\x22\x24-\x7e]{0,1023}")  # no host, no fragment, no character that needs escaping
_NOT_PRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")
# What firmware writes where no value was filled in.
_PLACEHOLDERS = frozenset(
    {"-", "0", "n/a", "na", "none", "null", "unknown", "empty", "default", "default string", "unspecified"}
    | {"not specified", "not available", "not applicable", "to be filled by o.e.m.", "system serial number"}
    | {"chassis serial number", "0123456789"}
)
HEALTH = {"ok": Health.OK, "warning": Health.WARNING, "critical": Health.CRITICAL}
# In other states Health is stale: GB200 shows Absent sensors as Critical.
# Degraded is what GB200's leak detector says while it reports a leak.
_JUDGED = frozenset({"Enabled", "StandbyOffline", "Degraded"})


class Confidential(dict[str, Any]):
    """A document to send that holds a secret. BMCs quote the values that they refuse, so those words are not told."""


class Unknown(Exception):
    """Raised for a field without a usable value; the message says why."""


class Gaps:
    """Collects the reasons why fields have no value, for a snapshot's `unknown`."""

    def __init__(self) -> None:
        self.unknown: dict[str, str] = {}

    def read(self, name: str, reader: Callable[[], T]) -> T | None:
        try:
            return reader()
        except Unknown as gap:
            self.unknown[name] = str(gap)
            return None


def quote(value: object) -> str:
    """Return a BMC's text as one line of limited length, for our messages, without the token of its boot medium."""
    line = without_attempts(_NOT_PRINTABLE.sub(" ", str(value)).strip())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def member(document: Document, name: str) -> Document:
    """Return a nested object; {} where there is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def objects(document: Document, name: str) -> Iterator[Document]:
    """Yield the objects of an array; other items are left out."""
    value = document.get(name)
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))


def texts(document: Document, name: str) -> tuple[str, ...]:
    value = document.get(name)
    return tuple(item for item in (value if isinstance(value, list) else ()) if isinstance(item, str))


def text(document: Document, name: str) -> str | None:
    """Return a stripped, non-empty text, else None."""
    value = document.get(name)
    return (value.strip() or None) if isinstance(value, str) else None


def stated(document: Document, name: str) -> str | None:
    """Return a text that is no placeholder, else None."""
    found = text(document, name)
    return None if found is None or found.casefold() in _PLACEHOLDERS else found


def need(document: Document, name: str, reader: Callable[[Document, str], T | None]) -> T:
    found = reader(document, name)
    if found is None:
        raise Unknown(missing(document, name))
    return found


def missing(document: Document, name: str) -> str:
    """Say why `name` has no usable value."""
    return f"{name} is {quote(repr(document[name]))}" if name in document else f"{name} is not given"


def number(document: Document, name: str) -> float | None:
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def integer(document: Document, name: str) -> int | None:
    found = number(document, name)
    return int(found) if found is not None and found == int(found) else None


def boolean(document: Document, name: str) -> bool | None:
    value = document.get(name)
    return value if isinstance(value, bool) else None


def path(value: object) -> str | None:
    """Return a path on the BMC, else None. Never another host: a document must not redirect our session."""
    return value if isinstance(value, str) and _PATH.fullmatch(value) else None


def link(document: Document, name: str) -> str | None:
    return path(member(document, name).get("@odata.id"))


def need_link(document: Document, name: str) -> str:
    found = link(document, name)
    if found is None:
        raise Unknown(f"the BMC offers no {name}")
    return found


def links(document: Document, name: str) -> tuple[str, ...]:
    found = (path(item.get("@odata.id")) for item in objects(document, name))
    return tuple(item for item in found if item is not None)


def last_segment(uri: str) -> str:
    return uri.rstrip("/").rsplit("/", 1)[-1]


def state(document: Document) -> str | None:
    return text(member(document, "Status"), "State")


def absent(document: Document) -> bool:
    return state(document) == "Absent"


def health(document: Document) -> Health | None:
    """Return the worse of Health and HealthRollup; None unless State says that the device is in use."""
    status = member(document, "Status")
    if state(document) not in _JUDGED:
        return None
    words = (text(status, name) for name in ("Health", "HealthRollup"))
    found = [HEALTH[word.casefold()] for word in words if word is not None and word.casefold() in HEALTH]
    return max(found, key=list(Health).index, default=None)
