"""The workloads that nodes carry: of their pods now, and, once our mark is set, of those that ran when it was set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.model.desired import BudgetLimit, Desired, Fleet
from reconciler.model.observed import Answered, Observation, Observed, Pod
from reconciler.model.plan import NodePlan, WorkloadCost
from reconciler.model.pods import is_placed, unplaced
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.model.vocab import Reason
from reconciler.planner.node.actions import spec_of

WORKLOAD = "workload"  # the scope of a limit that holds for each workload of its own
# Of what Kueue has placed by topology, whatever is declared. An ill node is not kept out of its repair by it.
PLACED: Final = BudgetLimit(WORKLOAD, "1", (Reason.DRIFT, Reason.CHANGE, Reason.RENEWAL))


def carried(observed: Observed | None) -> frozenset[str]:
    """Return the names of the workloads that a node carries, or carried before it was drained."""
    member = observed.member.value if observed is not None and isinstance(observed.member, Answered) else None
    if member is None:
        return frozenset()
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    left = () if mark is None else mark.workloads
    return frozenset([pod.workload.whole for pod in member.pods if pod.workload is not None and pod.evictable]) | {
        *left
    }


@dataclass(slots=True)
class _Count:
    """The pods of one workload. `groups`: of a LeaderWorkerSet -> whether a drain takes one of its pods."""

    queue: str
    pods: int
    drained: int
    nodes: set[str]
    groups: dict[str, bool]


def workload_costs(fleet: Fleet, observation: Observation, plans: Mapping[str, NodePlan]) -> tuple[WorkloadCost, ...]:
    """Return what the drains of a plan cost each workload of which they evict pods, the largest first."""
    drained = {name for name, plan in plans.items() if plan.actions and _evicts(fleet.nodes.get(name), plan)}
    lost = {work.whole for name in drained for pod in _pods(observation.nodes[name]) if (work := pod.workload)}
    counts: dict[str, _Count] = {}
    for name, seen in observation.nodes.items() if lost else ():
        evicts = name in drained
        for pod in _pods(seen):
            work = pod.workload
            if work is None or work.whole not in lost:
                continue
            count = counts.setdefault(work.whole, _Count(work.queue, 0, 0, set(), {}))
            count.pods += 1
            count.drained += evicts
            count.nodes.add(name)
            count.groups[work.group] = count.groups.get(work.group, False) or evicts
    costs = [_cost(name, count) for name, count in counts.items()]
    return tuple(sorted(costs, key=lambda cost: (-cost.pods, cost.workload)))


def _evicts(node: Desired | None, plan: NodePlan) -> bool:
    asks = node is not None and node.profile.drain.provider.asks_cluster
    return asks and any(spec_of(action.name).drains for action in plan.actions)


def _pods(seen: Observed) -> Iterator[Pod]:
    member = seen.member.value if isinstance(seen.member, Answered) else None
    yield from () if member is None else (pod for pod in member.pods if pod.evictable)


def _cost(name: str, count: _Count) -> WorkloadCost:
    grouped = set(count.groups) != {""}
    replicas = (sum(count.groups.values()), len(count.groups)) if grouped else (0, 0)
    return WorkloadCost(name, count.queue, count.drained, count.pods, len(count.nodes), *replicas)


def counted(limit: BudgetLimit, workloads: Iterable[str]) -> frozenset[str]:
    """Return those of these workloads that a limit is for, by the names that it counts them by."""
    if limit is PLACED:
        return frozenset([name for name in workloads if is_placed(name)])
    return frozenset([unplaced(name) for name in workloads])
