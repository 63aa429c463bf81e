"""A plan in as few lines as a fleet has pools: what is done to how many nodes, and how many are held back by what."""

from __future__ import annotations

from collections import Counter

from reconciler.model.plan import NodePlan, Plan
from reconciler.model.vocab import Disruption
from reconciler.render.plan import heading
from reconciler.render.tables import table
from reconciler.render.text import disruption, page


def summary(plan: Plan) -> str:
    """Return the heading of the plan, and counts of nodes by pool; each node counts once, as what disrupts it most."""
    pools: dict[str, list[NodePlan]] = {}
    for node in plan.nodes.values():
        pools.setdefault(node.pool, []).append(node)
    levels = sorted({node.disruption for node in plan.nodes.values() if node.changes}, reverse=True)
    lines = heading(plan)
    if levels:
        head = ("pool", "nodes", "to change", *(_word(level) for level in levels))
        lines += ["", "Nodes to change, by what disrupts them most:"]
        lines += table(head, [_row(pool, nodes, levels) for pool, nodes in sorted(pools.items())])
    held = Counter((node.pool, node.blocked.code) for node in plan.nodes.values() if node.blocked is not None)
    if held:
        lines += ["", "Nodes held back:"]
        lines += table(
            ("pool", "nodes", "by"), [(pool, f"{times:,}", code.value) for (pool, code), times in sorted(held.items())]
        )
    return page(lines)


def _row(pool: str, nodes: list[NodePlan], levels: list[Disruption]) -> tuple[str, ...]:
    counts = Counter(node.disruption for node in nodes if node.changes)
    return (pool, f"{len(nodes):,}", f"{counts.total():,}", *(f"{counts[level]:,}" for level in levels))


def _word(level: Disruption) -> str:
    return disruption(level) if level else "no disruption"
