"""Make the plan of a node for which the reconciler itself failed: it says why, and has no actions (invariant 22)."""

from __future__ import annotations

from dataclasses import replace

from reconciler.model.crash import Crash
from reconciler.model.desired import Desired
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.observed import Observed
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan
from reconciler.model.vocab import Concern


def unplanned(desired: Desired, observed: Observed, crash: Crash) -> NodePlan:
    """Return the plan of a node that could not be planned."""
    kind = DriftClass.UNKNOWN
    unknown = DriftItem(desired.node, Concern.IDENTITY, "identity", kind, None, None, detail=crash.sentence)
    return NodePlan(
        node=desired.node,
        pool=desired.pool,
        goal=Goal.NOTHING,
        situation=crash.sentence,
        in_service=None,
        observed_at=observed.hot.at,
        incomplete=(crash.sentence,),
        drift=(unknown,),
        actions=(),
        blocked=Blocked(BlockCode.CRASHED, crash.sentence),
        wave=None,
        fingerprint="",
    )


def stopped_by(crash: str, plan: NodePlan) -> NodePlan:
    """Return a plan without its actions, for a node of which some value could not be read; its drift is still shown."""
    blocked = Blocked(BlockCode.CRASHED, crash)
    return replace(
        plan, goal=Goal.NOTHING, situation=crash, actions=(), blocked=blocked, wave=None, postponed=(), fingerprint=""
    )
