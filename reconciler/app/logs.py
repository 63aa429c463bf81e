"""The `logs` use case: what the ledger's journal says, as it comes about."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from reconciler.app.holds import check_subject
from reconciler.app.workspace import Workspace
from reconciler.model.errors import UsageError
from reconciler.model.records import JournalEntry

_LOOK_S: Final = 1.0  # between two looks at the journal: a query by its key
_PAGE: Final = 1_000  # entries that one look reads


def entries(
    workspace: Workspace, nodes: Collection[str], last: int, since: timedelta | datetime | None, *, follow: bool
) -> Iterator[Sequence[tuple[int, JournalEntry]]]:
    """Yield the newest `last` entries with their numbers, oldest first; with `follow`, then those that are written.

    `nodes`: of these alone; () = of all nodes, pools and runs. Raise UsageError for a node that the fleet and the
    journal don't have, and to follow a ledger that is not there yet.
    """
    begin = workspace.clock.now() - since if isinstance(since, timedelta) else since
    with workspace.present_ledger() as ledger:
        if follow and ledger.place.kind == "none":
            raise UsageError(f"there is no ledger at {ledger.place.name} to follow yet; apply and run make it")
        workspace.tell_missing(ledger)
        for node in nodes:
            if not ledger.feed(None, 1, {node}):
                check_subject(workspace.fleet, node)
        found = ledger.feed(None, last, nodes)
        yield [(number, entry) for number, entry in found if begin is None or entry.at >= begin]
        newest = found[-1][0] if found else 0
        while follow:
            more = ledger.feed(newest, _PAGE, nodes)
            yield more
            newest = more[-1][0] if more else newest
            if len(more) < _PAGE:
                time.sleep(_LOOK_S)
