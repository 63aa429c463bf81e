"""What the nodes of one run share, and how each of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from reconciler.converge.approval import Shared, other_inputs, stale_because
from reconciler.converge.events import Progress
from reconciler.converge.lease import HeldLease
from reconciler.converge.ports import GateRunner
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Answered, Observed, Silent
from reconciler.model.outcome import Outcome
from reconciler.model.plan import BlockCode, Blocked, NodePlan, Plan
from reconciler.model.ports import Clock, Fabric, Ledger
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import BootPhase, UnknownReason
from reconciler.planner.fleet.rollouts import Rollouts
from reconciler.planner.node.corroboration import boot_is_stuck
from reconciler.planner.node.fingerprint import place_of
from reconciler.planner.node.holds import braked, by_subject, stopped
from reconciler.planner.node.planner import NodePlanner

_BOOTING = frozenset({BootPhase.POST, BootPhase.INSTALLER, BootPhase.OS_BOOTING})


class Ended(StrEnum):
    CONVERGED = "converged"  # there was nothing to do
    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"  # a bug of ours ended the work on it: nothing more was done to it (invariant 22)
    NOT_STARTED = "not_started"
    STALE = "stale"
    POSTPONED = "postponed"  # the budget or a window said no: it may start later


@dataclass(frozen=True, slots=True)
class NodeResult:
    node: str
    state: Ended
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Executed:
    """One attempt. `seconds`: of the fleet's time."""

    node: str
    action: str
    target: str
    because: tuple[str, ...]
    outcome: Outcome
    started_at: datetime
    seconds: float


Step = tuple[str, str, str]  # node, action, target


@dataclass(frozen=True, slots=True)
class Unended:
    """An attempt whose run died, and its intent with all that was learnt on the way."""

    attempt: int
    intent: Mapping[str, Any]


@dataclass(slots=True)
class Run:
    """What the nodes of one run share."""

    id: str
    plan_id: str
    fleet: Fleet
    fabric: Fabric
    ledger: Ledger
    clock: Clock
    gate: GateRunner
    planner: NodePlanner
    lease: HeldLease
    approved: Plan | None
    progress: Progress
    interrupted: set[str]  # nodes on which an earlier run died in the middle of an action
    begun: frozenset[str]  # nodes on which an earlier run has begun with the approved plan
    resumed: dict[Step, Unended]  # each is gone on with once
    executed: list[Executed] = field(default_factory=list)
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(64))
    rollouts: Rollouts = field(default_factory=Rollouts)  # as of the latest end of a node
    barred: str = ""  # why nothing may begin now, whatever is planned
    refused: str = ""  # why nothing that was planned may begin now; evidence of illness isolates all the same

    def worth_waiting(self, observed: Observed, plan: NodePlan) -> bool:
        """The host is silent because of a boot under way, or it or its BMC because of what an earlier run has begun."""
        readings = (observed.host, observed.hot) if observed.node in self.interrupted else ()
        silent = any(isinstance(one, Silent) and one.reason is not UnknownReason.NOT_ASKED for one in readings)
        return self.boots(observed, plan) or silent

    def boots(self, observed: Observed, plan: NodePlan) -> bool:
        """A boot or an installation is under way: its end is worth waiting for.

        One that takes too long has none: it is waited for only until the witnesses agree on what that means, where
        there is a policy that says what they are to agree on.
        """
        system = observed.hot
        if isinstance(system, Silent) or isinstance(observed.host, Answered):
            return False
        if system.value.boot_phase not in _BOOTING:
            return False
        desired = self.fleet.nodes.get(observed.node)
        left_alone = desired is None or desired.profile.remediation is None
        agreed = left_alone or (plan.blocked is not None and plan.blocked.code is not BlockCode.UNKNOWN)
        return not (agreed and boot_is_stuck(system.value, self.ledger.node(observed.node), self.clock.now()))

    def stop(self) -> Blocked | None:
        """Somebody or something has stopped the whole fleet: what runs ends its action, nothing else begins."""
        if self.refused and not self.barred:
            return Blocked(BlockCode.STOPPED, self.refused)
        return self.stop_of_all()

    def stop_of_all(self) -> Blocked | None:
        """As `stop`, for what no guard of a plan refuses."""
        if self.barred:
            return Blocked(BlockCode.STOPPED, self.barred)
        return stopped(by_subject((), self.ledger.holds()), self.clock.now())

    def brake(self) -> Blocked | None:
        """Too many nodes went bad at once: nothing that disrupts begins. Whoever noticed, it is in the ledger."""
        return braked(by_subject((), self.ledger.holds()), self.clock.now())

    def stale_because(self, plan: NodePlan, *, begun: bool) -> str:
        """Why this plan of now goes beyond the approved one; "" when it does not, or when none had to be approved."""
        if self.approved is None:
            return ""
        return stale_because(self.approved.nodes.get(plan.node), plan, begun=begun, shared=self._shared(plan.node))

    def other_inputs(self, plan: NodePlan) -> str:
        """Name the inputs of this fresh plan that differ from the approved ones; "" when none does."""
        approved = None if self.approved is None else self.approved.nodes.get(plan.node)
        return "" if approved is None else other_inputs(approved, plan, self._shared(plan.node))

    def _shared(self, node: str) -> Shared:
        desired = self.fleet.nodes[node]
        self.planner.key(desired.profile)  # the node may have been planned by another planner
        approved = {} if self.approved is None else self.approved.shared
        return Shared(approved, self.planner.shared, partial(place_of, desired=desired, fleet=self.fleet))

    def plan_node(self, desired: Desired, observed: Observed, record: NodeRecord, *, let_go: bool) -> NodePlan:
        """`let_go`: its wave was open when work on it began, so it is finished whatever becomes of the rollout."""
        self.planner.context = replace(self.planner.context, now=self.clock.now())
        self.planner.holds = by_subject(self.fleet.holds, self.ledger.holds())
        plan, rest = self.planner.plan_apart(desired, observed, record)
        return plan if let_go else self.rollouts.part_allowed(plan, rest)
