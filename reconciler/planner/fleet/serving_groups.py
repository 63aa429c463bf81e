"""Serving groups as limits of the budget: of nodes that serve together, one at most is away.

A node is away from its group while it is out of service, and until the group was told to serve with it again: the
others serve without it as long as that, and would be told to serve without another one, too. An isolated node is
drained all the same while others are in service and merely wait to be told: that waits for the isolated one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from reconciler.model.desired import Desired
from reconciler.model.plan import BlockCode, Blocked, NodePlan
from reconciler.model.serving import ITEM
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.budget_group import Group
from reconciler.planner.node.serving import RESTORE

_GO = (NodeState.ACTIVE, NodeState.DECOMMISSIONED)


def serving_limits(nodes: Mapping[str, Desired], now: datetime) -> Iterator[tuple[Group, list[str]]]:
    """Yield a limit for each serving group, and the nodes that it is about: what is or goes out of service by us.

    One that the spec quarantines or retires is away, and stays so until it is no longer named in the group. One that is
    to be decommissioned serves until it goes, and goes by this limit, too.
    """
    seen = {node.serving.group for node in nodes.values() if node.serving is not None}
    for names in sorted(seen):
        members = [name for name in names if name in nodes and nodes[name].state in _GO]
        words = ("its serving group serves without another one", "away")
        away = dict.fromkeys((name for name in names if name not in members), now)
        name = f"serving group {', '.join(names[:4])}" + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        yield Group(name, 1, len(names), "1 of those that serve together", words, used=away), members


def may_lack(plan: NodePlan) -> bool:
    """Return whether a node is in service, and its serving group was not told to serve with it again."""
    return any(item.path == ITEM for item in plan.drift)


def restore_refusal(plan: NodePlan, away: tuple[str, ...]) -> Blocked | None:
    """Return why a group is not told to serve with a node again now; None = it may be. `away`: nodes of the others."""
    if not plan.actions or plan.actions[0].name != RESTORE or not away:
        return None
    return Blocked(BlockCode.BUDGET, f"its serving group is whole again when {', '.join(away)} is in service")
