"""Questions about the plan of a node that the work on it asks."""

from __future__ import annotations

from datetime import datetime

from reconciler.model.drift import ACTIONABLE
from reconciler.model.observed import Member
from reconciler.model.plan import BlockCode, Goal, NodePlan
from reconciler.model.records import NodeRecord
from reconciler.planner.node.record import is_untouched


def is_stopped(plan: NodePlan) -> bool:
    return plan.blocked is not None and plan.blocked.code is BlockCode.STOPPED


def known_by(plan: NodePlan, now: datetime) -> datetime | None:
    """Return when what is unknown of the node will be known, where that is still to come; None where nobody knows."""
    blocked = plan.blocked
    until = blocked.until if blocked is not None and blocked.code is BlockCode.UNDER_WAY else None
    return until if until is not None and until > now else None


def drift_of(plan: NodePlan) -> frozenset[str]:
    """Return the paths of the drift that actions remove.

    The membership is left out: a node that has just booted is not Ready yet, which is no other drift.
    """
    return frozenset(item.path for item in plan.drift if item.kind in ACTIONABLE and item.path != "cluster.member")


def backs_off_until(plan: NodePlan) -> datetime | None:
    return plan.blocked.until if plan.blocked is not None and plan.blocked.code is BlockCode.BACKOFF else None


def stays_out(plan: NodePlan) -> bool:
    return plan.goal in (Goal.ISOLATED, Goal.REPAIR, Goal.SPARE) or bool(plan.illness or plan.isolation)


def may_serve_as_before(plan: NodePlan | None, record: NodeRecord, member: Member | None) -> bool:
    """Return whether a node that is out by a mark of ours may serve without a gate: it is well, and was only drained.

    `plan`: made since the mark was set; None: it is not known.
    """
    ready = member is not None and member.ready is True
    return ready and plan is not None and not stays_out(plan) and is_untouched(record)
