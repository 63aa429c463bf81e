"""Plan nodes where they were read: the plans that do nothing, which their leader keeps as if it had made them.

A leader without kept plans, after its start or with a new spec, plans every node. Most plans do nothing, and each is
made from its node and what a pass says of it: so they may be made elsewhere, beside the readings. A plan that does
something is always made by the leader, in the pass that carries it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.model.desired import Desired, IgnoreRule
from reconciler.model.observed import Observed
from reconciler.model.plan import NodePlan
from reconciler.model.records import NodeRecord
from reconciler.planner.node.conditions import Context
from reconciler.planner.node.holds import Holds
from reconciler.planner.node.kept_plans import KeptPlan, KeptPlanner, KeptPlans
from reconciler.planner.node.planner import NodePlanner

LEAST: Final = 25  # nodes: a task with fewer costs more than it saves

Place = tuple[str, str]  # site, and key of the shard


class QuietPlan(NamedTuple):
    """The plan of a node that does nothing, and the instant before which it holds for the same inputs."""

    plan: NodePlan
    valid_until: datetime


@dataclass(frozen=True, slots=True)
class PlanShard:
    """Nodes of one site to plan. `key`: as of ObserveShard. `context`: what a pass says of these nodes."""

    fleet: str
    site: str
    key: str
    nodes: Mapping[str, tuple[Desired, NodeRecord]]
    seen: Mapping[str, Observed]
    context: Context
    rules: tuple[IgnoreRule, ...]
    holds: Holds


class ShardPlanner(Protocol):
    """Plans nodes elsewhere."""

    async def plan(self, shards: Sequence[PlanShard]) -> Mapping[str, QuietPlan]:
        """Return plans that do nothing. A node that is left out is planned by the leader. Never raises."""


def quiet_plans(shard: PlanShard) -> dict[str, QuietPlan]:
    """Return the plans that do nothing, of those nodes of a shard that were seen: a pure function."""
    plans: dict[str, KeptPlan] = {}
    comparer = Comparer(IgnoreRules(shard.rules, shard.context.now))
    planner = KeptPlanner(KeptPlans(), plans, NodePlanner(shard.context, comparer, shard.holds))
    for name, seen in shard.seen.items():
        planner.plan_parts(shard.nodes[name][0], seen, shard.nodes[name][1])
    return {name: QuietPlan(kept.plan, kept.valid_until) for name, kept in plans.items()}


def shards_to_plan(
    nodes: Iterable[tuple[Desired, Observed, NodeRecord]],
    places: Mapping[str, Place],
    planner: NodePlanner,
) -> list[PlanShard]:
    """Divide the nodes into shards of those that were read together. `planner`: of the pass."""
    parts: dict[Place, list[tuple[Desired, Observed, NodeRecord]]] = defaultdict(list)
    for one in nodes:
        parts[places[one[0].node]].append(one)
    return [
        PlanShard(
            planner.context.settings.fleet,
            site,
            key,
            {desired.node: (desired, record) for desired, _, record in part},
            {desired.node: seen for desired, seen, _ in part},
            _of_part(planner.context, [desired for desired, _, _ in part]),
            planner.comparer.rules.valid,
            planner.holds,
        )
        for (site, key), part in parts.items()
        if site and len(part) >= LEAST
    ]


def _of_part(context: Context, nodes: Sequence[Desired]) -> Context:
    """Return what the context says of these nodes, and of others only what their plans take of them."""
    names, pools = {node.node for node in nodes}, {node.pool for node in nodes}
    domains = {f"{label}={value}" for node in nodes for label, value in node.domains.items()}
    return Context(
        context.settings,
        context.ledger,
        context.now,
        context.signatures,
        context.neighbours_answer & domains,
        context.endpoints,
        of_domain={name: found for name, found in context.of_domain.items() if name in names},
        bmc_to_reset=context.bmc_to_reset if context.bmc_to_reset in names else "",
        passwords_to_rotate=context.passwords_to_rotate & names,
        pool_ports={pool: ports for pool, ports in context.pool_ports.items() if pool in pools},
    )
