"""Entries of a BMC's log that came while nobody read it, and are older than their row's window when it is read again.

A BMC or the reconciler may be away over a weekend. The ledger keeps when a node's log was last read; what came since is
new, however old it is. Of a log that was never read nothing is known, so its window is the row's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from reconciler.health.bmc import LONGEST_AWAY, late_events
from reconciler.health.signals import Signal
from reconciler.health.table import Effect, table_of
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed
from reconciler.model.records import LOG_READ, NodeRecord
from reconciler.model.vocab import Source

_APART: Final = timedelta(hours=6)  # between two notes that a log was read: it costs a write of the ledger
_FRESH: Final = timedelta(minutes=10)  # an inventory of an earlier pass says nothing of when the log was read
_SPARE: Final = timedelta(hours=1)  # for the time that a pass takes, and for clocks of BMCs


def late_signals(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[Signal, ...]:
    """Return the signals that take a node out for what its BMC has logged while nobody read it."""
    since = record.silent_since.get(LOG_READ)
    if since is None or not isinstance(observed.inventory, Answered) or not observed.inventory.value.events:
        return ()
    if record.released_at is not None and record.released_at > since:
        return ()  # a person has looked
    away, table = observed.inventory.at - since, table_of(desired.profile)
    if not _APART < away < LONGEST_AWAY:
        return ()
    found = late_events(observed, table, (away + _SPARE).total_seconds())
    shown = [Signal(name, detail, table.rule_of(name), Source.REDFISH) for name, detail in found]
    return tuple(one for one in shown if one.effect is not Effect.REPORTS)


def with_late(
    shown: tuple[Signal, ...], desired: Desired, observed: Observed, record: NodeRecord
) -> tuple[Signal, ...]:
    """Return the signals that are shown, with those of late entries that none of them tells of."""
    late = late_signals(desired, observed, record)
    known = {signal.name for signal in shown} if late else set[str]()
    return (*shown, *(signal for signal in late if signal.name not in known))


def log_updates(observed: Observed, record: NodeRecord) -> Iterator[tuple[str, bool]]:
    """Yield (key, whether it is kept from now on) where the log was read, and the ledger's note of that is old."""
    if not isinstance(observed.inventory, Answered) or not isinstance(observed.hot, Answered):
        return
    inventory, at = observed.inventory.value, observed.inventory.at
    if inventory.events is None or "events" in inventory.unknown or not at - _FRESH <= observed.hot.at <= at + _FRESH:
        return
    since: datetime | None = record.silent_since.get(LOG_READ)
    if since is not None and -_SPARE < at - since < _APART:  # the note is made after the reading
        return
    if since is not None:
        yield LOG_READ, False
    yield LOG_READ, True
