"""Permission to begin, as of one moment: whether a node's plan may go now, and otherwise why not and until when.

To take a node out of service needs the permission of windows and budget, to start firmware that of the windows, to
disrupt anything that of the storm brake, and to do what the spec changed that of the rollout (DESIGN 7.2). What else is
done to a node that is out brings it back, and is never held up here.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

from reconciler.model.drift import DriftClass
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, PlannedAction
from reconciler.model.vocab import Concern, Reason
from reconciler.planner.fleet.budget import Budget
from reconciler.planner.fleet.k3s_order import K3sOrder
from reconciler.planner.fleet.kubelet_order import KubeletOrder
from reconciler.planner.fleet.rollouts import Rollouts
from reconciler.planner.fleet.serving_groups import restore_refusal
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.node.workload import disrupts, flashes, is_braked, work

_REASONS = {
    DriftClass.DRIFTED: frozenset({Reason.DRIFT}),
    DriftClass.IN_PROGRESS: frozenset({Reason.DRIFT}),
    DriftClass.PENDING: frozenset({Reason.CHANGE}),
    DriftClass.CONFLICT: frozenset({Reason.DRIFT, Reason.CHANGE}),
}

OF_ROLLOUTS = (BlockCode.ROLLOUT, BlockCode.HALTED)
WITHOUT_BATCH = (*OF_ROLLOUTS, BlockCode.STORM)  # what holds a node back, and is no limit on how many go at once


@dataclass(frozen=True, slots=True)
class Permit:
    """All that holds nodes back, as of `now`. `brake`: the storm brake, while it is set."""

    budget: Budget
    windows: Windows
    now: datetime
    rollouts: Rollouts = field(default_factory=Rollouts)
    brake: Blocked | None = None
    order: K3sOrder = field(default_factory=K3sOrder)
    kubelets: KubeletOrder = field(default_factory=KubeletOrder)

    def admit(self, plan: NodePlan) -> Blocked | None:
        """Charge the budget for what may begin now, and return None; otherwise return why it has to wait."""
        blocked = self.refusal(plan)
        if blocked is None and takes_out(plan):
            self.budget.charge(plan.node)
        return blocked

    def refusal(self, plan: NodePlan) -> Blocked | None:
        """Return None when all that is planned may begin now. Whatever else is returned, `waits` is true of it."""
        if self.brake is not None and work(plan.actions).braked:
            return self.brake
        if plan.blocked is not None and pauses(plan.blocked, self.now):
            return plan.blocked
        if not plan.postponed and (wait := self.rollouts.refusal(plan)) is not None:
            return wait
        if plan.actions and (wait := self._order(plan, _in_question(plan))) is not None:
            return wait
        if (wait := self.restore_refusal(plan)) is not None:
            return wait
        out = takes_out(plan)
        if not out and not work(plan.actions).flashes:
            return None
        return self._window(plan) or (self._budget(plan) if out else None)

    def restore_refusal(self, plan: NodePlan) -> Blocked | None:
        """Return why the serving group of a node is not told to serve with it again now; None = nothing hinders it."""
        return restore_refusal(plan, self.budget.away_from_group(plan.node))

    def refusal_of_next(self, plan: NodePlan) -> Blocked | None:
        """Return None when the first of the actions may begin now, on a node that is being worked on."""
        if plan.in_service is not False or plan.isolated:
            return self.refusal(plan)
        first = plan.actions[0]
        if self.brake is not None and is_braked(first):
            return self.brake
        refused = self._order(plan, (first,)) or (self._window(plan) if flashes(first) else None)
        return refused or (self._budget(plan) if disrupts(first) else None)

    def kind_of_order(self, plan: NodePlan) -> Hashable:
        """Return a key of what the order among nodes asks of a plan: those with equal keys get equal answers."""
        actions = _in_question(plan)
        return self.order.kind(plan.node, actions), self.kubelets.kind(plan.node, actions)

    def _order(self, plan: NodePlan, actions: tuple[PlannedAction, ...]) -> Blocked | None:
        return self.order.refusal(plan, actions) or self.kubelets.refusal(plan, actions)

    def _window(self, plan: NodePlan) -> Blocked | None:
        return self.windows.refusal(plan.pool, work(plan.actions).need) if self.windows else None

    def _budget(self, plan: NodePlan) -> Blocked | None:
        if plan.goal is Goal.SPARE:
            return None  # it serves nobody: no limit on nodes out of service is about it
        return self.budget.allows(plan.node, reasons(plan))


def _in_question(plan: NodePlan) -> tuple[PlannedAction, ...]:
    """Return the actions that it must be the node's turn for: all, if it is in service, or else the first."""
    return plan.actions[:1] if plan.in_service is False else plan.actions


def waits(blocked: Blocked) -> bool:
    """Return whether the plan may go once time has passed, or somebody has lifted a halt or the brake."""
    return blocked.code.passes or blocked.code in WITHOUT_BATCH


def pauses(blocked: Blocked, now: datetime) -> bool:
    """Return whether this is the pause after a failed action, and not over yet."""
    return blocked.code is BlockCode.BACKOFF and blocked.until is not None and blocked.until > now


def without_verdict(plan: NodePlan, now: datetime) -> NodePlan:
    """Return the plan without an earlier verdict that time may have lifted. A pause has an end of its own."""
    if plan.blocked is None or not waits(plan.blocked) or pauses(plan.blocked, now):
        return plan
    return replace(plan, blocked=None, wave=0)


def takes_out(plan: NodePlan) -> bool:
    """Return whether the plan takes a node out of service, or drains one that is only isolated so far."""
    return (plan.in_service is not False or bool(plan.isolated)) and work(plan.actions).disrupts


def reasons(plan: NodePlan) -> frozenset[Reason]:
    """Return what the node is taken out for: illness before all else, and a renewal only if there is nothing else."""
    return _reasons(tuple([(item.kind, item.concern) for item in plan.drift]), plan.goal)


@lru_cache(maxsize=4096)
def _reasons(drift: tuple[tuple[DriftClass, Concern], ...], goal: Goal) -> frozenset[Reason]:
    """Few kinds of drift make up a fleet's."""
    well = (DriftClass.IGNORED, DriftClass.REPORTED)
    ill = any(concern is Concern.HEALTH and kind not in well for kind, concern in drift)
    if ill or goal in (Goal.ISOLATED, Goal.REPAIR):
        return frozenset({Reason.REMEDIATION})
    return frozenset().union(*(_REASONS.get(kind, ()) for kind, _ in drift)) or frozenset({Reason.RENEWAL})
