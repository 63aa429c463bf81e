"""Nodes that share outlets of rack PDUs: who is cut off from mains takes its siblings out of service, too.

The plan of the one names the others, and all of them go out together by one answer of the budget, or none does: so two
that wait for each other's room are never half out (pitfall C4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from reconciler.model.desired import Desired, Fleet
from reconciler.model.plan import BlockCode, Blocked, BudgetLine, Goal, NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import NodeState, Reason
from reconciler.planner.fleet.budget import Budget
from reconciler.planner.fleet.budget_group import ANY
from reconciler.planner.node import conditions as c
from reconciler.planner.node.holds import Holds, held
from reconciler.planner.node.possible import at
from reconciler.planner.node.power_variants import siblings_in

# What is done to a sibling: it goes out, is cut off, and comes back as it was. All else needs a plan of its own.
_OUT_AND_BACK: Final = frozenset({
    c.MARKED, c.SERVING_SYNCED, c.SERVING_DEGRADED, c.QUIESCED, c.CUT, c.POWER_ON, c.HOST_UP, c.REGISTERED, c.MEMBER,
    c.TRUST, c.GPU_PLAIN, c.GATE, c.GPU, c.OPERATORS, c.LABELS, c.IN_SERVICE, c.SERVING_RESTORED,
})  # fmt: skip
_UNTOUCHED = (Goal.NOTHING, Goal.CONVERGED_CORDONED, Goal.DECOMMISSIONED, Goal.REPAIR, Goal.TESTED)


def uncuttable(fleet: Fleet, holds: Holds, records: Mapping[str, NodeRecord], now: datetime) -> dict[str, str]:
    """Return the nodes whose outlets are never switched, as long as things are as they are, each with why.

    What only time or others lift, as room in the budget that somebody uses, is not among it: that is waited for.
    """
    together = {name: node for name, node in fleet.nodes.items() if node.outlets and node.siblings}
    if not together:
        return {}
    empty = Budget(fleet.settings.budgets, fleet.nodes, now, fleet.settings.floors, reserves=fleet.settings.reserves)
    found = {}
    for name, node in together.items():
        if why := _for_a_sibling(node, fleet, holds, records, now) or _for_the_budget(node, empty):
            found[name] = why + at(node, "outlets")
    return found


def _for_a_sibling(node: Desired, fleet: Fleet, holds: Holds, records: Mapping[str, NodeRecord], now: datetime) -> str:
    for name in node.siblings:
        other, why = fleet.nodes.get(name), ""
        if other is None:
            why = "is not among the nodes of this reconciler"
        elif other.state is not NodeState.ACTIVE:
            why = f"is {other.state} in the spec"
        elif not other.endpoints.bmc:
            why = "has no BMC that would shut it down"
        elif (hold := held(other, records.get(name) or NodeRecord(name), holds, now)) is not None:
            why = f"is {hold.detail}"
        if why:
            return f"its outlets give {name} power, too, which {why}"
    return ""


def _for_the_budget(node: Desired, empty: Budget) -> str:
    refused = together((node.node, *node.siblings), empty, {Reason.REMEDIATION})
    if refused is None:
        return ""
    return f"its outlets give {', '.join(node.siblings)} power, too, and they are never out at once: {refused.detail}"


def together(names: Iterable[str], budget: Budget, reasons: Collection[Reason] = ANY) -> Blocked | None:
    """Return why these nodes may not be taken out of service together now; None = all of them may."""
    with budget.supposing():
        for name in names:
            if (refused := budget.allows(name, reasons)) is not None:
                return refused
            budget.charge(name)
    return None


def refusal_to_be_taken(name: str, plan: NodePlan | None) -> str:
    """Return why nothing may be done to a sibling now; "" when something may. `plan`: its latest one, if it has any."""
    if plan is None:
        return f"{name}, which its outlets give power, too, is not selected: select it with it"
    blocked = plan.blocked
    if plan.goal in _UNTOUCHED or (blocked is not None and blocked.code is BlockCode.FOREIGN_HOLD):
        why = plan.situation if blocked is None else blocked.detail
        return f"its outlets give {name} power, too, to which nothing is done: {why}"
    return ""


def beyond_out_and_back(plan: NodePlan) -> list[str]:
    """Return the actions of a sibling's plan that nobody approves by approving that it is cut off with another node."""
    return [action.id for action in plan.actions if not _OUT_AND_BACK.issuperset(action.achieves)]


def siblings_taken_out(plans: Iterable[NodePlan]) -> set[str]:
    """Return the nodes that are taken out of service for the sake of these plans, and by no plan of their own."""
    return {name for plan in plans for name in siblings_in(plan.actions)}


def peak_with(along: Collection[str], peak: int, lines: Iterable[BudgetLine]) -> int:
    """Return how many nodes are out at once at most, where the timetable knows only those with plans of their own."""
    if not along:
        return peak
    limits = [line.limit for line in lines if line.scope.startswith("fleet") and line.per_s is None and line.active]
    return max(peak, min([peak + len(along), *limits]))
