"""Who may go now: each plan that needs leave gets it, or the reason why not and when it may (DESIGN 7.2).

Leave is needed to take a node out of service, from the windows and from the budget, and to start firmware, from the
windows. What else is done to a node that is out brings it back, and is never held up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

from reconciler.model.drift import DriftClass
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan
from reconciler.model.vocab import Concern, Reason
from reconciler.planner.fleet.budget import Budget
from reconciler.planner.fleet.rollouts import Rollouts
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.node.workload import disrupts, flashes, is_braked, work

_REASONS = {
    DriftClass.DRIFTED: frozenset({Reason.DRIFT}),
    DriftClass.IN_PROGRESS: frozenset({Reason.DRIFT}),
    DriftClass.PENDING: frozenset({Reason.CHANGE}),
    DriftClass.CONFLICT: frozenset({Reason.DRIFT, Reason.CHANGE}),
}

OF_ROLLOUTS = (BlockCode.ROLLOUT, BlockCode.HALTED)
_IN_NO_QUEUE = (*OF_ROLLOUTS, BlockCode.STORM)


@dataclass(frozen=True, slots=True)
class Permit:
    """What gives leave, as of `now`. `brake`: the storm brake, while it is set."""

    budget: Budget
    windows: Windows
    now: datetime
    rollouts: Rollouts = field(default_factory=Rollouts)
    brake: Blocked | None = None

    def refusal(self, plan: NodePlan) -> Blocked | None:
        """None: all that is planned may begin now."""
        if self.brake is not None and work(plan.actions).braked:
            return self.brake
        if plan.blocked is not None and _pauses(plan.blocked, self.now):
            return plan.blocked
        if not plan.postponed and (wait := self.rollouts.refusal(plan)) is not None:
            return wait
        out = takes_out(plan)
        if not out and not work(plan.actions).flashes:
            return None
        return self._window(plan) or (self._budget(plan) if out else None)

    def refusal_of_next(self, plan: NodePlan) -> Blocked | None:
        """None: the first of the actions may begin now, on a node that is being worked on."""
        if plan.in_service is not False or plan.isolated:
            return self.refusal(plan)
        first = plan.actions[0]
        if self.brake is not None and is_braked(first):
            return self.brake
        refused = self._window(plan) if flashes(first) else None
        return refused or (self._budget(plan) if disrupts(first) else None)

    def _window(self, plan: NodePlan) -> Blocked | None:
        return self.windows.refusal(plan.pool, work(plan.actions).need_s) if self.windows else None

    def _budget(self, plan: NodePlan) -> Blocked | None:
        return self.budget.allows(plan.node, reasons(plan))


def waits(blocked: Blocked) -> bool:
    """Whether what is planned may go all the same, once time has passed or somebody has lifted a halt or the brake."""
    return blocked.code.passes or blocked.code in _IN_NO_QUEUE


def takes_out(plan: NodePlan) -> bool:
    """Whether the plan takes a node out of service that may be in it, or ends the work on one that is isolated."""
    return (plan.in_service is not False or bool(plan.isolated)) and work(plan.actions).disrupts


def reasons(plan: NodePlan) -> frozenset[Reason]:
    """What the node is taken out for. The ill are treated whatever else there is; a renewal is all that is left."""
    return _reasons(tuple([(item.kind, item.concern) for item in plan.drift]), plan.goal)


@lru_cache(maxsize=4096)
def _reasons(drift: tuple[tuple[DriftClass, Concern], ...], goal: Goal) -> frozenset[Reason]:
    """Few kinds of drift make up a fleet's."""
    well = (DriftClass.IGNORED, DriftClass.REPORTED)
    ill = any(concern is Concern.HEALTH and kind not in well for kind, concern in drift)
    if ill or goal is Goal.ISOLATED:
        return frozenset({Reason.REMEDIATION})
    return frozenset().union(*(_REASONS.get(kind, ()) for kind, _ in drift)) or frozenset({Reason.RENEWAL})


def urgency(plan: NodePlan) -> int:
    """Who goes first when the budget is short: what is out already, then the sick, then drift, then renewals."""
    return 0 if plan.in_service is False and not plan.isolated else _urgency(reasons(plan))


@lru_cache
def _urgency(why: frozenset[Reason]) -> int:
    return 1 if Reason.REMEDIATION in why else 3 if why == {Reason.RENEWAL} else 2


def in_turn(plans: Iterable[NodePlan]) -> list[NodePlan]:
    """By urgency; among equals, pools take turns, so that no pool starves another (pitfall J7)."""
    place: dict[str, int] = {}
    keyed = []
    for plan in plans:
        at = place[plan.pool] = place.get(plan.pool, -1) + 1
        keyed.append(((urgency(plan), at, plan.pool), plan))
    return [plan for _, plan in sorted(keyed, key=lambda pair: pair[0])]


def schedule(plans: Mapping[str, NodePlan], leave: Permit) -> dict[str, NodePlan]:
    """Each plan with the verdict of now: it may go (wave 0), or in which batch of the budget, and why not now."""
    judged = {name: unjudged(plan, leave.now) for name, plan in plans.items()}
    for plan in in_turn(plan for plan in judged.values() if plan.actions and plan.goal is not Goal.NOTHING):
        blocked = leave.refusal(plan)
        if blocked is None:
            if takes_out(plan):
                leave.budget.charge(plan.node)
            continue
        queued = blocked.code not in _IN_NO_QUEUE
        wave = leave.budget.queue(plan.node, reasons(plan)) if queued else None
        judged[plan.node] = replace(plan, wave=wave, blocked=plan.blocked or blocked)
    return judged


def unjudged(plan: NodePlan, now: datetime) -> NodePlan:
    """Without an earlier verdict that time may have lifted. A pause after a failure has an end of its own."""
    if plan.blocked is None or not waits(plan.blocked) or _pauses(plan.blocked, now):
        return plan
    return replace(plan, blocked=None, wave=0)


def _pauses(blocked: Blocked, now: datetime) -> bool:
    return blocked.code is BlockCode.BACKOFF and blocked.until is not None and blocked.until > now
