"""Decide which nodes a queue of jobs keeps free for their work: those of pools with windows, shortly before it.

Without it a node never gets into a short window: whenever one long job ends, the next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from reconciler.model.desired import Window
from reconciler.model.plan import NodePlan
from reconciler.model.reservations import Reservation
from reconciler.planner.fleet.permit import takes_out

TOLERATED: Final = timedelta(minutes=10)  # estimates move with every pass, and a reservation need not follow that


def wanted_reservations(
    plans: Mapping[str, NodePlan], windows: Sequence[Window], now: datetime, ahead: timedelta
) -> dict[str, Reservation]:
    """Return the reservations of nodes that are expected to be taken out within `ahead`, by node."""
    found = {}
    for name, plan in plans.items():
        begins, ends = plan.start, plan.end
        if begins is None or ends is None or not now < begins <= now + ahead or not takes_out(plan):
            continue
        if any(not window.pools or plan.pool in window.pools for window in windows):
            found[name] = Reservation(name, begins.replace(second=0, microsecond=0), ends)
    return found


def is_over(ours: Reservation, plan: NodePlan | None, now: datetime) -> bool:
    """Return whether a reservation that is not wanted (any more) serves nothing either.

    It is kept while the node is out for its work, and while a node whose time has come waits for those before it.
    """
    if plan is None or not plan.actions:
        return True
    return plan.in_service is True and not (ours.start <= now and takes_out(plan))


def has_moved(ours: Reservation, wanted: Reservation, now: datetime) -> bool:
    """Return whether a reservation that has not begun stands at another time than it should."""
    if ours.start <= now:
        return False
    return abs(ours.start - wanted.start) > TOLERATED or abs(ours.end - wanted.end) > TOLERATED
