"""Isolation: nodes with hard evidence of illness are cordoned and marked at once, whatever budget and brake say.

Evidence (DESIGN 7.2) is a signal that was read, not one that is missing, and that the closed table names
(health/signals.yaml). Drain and repair of the node then wait for their budget. Wrong telemetry must not empty a
fleet, so isolation has caps of its own; and what many nodes first show in the hour after a change of reconciler, driver
or spec is an incident for a person to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reconciler.health.table import HealthTable, health_table
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftClass
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.plan import BlockCode, Goal, Incident, NodePlan
from reconciler.model.records import CHANGES, OWNER_ANNOTATION, Mark, NodeRecord, isolated_for, read_mark
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.signal_history import AFTER, after_change, first_seen
from reconciler.planner.node.actions import spec_of

# Of one signal within an hour, and of a fleet at once: NVSentinel's breaker trips at 50 % of the GPU nodes, EKS node
# repair stops at 20 % of a pool (health.md section 7). A pool of a few nodes may lose three.
HOUR = timedelta(hours=1)
OF_POOL, LEAST_OF_POOL = "5%", 3
OF_FLEET = "20%"
MANY = 3  # two nodes that fall ill after a change are a coincidence; a third is none
TOGETHER = timedelta(days=1)  # between the first times that nodes showed it: later ones have another cause
NAMED = 5
LONG_AGO = datetime.min.replace(tzinfo=UTC)


def evidence(plan: NodePlan, table: HealthTable) -> tuple[str, ...]:
    """Return the signals (value paths) for which this node would be isolated: it serves, and its plan can mark it.

    `table`: that of the fleet.
    """
    if plan.in_service is not True or not any(action.name == "mark" for action in plan.actions):
        return ()
    return table.isolating(item.path for item in plan.illness if item.kind is DriftClass.DRIFTED)


class Isolation:
    """The caps on isolation, as of `now`, and what uses them up.

    `records`: of all nodes that were looked at, and of the fleet's changes (CHANGES).
    """

    def __init__(
        self, fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord], now: datetime
    ) -> None:
        self._fleet = fleet
        self._table = health_table(fleet.settings.health)
        self._now = now
        active = [node for node in fleet.nodes.values() if node.state is NodeState.ACTIVE]
        self._pools: dict[str, int] = {}
        for node in active:
            self._pools[node.pool] = self._pools.get(node.pool, 0) + 1
        self._most = parse_nodes(OF_FLEET, len(active))
        self._total = len(active)
        self._marked: set[str] = set()
        self._recent: dict[tuple[str, str], set[str]] = {}
        # Signal -> node that first showed it after a change -> when, and after which.
        self._after: dict[str, dict[str, tuple[datetime, str]]] = {}
        self._changes = records.get(CHANGES + fleet.settings.fleet)
        for node in active:
            if (seen := observation.nodes.get(node.node)) is not None and (mark := isolating_mark(seen)) is not None:
                self._count(node, mark, records.get(node.node))
            if (record := records.get(node.node)) is not None:
                self._recall(node.node, record)

    def _count(self, node: Desired, mark: Mark, record: NodeRecord | None) -> None:
        """Count a marked node, whoever set the mark: a ledger that was lost knows nothing of it."""
        self._marked.add(node.node)
        at = marked_at(mark)
        if (at if record is None else record.by_clock_now(at, lambda action: spec_of(action).marks)) > self._now - HOUR:
            for signal in isolated_for(mark.reason):
                self._recent.setdefault((node.pool, signal), set()).add(node.node)

    def _recall(self, name: str, record: NodeRecord) -> None:
        pool = self._fleet.nodes[name].pool
        for attempt in reversed(record.attempts):
            if attempt.begun <= self._now - HOUR:
                if not attempt.since_set:
                    break
                continue  # the next may be younger, where a clock was set
            for signal in isolated_for(attempt.cause) if attempt.action == "mark" else ():
                if attempt.outcome != "refused":
                    self._recent.setdefault((pool, signal), set()).add(name)
        for key in [key for key in record.silent_since if AFTER in key]:
            signal, change = first_seen(key)
            if change:
                self._after.setdefault(signal, {})[name] = record.silent_since[key], change

    def evidence(self, plan: NodePlan) -> tuple[str, ...]:
        """Return the signals for which a node would be isolated, whatever the caps say."""
        return evidence(plan, self._table)

    def suspect(self, plan: NodePlan, observed: Observed, record: NodeRecord) -> None:
        """Take in what a node shows now. Call this for all ill nodes before the first `verdict`."""
        for signal in self.evidence(plan):
            known = next((key for key in record.silent_since if first_seen(key)[0] == signal), None)
            since = self._now if known is None else record.silent_since[known]
            change = first_seen(known)[1] if known else after_change(
                self._fleet, observed, record, self._changes, self._now
            )  # fmt: skip
            if change:
                self._after.setdefault(signal, {}).setdefault(plan.node, (since, change))

    def verdict(self, plan: NodePlan) -> tuple[tuple[str, ...], tuple[Incident, ...]]:
        """Return (signals for which the node may be isolated now, incidents for those for which it may not)."""
        allowed, incidents = [], []
        for signal in self.evidence(plan):
            refusal = self._refusal(plan, signal)
            if refusal is None:
                allowed.append(signal)
            else:
                incidents.append(Incident(signal, refusal[0], (plan.node,), refusal[1]))
        if allowed and len(self._marked - {plan.node}) >= self._most:
            detail = (
                f"{len(self._marked)} of {self._total} nodes isolated already, where {self._most} may be "
                f"({OF_FLEET} of the fleet)"
            )
            incidents += [Incident(signal, "the fleet", (plan.node,), detail) for signal in allowed]
            allowed = []
        return tuple(allowed), tuple(incidents)

    def charge(self, node: str, signals: Iterable[str]) -> None:
        """Count `node` as isolated now for these signals."""
        self._marked.add(node)
        for signal in signals:
            self._recent.setdefault((self._fleet.nodes[node].pool, signal), set()).add(node)

    def _refusal(self, plan: NodePlan, signal: str) -> tuple[str, str] | None:
        """Return (scope, why) of the cap that is reached, or None."""
        after = self._after.get(signal, {})
        if plan.node in after:
            first, change = after[plan.node]
            many = sum(abs(since - first) <= TOGETHER for since, _ in after.values())
            if many >= MANY:
                return "the fleet", f"{many} nodes showed it first within an hour of a change: {change}"
        recent = self._recent.get((plan.pool, signal), set())
        total = self._pools.get(plan.pool, 0)
        most = max(LEAST_OF_POOL, parse_nodes(OF_POOL, total))
        if plan.node not in recent and len(recent) >= most:
            return (
                f"pool {plan.pool}",
                f"{len(recent)} of {total} nodes isolated for it within an hour, where {most} may be",
            )
        return None


def isolate(
    isolation: Isolation,
    plans: Mapping[str, NodePlan],
    observed: Mapping[str, Observed],
    records: Mapping[str, NodeRecord],
) -> tuple[dict[str, NodePlan], tuple[Incident, ...]]:
    """Return the plans of the nodes to isolate now, with their signals, and incidents for a person to decide."""
    ill = [plan for plan in plans.values() if isolation.evidence(plan)]
    for plan in ill:
        isolation.suspect(plan, observed[plan.node], records.get(plan.node) or NodeRecord(plan.node))
    found: dict[str, NodePlan] = {}
    incidents: list[Incident] = []
    for plan in ill:
        allowed, refused = isolation.verdict(plan)
        if allowed:
            isolation.charge(plan.node, allowed)
            found[plan.node] = replace(plan, isolation=allowed)
        elif plan.blocked is None or plan.blocked.code is not BlockCode.DOMAIN:  # whose incident tells of it
            incidents += refused
    return found, tuple(merged(incidents))


def merged(incidents: Iterable[Incident]) -> Iterator[Incident]:
    """Merge incidents: one for each signal and scope."""
    nodes: dict[tuple[str, str], list[str]] = {}
    details: dict[tuple[str, str], str] = {}
    for one in incidents:
        key = (one.signal, one.scope)
        nodes.setdefault(key, []).extend(name for name in one.nodes if name not in nodes.get(key, ()))
        details[key] = one.detail
    for (signal, scope), names in nodes.items():
        detail = f"{details[signal, scope]}. {_ways_out(signal, names)}"
        yield Incident(signal, scope, tuple(names), detail)


def _ways_out(signal: str, names: list[str]) -> str:
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    return (
        f"Not isolated: {shown}; to be drained and repaired as budget and brake allow. If the signal is wrong, "
        f"`reconciler isolation retract {signal.removeprefix('health.')} --reason ...`; if the nodes are ill, repair "
        "them or set `state: quarantined` for them in the spec"
    )


def isolation_signals(seen: Observed) -> tuple[str, ...]:
    """Return the signals for which a node was isolated, by any reconciler; () when it was not."""
    mark = isolating_mark(seen)
    return () if mark is None else isolated_for(mark.reason)


def isolating_mark(seen: Observed) -> Mark | None:
    """Return the mark of a node that was isolated, by any reconciler; None when it was not."""
    member = seen.member.value if isinstance(seen.member, Answered) else None
    if member is None or OWNER_ANNOTATION not in member.annotations:
        return None
    mark = read_mark(member.annotations[OWNER_ANNOTATION])
    return mark if mark is not None and isolated_for(mark.reason) else None


def marked_at(mark: Mark) -> datetime:
    """Return when the mark was set; LONG_AGO when it does not say."""
    try:
        at = datetime.fromisoformat(mark.at)
    except ValueError:
        return LONG_AGO
    return at if at.tzinfo is not None else LONG_AGO


def is_retracted(plan: NodePlan, retracted: AbstractSet[str]) -> bool:
    """Return whether only retracted signals keep this isolated node, which was not drained, out of service.

    A node that is held, quarantined or not acted upon for another reason keeps its mark.
    """
    free = plan.goal is not Goal.NOTHING and not plan.illness
    return free and bool(plan.isolated) and retracted >= set(plan.isolated)
