"""Who must not be touched: holds of the ledger, and of the spec, which hold before a ledger has them.

A stop is a hold of the whole fleet (pitfall J9): nothing begins anywhere, whatever a plan says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from reconciler.model.desired import Desired, SpecHold
from reconciler.model.plan import BlockCode, Blocked
from reconciler.model.records import FLEET, RETRACTED, STORM, Hold, NodeRecord

Holds = Mapping[str, tuple[Hold | SpecHold, ...]]  # by subject, those of the spec first


def by_subject(declared: Iterable[SpecHold], kept: Iterable[Hold]) -> Holds:
    found: dict[str, tuple[Hold | SpecHold, ...]] = {}
    holds: tuple[Hold | SpecHold, ...] = (*declared, *kept)
    for hold in holds:
        found[hold.subject] = (*found.get(hold.subject, ()), hold)
    return found


def stopped(holds: Holds, now: datetime) -> Blocked | None:
    """The first stop of the whole fleet that stands."""
    found = next((hold for hold in holds.get(FLEET, ()) if is_active(hold, now)), None)
    return None if found is None else Blocked(BlockCode.STOPPED, _sentence(found, ()), end_of(found))


def braked(holds: Holds, now: datetime) -> Blocked | None:
    """The storm brake, while nobody has lifted it."""
    found = next((hold for hold in holds.get(STORM, ()) if is_active(hold, now)), None)
    return None if found is None else Blocked(BlockCode.STORM, _sentence(found, ()), end_of(found))


def retracted(holds: Holds, now: datetime) -> frozenset[str]:
    """Value paths (health.NAME) of signals that a person has retracted."""
    subjects = (subject for subject in holds if subject.startswith(RETRACTED))
    return frozenset(
        f"health.{subject.removeprefix(RETRACTED)}"
        for subject in subjects
        if any(is_active(hold, now) for hold in holds[subject])
    )


def held(desired: Desired, record: NodeRecord, holds: Holds, now: datetime) -> Blocked | None:
    """The first hold on the node or its pool that stands."""
    kept = record.holds
    for hold in (*holds.get(desired.node, ()), *kept, *holds.get(f"pool/{desired.pool}", ())):
        if is_active(hold, now):
            copies = (*kept, *holds.get(hold.subject, ()))
            return Blocked(BlockCode.HELD, _sentence(hold, copies), end_of(hold))
    return None


def is_active(hold: Hold | SpecHold, now: datetime) -> bool:
    until = end_of(hold)
    return until is None or until > now


def end_of(hold: Hold | SpecHold) -> datetime | None:
    if isinstance(hold, Hold):
        return hold.until
    return None if hold.until is None else datetime.fromisoformat(hold.until)


def is_copy(kept: Hold, declared: SpecHold) -> bool:
    """Whether this is what the ledger has of it. A line that moved is the same hold, one that changed is another."""
    same = (kept.subject, kept.reason, kept.owner) == (declared.subject, declared.reason, declared.owner)
    return same and kept.position != "" and kept.until == end_of(declared)


def origin(hold: Hold | SpecHold) -> str:
    """Where it stands, or stood; "" = a command set it."""
    if isinstance(hold, SpecHold):
        return f"by {hold.position}"
    if hold.subject in (FLEET, STORM):
        return "`reconciler resume` lifts it"
    if hold.subject.startswith(RETRACTED):
        return f"`reconciler isolation restore {hold.subject.removeprefix(RETRACTED)}` ends it"
    return f"once by {hold.position}; `reconciler release {hold.subject}` lifts it" if hold.position else ""


def _sentence(hold: Hold | SpecHold, others: Iterable[Hold | SpecHold]) -> str:
    """Owner and reason first; then since and until when, and which line says so."""
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
