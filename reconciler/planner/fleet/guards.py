"""Guards: a plan that does too much at once is refused as a whole, whatever the budget would allow node by node.

They protect against an edit that reaches every node by mistake, and against a common cause taken for many separate
faults (pitfalls M4, J5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.model.desired import Fleet
from reconciler.model.plan import Goal, NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Disruption, NodeState
from reconciler.planner.fleet.gate_forecast import GateForecast

_REIMAGED = "image.version"  # recorded in the ledger for each node that has once run an image of ours


def refusals(
    fleet: Fleet,
    plans: Mapping[str, NodePlan],
    whole: Mapping[str, NodePlan],
    records: Mapping[str, NodeRecord],
    known: Sequence[str],
    forecast: GateForecast,
) -> tuple[str, ...]:
    """Return a sentence for each guard that these plans exceed.

    Everything that is planned counts, also what waits or may turn out needless: whoever approves the plan approves it.
    A node that is to be decommissioned needs a typed consent of its own, which is more than a guard asks for.
    `whole`: the full plans of nodes whose plans leave changes of the spec to a later wave. `known`: nodes with applied
    values in the ledger; those that the spec does not name any more are about to be forgotten. `forecast`: of the tests
    that the spec has changed.
    """
    guards = fleet.settings.guards
    total = sum(node.state is NodeState.ACTIVE for node in fleet.nodes.values())
    worst = {
        name: hardest
        for name, plan in plans.items()
        if (plan.actions or name in whole)
        and plan.goal is not Goal.DECOMMISSIONED
        and (hardest := _hardest(plan, whole.get(name))) >= Disruption.REBOOT
        and not _is_new(plan, records.get(name))
    }
    reimaged = [name for name, disruption in worst.items() if disruption is Disruption.REIMAGE]
    forgotten = sorted(set(known) - fleet.nodes.keys())
    found = (
        _refusal("reimage", "reimage", reimaged, guards.reimage, total),
        _refusal("reboot", "reboot, flash or reimage", list(worst), guards.reboot, total),
        _refusal("forget", "forget", forgotten, guards.forget, len(known)),
        _refusal("failGate", "test and fail", list(forecast.below), guards.fail_gate, total, forecast.worst),
    )
    return tuple(sentence for sentence in found if sentence)


def _hardest(plan: NodePlan, whole: NodePlan | None) -> Disruption:
    return plan.disruption if whole is None else max(plan.disruption, whole.disruption)


def _is_new(plan: NodePlan, record: NodeRecord | None) -> bool:
    """Return whether the node serves nobody and never ran our image: a first installation takes nothing away."""
    return plan.in_service is False and (record is None or _REIMAGED not in record.applied)


def _refusal(guard: str, does: str, names: list[str], limit: str, total: int, more: str = "") -> str:
    allowed = parse_nodes(limit, total)
    if len(names) <= allowed:
        return ""
    share = f"{limit} of {total} = {allowed}" if limit.endswith("%") else str(allowed)
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"it would {does} {len(names)} of {total} nodes, and {share} is the most at once ({shown}){more}; "
        f"if that is meant, raise guards.{guard} of the Fleet"
    )
