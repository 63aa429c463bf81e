"""Whether a node may still be changed under an approved plan (DESIGN 8).

Approval holds per node: the same desired values, a subset of the actions, no higher disruption. What lies behind a
boot is predicted in the plan, so once work on a node has begun, drift that the plan's own actions caused is no news;
what a machine that is silent half way may need besides is judged when it has been read; and where an approved reimage
turns out not to be needed, the restart that it would have brought is covered by it.
"""

from __future__ import annotations

from reconciler.model.drift import ACTIONABLE
from reconciler.model.plan import NodePlan
from reconciler.model.vocab import Certainty

# What they do besides, and what is left of them to a run that comes after one that died half way. A node joins again
# after every boot: its system answers before its kubelet is Ready.
_COVERS = {
    "soft_restart": frozenset({"join"}),
    "power_on": frozenset({"join"}),
    "power_cycle": frozenset({"soft_restart", "power_on", "join"}),
    "reimage": frozenset({"soft_restart", "power_on", "power_cycle", "join"}),
}


def stale_because(approved: NodePlan | None, fresh: NodePlan, *, begun: bool) -> str:
    """Why `fresh` goes beyond what was approved; "" when it does not."""
    if not fresh.actions:
        return ""
    if approved is None:
        return "this node is not part of the plan"
    if fresh.fingerprint == approved.fingerprint:
        return ""
    allowed = {action.id for action in approved.actions}
    for name in [name for name in _COVERS if name in allowed]:
        allowed |= _COVERS[name]
    sure = [action for action in fresh.actions if not begun or action.certainty is Certainty.EXACT]
    beyond = [action.id for action in sure if action.id not in allowed]
    if beyond:
        return f"it needs {', '.join(dict.fromkeys(beyond))} beyond what was approved"
    if fresh.disruption > approved.disruption:
        return f"it needs {fresh.disruption.label}, approved was {approved.disruption.label}"
    return _other_values(approved, fresh, begun=begun)


def _other_values(approved: NodePlan, fresh: NodePlan, *, begun: bool) -> str:
    wanted = {item.path: item.desired for item in approved.drift}
    for item in fresh.drift:
        if item.kind not in ACTIONABLE:
            continue
        if item.path not in wanted:
            if not begun:
                return f"{item.path} differs now, and did not when the plan was made"
        elif item.desired != wanted[item.path]:
            return f"the spec now wants {item.path} to be {item.desired!r}, approved was {wanted[item.path]!r}"
    return ""
