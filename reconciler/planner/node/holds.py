"""Find the holds on a node: those of the ledger, and those of the spec, which apply before the ledger has them.

A stop is a hold of the whole fleet (pitfall J9): nothing begins anywhere, whatever a plan says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from reconciler.model.desired import Desired, SpecHold
from reconciler.model.plan import BlockCode, Blocked
from reconciler.model.records import FLEET, RETRACTED, STORM, TOMBSTONE, Hold, NodeRecord

Holds = Mapping[str, tuple[Hold | SpecHold, ...]]  # by subject, those of the spec first


def by_subject(declared: Iterable[SpecHold], recorded: Iterable[Hold]) -> Holds:
    """Group the holds of the spec and of the ledger by subject."""
    found: dict[str, tuple[Hold | SpecHold, ...]] = {}
    holds: tuple[Hold | SpecHold, ...] = (*declared, *recorded)
    for hold in holds:
        found[hold.subject] = (*found.get(hold.subject, ()), hold)
    return found


def stopped(holds: Holds, now: datetime) -> Blocked | None:
    """Return the first active stop of the whole fleet."""
    found = next((hold for hold in holds.get(FLEET, ()) if is_active(hold, now)), None)
    return None if found is None else Blocked(BlockCode.STOPPED, _sentence(found, ()), end_of(found))


def braked(holds: Holds, now: datetime) -> Blocked | None:
    """Return the storm brake while it is active, that is until somebody lifts it."""
    found = next((hold for hold in holds.get(STORM, ()) if is_active(hold, now)), None)
    return None if found is None else Blocked(BlockCode.STORM, _sentence(found, ()), end_of(found))


def retracted(holds: Holds, now: datetime) -> frozenset[str]:
    """Return the value paths (health.NAME) of the signals that a person has retracted."""
    subjects = (subject for subject in holds if subject.startswith(RETRACTED))
    return frozenset(
        f"health.{subject.removeprefix(RETRACTED)}"
        for subject in subjects
        if any(is_active(hold, now) for hold in holds[subject])
    )


def held(desired: Desired, record: NodeRecord, holds: Holds, now: datetime) -> Blocked | None:
    """Return the first active hold on the node or its pool."""
    for hold in (*holds.get(desired.node, ()), *record.holds, *holds.get(f"pool/{desired.pool}", ())):
        if is_active(hold, now):
            copies = (*record.holds, *holds.get(hold.subject, ()))
            return Blocked(BlockCode.HELD, _sentence(hold, copies), end_of(hold))
    return None


def is_active(hold: Hold | SpecHold, now: datetime) -> bool:
    until = end_of(hold)
    return until is None or until > now


def end_of(hold: Hold | SpecHold) -> datetime | None:
    if isinstance(hold, Hold):
        return hold.until
    return None if hold.until is None else datetime.fromisoformat(hold.until)


def is_copy(recorded: Hold, declared: SpecHold) -> bool:
    """Return whether a hold of the ledger is its copy of one of the spec, whatever line of the spec it is on now."""
    same = (recorded.subject, recorded.reason, recorded.owner) == (declared.subject, declared.reason, declared.owner)
    return same and recorded.position != "" and recorded.until == end_of(declared)


def origin(hold: Hold | SpecHold) -> str:
    """Return what set the hold and what ends it; "" for one that a command set on a node or a pool."""
    if isinstance(hold, SpecHold):
        return f"by {hold.position}"
    if hold.subject in (FLEET, STORM):
        return "`reconciler resume` lifts it"
    if hold.subject.startswith(RETRACTED):
        return f"`reconciler isolation restore {hold.subject.removeprefix(RETRACTED)}` ends it"
    if hold.subject.startswith(TOMBSTONE):
        return f"`reconciler release {hold.subject}` is the consent to take the machine back"
    return f"once by {hold.position}; `reconciler release {hold.subject}` lifts it" if hold.position else ""


def _sentence(hold: Hold | SpecHold, others: Iterable[Hold | SpecHold]) -> str:
    """Return a hold in words: owner and reason, then since and until when, and the line of the spec that sets it."""
    first: Hold | None = None
    for other in (hold, *others):
        if isinstance(other, Hold) and (other is hold or (isinstance(hold, SpecHold) and is_copy(other, hold))):
            first = first or other
    until = end_of(hold)
    more = (
        f"since {_moment(first.since)}" if first is not None else "",
        f"until {_moment(until)}" if until is not None else "",
        origin(hold),
    )
    told = ", ".join(part for part in more if part)
    what = "held by " if hold.subject != FLEET else "stopped by "
    who = hold.owner if hold.subject == STORM else what + hold.owner
    return f"{who}: {hold.reason}" + (f" ({told})" if told else "")


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M UTC}"
