"""Choose the entries of a BMC's log that a reading keeps, and tell whether one may have gone unread. Pure.

Signs of illness stand among others: a BMC that floods its log pushes them back, and a log that is full loses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from reconciler.model.observed import Answered, BmcEvent, RedfishInventory, Silent
from reconciler.model.units import format_duration
from reconciler.model.vocab import Health

_DAY_S: Final = 86400.0
NEWEST: Final = 200  # kept however old they are
MOST: Final = 2000  # kept of those that are late
# Rows count entries of 48 h (health/signals.yaml), and a log is read once a day: what is older was read before.
LOOKED_BACK_S: Final = 3 * _DAY_S
OLD_IN_A_ROW: Final = 10  # that many old entries end a look back: a single one may be wrongly dated (B6)
NO_LOG: Final = "the BMC keeps no log"
_CLEAR_IT: Final = "save it, find what floods it, and clear it"


def is_old(event: BmcEvent) -> bool:
    """Return whether earlier readings have told of an entry. One of unknown time may be new."""
    return event.age_s is not None and event.age_s > LOOKED_BACK_S


def has_news(events: Iterable[BmcEvent], told: Iterable[BmcEvent]) -> bool:
    """Return whether a log has a sign of illness that is not among `told`, the entries of an earlier reading.

    What is OK, settled or old is none: BMCs log every login.
    """
    known = {(event.id, event.at, event.message) for event in told}
    return any(
        (event.id, event.at, event.message) not in known
        for event in events
        if not event.settled and not is_old(event) and (event.kind or event.severity is not Health.OK)
    )


def unread_part(inventory: Answered[RedfishInventory] | Silent) -> str:
    """Return why entries of a node's logs may have gone unread; "" if none has, or its BMC keeps no log.

    The logs are that of the host's events and those of its boards, as an HGX baseboard, which keeps the GPUs' (S)Xids.
    """
    if isinstance(inventory, Silent):
        return ""
    for name, what in (("events", "log"), ("events.boards", "log of a board")):
        why = inventory.value.unknown.get(name, "")
        if why and not why.startswith(NO_LOG):
            return why if why.startswith("the log ") else f"the {what} could not be read: {why}"
    return ""


def kept_events(
    events: Sequence[BmcEvent], *, holds: int | None = None, overwrites: bool = True, listed: int = 0
) -> tuple[tuple[BmcEvent, ...], str]:
    """Return the entries that are kept, newest last, and why others may have gone unread; "" if none has.

    `events`: all that were read, newest last. `holds`: how many entries the log can have; None if it does not say.
    `overwrites`: whether a full log drops its oldest entries for new ones, and not the new ones. `listed`: how many
    entries the log names, of which not all need have been read.
    """
    older = [event for event in events[:-NEWEST] if not is_old(event)]
    spare = len(older) - (MOST - NEWEST)
    if spare > 0:  # those that tell of no part go first, from the oldest on
        out = set(sorted(range(len(older)), key=lambda at: (older[at].kind != "", at))[:spare])
        older = [event for at, event in enumerate(older) if at not in out]
        lost = f"it has {spare + MOST} entries of late, more than the {MOST} that a reading keeps: {_CLEAR_IT}"
    else:
        lost = ""
        if holds and not overwrites and max(len(events), listed) >= holds:
            lost = f"it is full with {max(len(events), listed)} entries and takes no new ones: save it, and clear it"
        elif holds and overwrites and len(events) >= holds:
            lost = _dropped(events)
    return (*older, *events[-NEWEST:]), lost


def _dropped(events: Sequence[BmcEvent]) -> str:
    """Return why a full log that wraps may have dropped entries which nobody has read; "" if it has not."""
    ages = [event.age_s for event in events if event.age_s is not None]
    if 2 * len(ages) < len(events):
        return ""  # a log that wraps is always full, and without ages nobody knows whether it did lately
    before = sum(age > _DAY_S for age in ages)
    if before >= OLD_IN_A_ROW:
        return ""
    within = format_duration(max((age for age in ages if age <= _DAY_S), default=0.0))
    return (
        f"it is full with {len(events)} entries, most of the last {within}, and drops older ones for them: {_CLEAR_IT}"
    )
