"""Look at a host's log between two readings of the inventory: one GET, and the log itself only when it has changed.

BMCs that push no events would tell of a broken module with the next inventory, up to a day later. The collection says
how many entries there are, and its first or last one is the newest: an entry that comes changes one of them, whether
the list begins with the newest or the oldest, and so does a log that wraps or is cleared.

What it misses, the next inventory tells: the logs of boards; an entry that has the number of an old one, in a list of
links as long as before or in a full one that is listed by slot; one on a later page where no count is said; and a
repeat that a BMC notes in the entry that it has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, integer, objects, path, text
from reconciler.drivers.redfish.logs import entries_of, read_log
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.bmc_log import NO_LOG, has_news
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import BmcEvent

LOOK: Final = timedelta(minutes=5)
READ: Final = timedelta(minutes=15)  # a BMC that logs each of our requests is not read again for them (A12)
NO_LOG_AGAIN: Final = timedelta(days=1)
_REFUSED: Final = frozenset({Failure.UNSUPPORTED, Failure.REJECTED, Failure.MALFORMED})  # $top, for good
_DATED: Final = re.compile(r"20(1[5-9]|[2-9]\d)-\d\d-")  # a clock that was never set counts from 1970 or 2000 (B6)
_Mark = tuple[int, tuple[str, ...]]


def _is_dated(event: BmcEvent) -> bool:
    """Return whether a log that was cleared can't have another entry like this one: a BMC without a clock may."""
    return _DATED.match(event.at) is not None


class LogNews:
    """Remembers how one BMC's log looked when it had nothing new."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._where: str | None = None
        self._mark: _Mark | None = None
        self._looked: datetime | None = None
        self._read: datetime | None = None
        self._without: datetime | None = None  # when it said that it keeps no log
        self._takes_top = True

    def since(self, told: Sequence[BmcEvent], now: datetime) -> bool:
        """Return whether the log has a sign of illness beside `told`, the entries of an earlier reading.

        Raise DriverError or Unknown where it can't be read. A BMC without a log has none. The log is looked at every
        five minutes and read every fifteen, at most; meanwhile the answer is that it has none.
        """
        if self._looked is not None and timedelta() <= now - self._looked < LOOK:
            return False
        if self._without is not None and timedelta() <= now - self._without < NO_LOG_AGAIN:
            return False
        self._looked = now
        try:
            mark = self._look()
        except Unknown as gap:
            if str(gap).startswith(NO_LOG):
                self._without = now
                return False
            raise
        if mark != self._mark and (self._read is None or not timedelta() <= now - self._read < READ):
            shrank = self._mark is not None and mark[0] < self._mark[0]
            if has_news(self._events(), filter(_is_dated, told) if shrank else told):
                self._mark = None  # the next look reads it again, and finds none once an inventory has told of it
                return True
            self._mark, self._read = mark, now
        return False

    def _look(self) -> _Mark:
        where = self._where or entries_of(self._tree, self._tree.system().body)
        self._where = None  # looked up again if it is gone
        body = self._first_page(where)
        self._where = where
        listed = list(objects(body, "Members"))
        ends = [*listed[:1], *listed[-1:]]
        said = tuple(f"{path(item.get('@odata.id'))} {text(item, 'Created') or ''}" for item in ends)
        count = integer(body, "Members@odata.count")
        return len(listed) if count is None else count, said

    def _first_page(self, where: str) -> Document:
        """Read the list with a single entry; its first page where the BMC refuses that, or counts that entry alone."""
        if self._takes_top:
            try:
                found = self._tree.get(f"{where}?$top=1").body
                if integer(found, "Members@odata.count") not in (None, 1):
                    return found
            except DriverError as error:
                if error.kind not in _REFUSED:
                    raise
        found = self._tree.get(where).body
        self._takes_top = self._takes_top and len(list(objects(found, "Members"))) == 1
        return found

    def _events(self) -> Sequence[BmcEvent]:
        system = self._tree.system().body
        try:
            manager = self._tree.manager(system).body
        except (HttpError, Unknown):
            manager = {}  # its clock dates the entries; without it they have no age
        return read_log(self._tree, system, manager)[0]
