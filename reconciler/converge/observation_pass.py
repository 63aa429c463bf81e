"""Learn, plan and record from an observation: the same for drift, plan, apply, run and report.

The order is always the same. An observation by a machine that reaches nobody teaches nothing (pitfall J6). Otherwise
the ledger learns identities and silences; from `apply` and `run`, which act, also evidence of illness, the storm brake
if too many nodes went bad, and the spec's holds. Then the plan is made, and drift and node statuses are recorded from
it. A plan that nobody carries out now records nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from reconciler.converge.brake import look_for_storm
from reconciler.converge.remember import (
    LOOKS_APART,
    remember_evidence,
    remember_facts,
    remember_holds,
    remember_plans,
    remember_service_status,
)
from reconciler.model.desired import Fleet
from reconciler.model.observed import Observation
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.ports import Clock, Ledger, Recollection
from reconciler.model.records import NodeRecord
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.plan_request import PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import node_planner, plan_fleet
from reconciler.planner.fleet.quiet_nodes import QuietNodes
from reconciler.planner.node.planner import NodePlanner
from reconciler.planner.node.signal_cache import SignalCache

Sightings = Mapping[tuple[str, str], tuple[datetime, datetime]]  # (node, path) -> first seen, last seen


def make_plan(
    fleet: Fleet, observation: Observation, ledger: Recollection, request: PlanRequest, now: datetime
) -> Plan:
    """Plan the requested nodes from an observation and from what the ledger holds at this moment."""
    return plan_fleet(fleet, observation, take_snapshot(ledger, fleet, request.names(fleet)), now, request)


def planner_for(
    fleet: Fleet, observation: Observation, ledger: Recollection, request: PlanRequest, now: datetime
) -> NodePlanner:
    """Return the planner that plans single nodes again as `make_plan` plans them all."""
    return node_planner(fleet, observation, take_snapshot(ledger, fleet, request.names(fleet)), now, request)


@dataclass(frozen=True)
class ObservationPass:
    """One look at a fleet, from which the ledger learns and plans are made.

    `names`: the nodes that were looked at for this pass. `records`: at least theirs, from before this pass.
    `signals`: of all that ask what nodes show, so that it is computed once.
    """

    fleet: Fleet
    observation: Observation
    names: Sequence[str]
    ledger: Ledger
    clock: Clock
    records: Mapping[str, NodeRecord]
    signals: SignalCache = field(default_factory=SignalCache)

    @cached_property
    def outage(self) -> str:
        """Why the observation proves nothing about the nodes; "" when it does prove something."""
        return observer_outage(self.fleet, self.observation)

    def learn(self, *, acts: bool) -> None:
        """Record identities and silences; nothing in an outage.

        `acts`: nodes will be acted upon, so also set the storm brake if too many nodes went bad, and record since when
        nodes show what isolates them. It takes the records of `records_needed`.
        """
        if self.outage:
            return
        now = self.clock.now()
        looked_at = (self.observation.nodes[name] for name in self.names)
        remember_facts(self.ledger, self.fleet.nodes, looked_at, self.records, now)
        if acts:
            look_for_storm(self.ledger, self.fleet, self.observation, self.records, now, self.signals)
            remember_evidence(self.ledger, self.fleet, self.observation, self.records, now, self.signals)

    def learn_anew(self, quiet: QuietNodes, *, whole: bool) -> frozenset[str]:
        """Learn what `learn` does for a run that acts, but ask no quiet node; all of them when it is `whole`.

        Return the nodes of which there was news although they were quiet, which is a bug.
        """
        if self.outage:
            return frozenset()
        now, ledger, fleet, records = self.clock.now(), self.ledger, self.fleet, self.records
        shown = SignalCache() if whole else self.signals
        asked = quiet.ask(fleet, self.observation, records, now, shown, whole=whole)
        some = replace(self.observation, nodes=asked.nodes)
        looked_at = (asked.nodes[name] for name in self.names if name in asked.nodes)
        news = remember_facts(ledger, fleet.nodes, looked_at, records, now)
        news |= look_for_storm(ledger, fleet, some, records, now, asked.signals)
        news |= remember_evidence(ledger, fleet, some, records, now, asked.signals, quiet.states)
        quiet.learnt(asked, fleet, self.observation, records, now, news, self.names)
        return asked.quiet & news

    def copy_holds(self) -> None:
        """Copy the spec's holds to the ledger, where they outlive their lines in the spec (invariant 10)."""
        remember_holds(self.ledger, self.fleet, self.clock.now())

    def remember_drift(self, plans: Mapping[str, NodePlan], run: str) -> Sightings:
        """Record the drift of these plans and what their nodes have converged to; nothing in an outage.

        Return when each difference was first and last seen.
        """
        if self.outage:
            return {}
        now, seen = self.clock.now(), self.observation.nodes
        return remember_plans(self.ledger, self.fleet, plans, seen, self.records, run, now, shown=self.signals)

    def remember_statuses(
        self, plans: Mapping[str, NodePlan], *, acting: Collection[str] = (), within: timedelta = LOOKS_APART
    ) -> None:
        """Record the nodes' statuses for reports of availability; nothing in an outage.

        `acting`: nodes that are being worked on. `within`: a status is known to have lasted over no longer gap.
        """
        if not self.outage:
            remember_service_status(self.ledger, self.fleet, plans, self.clock.now(), acting=acting, within=within)


def with_sightings(plan: Plan, sightings: Sightings) -> Plan:
    """Return the plan with the times at which each of its differences was first and last seen."""
    nodes = {}
    for name, node in plan.nodes.items():
        items = tuple(
            replace(item, first_seen=sightings[name, item.path][0], last_seen=sightings[name, item.path][1])
            if (name, item.path) in sightings
            else item
            for item in node.drift
        )
        nodes[name] = replace(node, drift=items)
    return replace(plan, nodes=nodes)
