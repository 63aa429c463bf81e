"""Values of an inventory's objects, by their path, and the cells of a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any, Final

from reconciler.model.errors import UsageError, did_you_mean

COLUMNS: Final = ("name", "bmc", "host", "pool", "rack")
_DOMAIN: Final = re.compile(r"domains\.[a-z][a-z0-9-]*")
_PREFIX: Final = re.compile(r"[0-9A-Fa-f:.]+/\d{1,3}")  # 10.0.0.5/24, as inventories of networks write addresses


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """A node as an inventory has it: the cells of a row of the CSV file. `where`: its line, or the object's name.

    `guessed`: columns of which it does not say the value. They serve a new node, and change none that is known.
    """

    cells: Mapping[str, str]
    where: str
    guessed: frozenset[str] = frozenset()


class Guess(str):
    """A path whose value may serve for a column, though the inventory has it for another purpose."""

    __slots__ = ()


Names = Mapping[str, str]  # column -> path of the value in the inventory's object, where its user names one


def check_column(column: str, where: str) -> None:
    """Raise UsageError for a column that no node has."""
    if column not in COLUMNS and not _DOMAIN.fullmatch(column):
        raise UsageError(f"{where}: unknown column {column!r}; {did_you_mean(column, (*COLUMNS, 'domains.LABEL'))}")


def value_at(thing: Any, path: str) -> Any:
    """Return the value at a dotted path, None where there is none. Keys may have dots themselves, as labels do."""
    if not isinstance(thing, Mapping):
        return None
    if path in thing:
        return thing[path]
    head, _, rest = path.partition(".")
    while rest:
        if head in thing and (found := value_at(thing[head], rest)) is not None:
            return found
        more, _, rest = rest.partition(".")
        head = f"{head}.{more}"
    return None


def row(thing: Any, where: str, names: Names, paths: Mapping[str, Sequence[str]], **known: str) -> InventoryRow:
    """Return the row of an object: by the user's paths, else what is `known`, else by the first of `paths` that it has.

    Raise UsageError for a value that is no text or number.
    """
    cells, guessed = dict[str, str](), set[str]()
    for column in {**paths, **known, **names}:
        path = names.get(column) or _first(thing, paths.get(column, ()))
        found: Any = None if path is None else value_at(thing, path)
        if column not in names and known.get(column):
            found = known[column]
        elif isinstance(path, Guess):
            guessed.add(column)
        if isinstance(found, bool) or not isinstance(found, str | int | None):
            raise UsageError(f"{where}: {names.get(column, column)} is no text, so it can't be the {column}")
        if found not in (None, ""):
            cells[column] = _cell(column, str(found).strip())
    return InventoryRow(cells, where, frozenset(guessed))


def _first(thing: Any, paths: Iterable[str]) -> str | None:
    """Return the first of the paths that it has a value at."""
    return next((path for path in paths if value_at(thing, path) not in (None, "")), None)


def _cell(column: str, text: str) -> str:
    if column == "name":
        return text.lower()  # as Kubernetes and DNS have it
    if column in ("bmc", "host"):
        if _PREFIX.fullmatch(text):
            text = text.partition("/")[0]
        text = f"[{text}]" if _is_ipv6(text) else text
    return f"https://{text}" if column == "bmc" and "://" not in text else text


def _is_ipv6(text: str) -> bool:
    try:
        return ip_interface(text).version == 6
    except ValueError:
        return False


def objects(document: Any, where: str, key: str, what: str) -> list[Any]:
    """Return the list under a key, or a document that is the list itself.

    Raise UsageError for anything else, and for one page of several: `next` of NetBox and Ironic, and
    `metadata.continue` of Kubernetes, are set where more follow.
    """
    if any(value_at(document, path) for path in ("next", "metadata.continue")):
        raise UsageError(f"{where}: it is one page, and others follow: write all of them to the file, as one list")
    found = document.get(key) if isinstance(document, Mapping) else document
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise UsageError(f"{where}: {what} is expected")
    return found
