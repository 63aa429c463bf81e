"""Read many collections within limits that a BMC can bear, and report what was not read as incomplete."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from reconciler.drivers.redfish.fields import Document, Unknown, last_segment, link
from reconciler.drivers.redfish.tree import Survey, Tree, is_content

T = TypeVar("T")

# A GB200 needs some 130 when its BMC expands collections, and 450 when it does not.
_MOST_GETS = 200
_LONGEST_S = 45.0  # wall clock; with the rest of an inventory well within its deadline of 2 min


class InventoryBudget:
    """Limits the requests and the time that one inventory spends on systems and chassis (A12).

    It counts what was not read, and `close` writes that into the survey's `unknown`.
    """

    def __init__(self, tree: Tree, survey: Survey) -> None:
        self._tree = tree
        self._survey = survey
        self._first = tree.session.gets
        self._until = time.monotonic() + _LONGEST_S
        self._read: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._lists: Counter[str] = Counter()  # lists that could not be read, whose lengths are unknown
        self._why: dict[str, str] = {}

    def members(self, names: tuple[str, ...], where: str | None) -> list[Document]:
        """Return the members that can be read. `where` None: there is no such collection.

        What can't be read is counted under the first of `names`; the others name what its members would lead to.
        """
        if where is None:
            return []
        name = names[0]
        listed = self._try(name, partial(self._tree.expanded, where), where)
        if listed is None:
            self._no_list(names)
            return []
        found: list[Document] = []
        for uri, item in listed:
            body = item if is_content(item) else self._try(name, partial(self._body, uri), uri)
            if body is None:
                self._missed[name] += 1
                self._no_list(names[1:], self._why[name])
            else:
                found.append({"Id": last_segment(uri), **body})
        self._read[name] += len(found)
        return found

    def follow(self, names: tuple[str, ...], document: Document, property_: str) -> Document:
        """Read the resource behind a link; {} without one. `names`: the parts that it would lead to."""
        where = link(document, property_)
        if where is None:
            return {}
        found = self._try(names[0], partial(self._body, where), where)
        if found is None:
            self._no_list(names, self._why[names[0]])
        return found or {}

    def _no_list(self, names: tuple[str, ...], why: str = "") -> None:
        for name in names:
            self._lists[name] += 1
            self._why.setdefault(name, why or self._why[names[0]])

    def close(self) -> None:
        """Write what is incomplete into the survey."""
        for name, why in self._why.items():
            read, missed, lists = self._read[name], self._missed[name], self._lists[name]
            total = f"at least {read + missed + lists}" if lists else str(read + missed)
            unread = f"; {lists} {'list' if lists == 1 else 'lists'} could not be read" if lists else ""
            self._survey.unknown[name] = f"read {read} of {total}{unread}: {why}"

    def _body(self, where: str) -> Document:
        return self._tree.get(where).body

    def _try(self, name: str, read: Callable[[], T], where: str) -> T | None:
        found = self._survey.read(name, lambda: self._within_budget(where, read))
        why = self._survey.unknown.pop(name, None)
        if why is not None:
            self._why.setdefault(name, why)
        return found

    def _within_budget(self, where: str, read: Callable[[], T]) -> T:
        if self._tree.session.gets - self._first >= _MOST_GETS:
            raise Unknown(f"{where} was not read: an inventory ends after {_MOST_GETS} requests")
        if time.monotonic() > self._until:
            raise Unknown(f"{where} was not read: an inventory ends after {_LONGEST_S:g} s")
        return read()
