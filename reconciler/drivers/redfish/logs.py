"""Read the log of a BMC back to what earlier readings have told of, within limits that a BMC can bear (A12).

Nobody keeps a mark of the last entry that was read: the one who read it may have looked for something else, and ids
begin anew in a log that was cleared. Dates tell it, by the BMC's own clock; where they can't, the log is read whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from reconciler.drivers.redfish import devices, events
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, integer, last_segment, link, links, need_link, text
from reconciler.drivers.redfish.tree import Tree, is_content, is_newest_first, numbers
from reconciler.model.bmc_log import NEWEST, NO_LOG, OLD_IN_A_ROW, is_old, kept_events
from reconciler.model.errors import Failure
from reconciler.model.observed import BmcEvent

# The first that is there and has entries: Lenovo's SEL can only be cleared, and its events are in the platform log.
_LOGS = ("sel", "iml", "eventlog", "event", "log1", "systemevent", "lclog", "platformlog", "standardlog")
_FEWEST_SINGLE, _MOST_SINGLE = 50, 200  # entries of a log that costs a GET each
_LONGEST_S: Final = 20.0  # wall clock, of one log


def read_log(tree: Tree, system: Document, manager: Document) -> tuple[tuple[BmcEvent, ...], str]:
    """Return the events of a system's log, newest last, and why some may have gone unread; "" if none has.

    `manager`: the one whose clock dates them; {} where it can't be read. Raise Unknown where the BMC keeps no log.
    """
    service = _service(tree, system)
    where = link(service, "Entries")
    assert where is not None
    now, offset = devices.manager(manager).clock, text(manager, "DateTimeLocalOffset") or ""
    overwrites = text(service, "OverWritePolicy") != "NeverOverWrites"
    reading = _Reading(tree, lambda entry: events.in_order([entry], now, offset)[0], overwrites=overwrites)
    entries, unread = reading.of(where)
    told, holds = events.in_order(entries, now, offset), integer(service, "MaxNumberOfRecords")
    kept, lost = kept_events(told, holds=holds, overwrites=overwrites, listed=reading.listed)
    why = unread or lost
    return kept, f"the log at {where} was not read whole: {why}" if why else ""


class _Reading:
    """One reading of a log, which ends at old entries, or at its limits.

    `overwrites`: whether the log takes new entries when it is full. One that does not may hold old ones only because it
    is full, so its list is read to the end. `listed`: how many entries the list names.
    """

    def __init__(self, tree: Tree, event_of: Callable[[Document], BmcEvent], *, overwrites: bool) -> None:
        self.listed = 0
        self._overwrites = overwrites
        self._tree = tree
        self._event_of = event_of
        self._until = time.monotonic() + _LONGEST_S
        self._found: Mapping[str, Document] = {}
        self._late = False

    def of(self, where: str) -> tuple[list[Document], str]:
        """Return the entries that were read, and why some were not; "" if none is missing."""
        why = ""
        try:
            listed = dict(self._tree.expanded(where, enough=self._is_enough))
        except Unknown as gap:  # after many pages
            if not self._found:
                raise
            listed, why = dict(self._found), str(gap)
        self.listed = len(listed)
        if self._late:
            why = f"its pages took more than {_LONGEST_S:g} s"
        if all(map(is_content, listed.values())):
            return list(listed.values()), why
        entries, unread = self._one_by_one(listed)
        return entries, unread or why

    def _is_old(self, entry: Document) -> bool:
        return is_old(self._event_of(entry))

    def _is_enough(self, found: Mapping[str, Document]) -> bool:
        self._found = found
        listed = list(found.values())
        whole = len(listed) >= NEWEST and is_newest_first(found) and all(map(is_content, listed))
        if self._overwrites and whole and all(map(self._is_old, listed[-OLD_IN_A_ROW:])):
            return True
        # A log that begins with its oldest entry ends with what nobody has read yet: only its last page has that.
        self._late = is_newest_first(found) and time.monotonic() > self._until
        return self._late

    def _one_by_one(self, listed: Mapping[str, Document]) -> tuple[list[Document], str]:
        """Read entries of which the list gives only links, from the highest number down."""
        found: list[Document] = []
        old, is_dated = 0, False
        for uri in sorted(listed, key=numbers, reverse=True):
            reached = old >= OLD_IN_A_ROW
            if reached and len(found) >= _FEWEST_SINGLE:
                break
            late = time.monotonic() > self._until
            if (late and found) or len(found) >= _MOST_SINGLE:
                # A slow BMC may give only a few in time. Of a log without dates nobody can tell what is new.
                if reached or old == len(found) or not is_dated:
                    break
                limit = f"{_LONGEST_S:g} s" if late else f"{_MOST_SINGLE} requests"
                why = f"it gives {len(found)} of its {len(listed)} entries in {limit}, each by a request of its own"
                return found, why
            body = listed[uri] if is_content(listed[uri]) else self._tree.get(uri).body
            age_s = self._event_of(body).age_s
            is_dated = is_dated or age_s is not None
            old = old + 1 if self._is_old(body) else 0
            found.append(body)
        return found, ""


def entries_of(tree: Tree, system: Document) -> str:
    """Return where the log of a system lists its entries. Raise Unknown where the BMC keeps none."""
    return need_link(_service(tree, system), "Entries")


def _service(tree: Tree, system: Document) -> Document:
    """Return the log service of the host's events that has entries: the system's, else its manager's, else any."""
    others: list[str] = []
    for of_manager in (False, True):
        body = tree.manager(system).body if of_manager else system
        if link(body, "LogServices") is not None:
            others += _listed(tree, body)
        for where in sorted(others, key=_rank):
            if _rank(where) < len(_LOGS) and link(found := tree.get(where).body, "Entries") is not None:
                return found
    for where in others:
        if link(found := tree.get(where).body, "Entries") is not None:
            return found
    raise Unknown(f"{NO_LOG} with entries" if others else NO_LOG)


def _listed(tree: Tree, body: Document) -> tuple[str, ...]:
    """Return the log services of a system or manager; () where the link leads nowhere, as a BMC without logs has it."""
    try:
        return links(tree.follow(body, "LogServices").body, "Members")
    except HttpError as error:
        if error.kind is not Failure.UNSUPPORTED:
            raise
        return ()


def _rank(uri: str) -> int:
    name = last_segment(uri).casefold()
    return _LOGS.index(name) if name in _LOGS else len(_LOGS)
