"""Cancel a repair when a person takes the node back by lifting the cordon of our mark."""

from __future__ import annotations

from datetime import datetime

from reconciler.converge.actions.ac_cycle import HOLDER
from reconciler.model.observed import Observed, Silent
from reconciler.model.plan import NodePlan
from reconciler.model.ports import Ledger
from reconciler.model.records import OWNER_ANNOTATION, NodeRecord, read_mark
from reconciler.planner.node.record import place_of_mark


def is_uncordoned(observed: Observed, record: NodeRecord, ledger: str) -> bool:
    """Return whether somebody lifted the cordon of our mark and nothing else of it: ours goes with the mark.

    A hold that was released since the mark was set says that the repair is to go on.
    """
    member = None if isinstance(observed.member, Silent) else observed.member.value
    if member is None or member.unschedulable:
        return False
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    if mark is None or mark.ledger != ledger or not mark.cordoned:
        return False
    if record.released_at is None:
        return True
    place = place_of_mark(record, mark)
    if place is not None:
        return not record.is_seen_to(record.attempts[place])
    return record.released_at.isoformat() < mark.at


def cancel(ledger: Ledger, plan: NodePlan, now: datetime) -> str:
    """Set a hold that tells why the repair is cancelled, unless one is there, journal it and return the reason."""
    if held := next((hold for hold in ledger.holds() if hold.subject == plan.node), None):
        return held.reason
    why = (
        f"somebody uncordoned it while it was repaired for {', '.join(item.path for item in plan.illness)}: the repair "
        "is cancelled, and our taint keeps new work off; release this hold to go on, or retract the signal"
    )
    ledger.hold(plan.node, why, HOLDER, None, now)
    ledger.note(plan.node, "repair cancelled", why, now)
    return why
