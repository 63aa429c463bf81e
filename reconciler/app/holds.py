"""Holds of nodes and pools, and the stop of the whole fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from reconciler.app.runtime import whoami
from reconciler.app.workspace import Workspace
from reconciler.model.desired import Fleet, SpecHold
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.model.records import FLEET, STORM, TOMBSTONE, Hold, Lease
from reconciler.planner.node.holds import end_of, is_active, is_copy, origin
from reconciler.render.tables import table
from reconciler.render.text import clock

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


def hold(workspace: Workspace, subject: str, reason: str, duration_s: float | None, by: str = "") -> datetime | None:
    """Hold a node or a pool for `duration_s`, or until it is released. Return when the hold ends.

    `by`: who does, here and below; "" = whoever runs this process.
    """
    check_subject(workspace.fleet, subject)
    now = workspace.clock.now()
    until = None if duration_s is None else now + timedelta(seconds=duration_s)
    with workspace.ledger() as ledger:
        ledger.hold(subject, reason, by or whoami(), until, now)
    return until


def release(workspace: Workspace, subject: str, by: str = "") -> Sequence[str]:
    """Release the holds of a node or a pool. Return the places of the spec that hold it again.

    The tombstones of one machine, by its serial number and by its UUID, are released together. Raise UsageError when
    nothing but the spec holds it, or nothing at all.
    """
    now = workspace.clock.now()
    places = [hold.position for hold in workspace.fleet.holds if hold.subject == subject and is_active(hold, now)]
    with workspace.ledger() as ledger:
        released = sum(ledger.release(each, by or whoami(), now) for each in (subject, *_same_machine(ledger, subject)))
        others = sorted({found.subject for found in ledger.holds()})
    if not released and places:
        raise UsageError(f"{subject} is held by the spec alone: remove the hold from {' and '.join(places)}")
    if not released:
        held = f"; held are {', '.join(others)}" if others else "; nothing is held"
        raise UsageError(f"{subject} is not held{held}")
    return places


def _same_machine(ledger: SqlLedger, subject: str) -> list[str]:
    """Return the other tombstones of a machine: they were set with one reason."""
    tombstones = [hold for hold in ledger.holds() if hold.subject.startswith(TOMBSTONE)]
    reasons = {hold.reason for hold in tombstones if hold.subject == subject}
    return [hold.subject for hold in tombstones if hold.subject != subject and hold.reason in reasons]


def list_holds(workspace: Workspace) -> str:
    """Return a table of every active hold and where it comes from."""
    with workspace.present_ledger() as ledger:
        return hold_table(workspace.fleet.holds, ledger.holds(), workspace.clock.now())


def hold_table(declared: Sequence[SpecHold], kept: Sequence[Hold], now: datetime) -> str:
    """Return a table of the active holds that the spec declares and that the ledger keeps, each of them once."""
    cells = []
    holds: tuple[SpecHold | Hold, ...] = (*declared, *kept)
    for one in holds:
        if isinstance(one, Hold):
            copied, since = any(is_copy(one, other) for other in declared), clock(one.since)
        else:
            copied, since = False, next((clock(copy.since) for copy in kept if is_copy(copy, one)), "the next apply")
        if is_active(one, now) and not copied:
            end = end_of(one)
            until = clock(end.astimezone(UTC)) if end else ""
            held = {FLEET: "the whole fleet", STORM: "what disrupts"}.get(one.subject, one.subject)
            cells.append((held, one.owner, since, until, origin(one) or "by command", one.reason))
    head = ("held", "owner", "since", "until", "set", "reason")
    return "\n".join(table(head, sorted(cells), indent="")) + "\n" if cells else "nothing is held\n"


@dataclass(frozen=True, slots=True)
class Stop:
    """The result of a stop. `before`: stops and storm brakes active already. `running`: leases of runs under way."""

    ledger: str
    before: Sequence[Hold]
    running: Sequence[Lease]


def stop(workspace: Workspace, ledger: SqlLedger, reason: str, by: str = "") -> Stop:
    """Stop the whole fleet until somebody resumes it."""
    now = workspace.clock.now()
    before = active_stops(ledger)
    ledger.hold(FLEET, reason, by or whoami(), None, now)
    lease_now = ledger.lease_time(now)
    return Stop(ledger.name, before, [lease for lease in ledger.leases() if lease.expires_at > lease_now])


def resume(workspace: Workspace, ledger: SqlLedger, by: str = "") -> Sequence[Hold]:
    """Lift the stop of the fleet and the storm brake, and return them. Raise UsageError when there is neither."""
    before = active_stops(ledger)
    if not before:
        raise UsageError(f"nothing is stopped in the ledger {ledger.name}")
    for subject in {hold.subject for hold in before}:
        ledger.release(subject, by or whoami(), workspace.clock.now())
    return before


def active_stops(ledger: SqlLedger) -> list[Hold]:
    return [hold for hold in ledger.holds() if hold.subject in (FLEET, STORM)]


def check_subject(fleet: Fleet, subject: str) -> None:
    """Raise UsageError for a node or pool that the fleet does not have: a typo must not look like protection."""
    pools = {f"pool/{node.pool}" for node in fleet.nodes.values()}
    if subject not in fleet.nodes and subject not in pools:
        hint = did_you_mean(subject, [*fleet.nodes, *pools])
        raise UsageError(f"fleet {fleet.settings.fleet} has no {subject!r}" + (f"; {hint}" if hint else ""))
