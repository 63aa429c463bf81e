"""The state that the work on all nodes of a run shares, and the results of that work.

`RunPorts` stay the same from the beginning of a run to its end. `PassContext` is replaced as a whole by each pass.
What changes in between has one owner each: `Attempts`, `FleetLimits` for budget and rollouts, and the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from reconciler.converge.approval import Shared, other_inputs, stale_because
from reconciler.converge.clock_steps import ClockSteps
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
from reconciler.planner.fleet.spares import as_spare
from reconciler.planner.node.corroboration import boot_is_stuck
from reconciler.planner.node.fingerprint import place_of
from reconciler.planner.node.holds import Holds, braked, by_subject, stopped
from reconciler.planner.node.planner import NodePlanner

_UNSETTLED = frozenset({BlockCode.UNKNOWN, BlockCode.UNDER_WAY})
_BOOTING = frozenset({BootPhase.POST, BootPhase.OS_BOOTING})


class Ended(StrEnum):
    """The ways in which the work on a node ends."""

    CONVERGED = "converged"  # there was nothing to do
    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"  # a bug of ours ended the work on it: nothing more was done to it (invariant 22)
    PARKED = "parked"  # a person or a signal ended the run in the midst of it: the next run continues it
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
    """An attempt that has ended. `seconds` are those of the fleet's clock."""

    node: str
    action: str
    target: str
    because: tuple[str, ...]
    outcome: Outcome
    started_at: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class Subject:
    """The node as it was read for this attempt, and the plan that was made of it."""

    desired: Desired
    observed: Observed
    record: NodeRecord
    plan: NodePlan
    out_of_group: tuple[str, ...] = ()  # other nodes of its serving group that are out of service

    @property
    def boot_id(self) -> str | None:
        host = self.observed.host
        return host.value.boot_id if isinstance(host, Answered) else None


Step = tuple[str, str, str]  # node, action, target


@dataclass(frozen=True, slots=True)
class Unended:
    """An attempt whose run died. `intent` holds what the run had learned by then."""

    attempt: int
    intent: Mapping[str, Any]


@dataclass(slots=True)
class Attempts:
    """The attempts of a run, and those of dead runs that it continues.

    `resumed`: attempts of dead runs; each is continued once. `interrupted`: nodes on which an earlier run died in the
    middle of an action, until this run is done with them.
    """

    resumed: dict[Step, Unended]
    interrupted: set[str] = field(init=False)
    executed: list[Executed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.interrupted = {node for node, _, _ in self.resumed}


@dataclass(frozen=True, slots=True)
class RunPorts:
    """The ports of a run, which do not change. `reads` bounds how many nodes are read at once."""

    fabric: Fabric
    ledger: Ledger
    clock: Clock
    gate: GateRunner
    lease: HeldLease
    progress: Progress
    reads: asyncio.Semaphore
    steps: ClockSteps


@dataclass(frozen=True, slots=True)
class PassContext:
    """The facts and decisions of one pass that the work on every node uses until the next pass replaces them.

    `approved`: the plan that a person approved; None when no approval is needed. `begun`: nodes on which an earlier
    run began with that plan. `consented`: nodes that a person has typed the consent for to decommission them.
    `barred`: why nothing may begin, whatever is planned. `others_barred`: why nothing may begin on nodes without an
    approved plan, not even their isolation. `refused`: why nothing that was planned may begin; evidence of
    illness isolates nodes all the same.
    """

    run_id: str
    plan_id: str
    fleet: Fleet
    planner: NodePlanner
    approved: Plan | None = None
    begun: frozenset[str] = frozenset()
    consented: frozenset[str] = frozenset()
    barred: str = ""
    others_barred: str = ""
    refused: str = ""


@dataclass(slots=True)
class Run:
    """A run: its ports, its attempts, and the context of its latest pass, which a new pass replaces as a whole."""

    ports: RunPorts
    attempts: Attempts
    context: PassContext

    def mind_clock(self) -> None:
        """Count the silences of all nodes anew if the wall clock was set since the last call."""
        self.ports.steps.mind(self.ledger, self.fleet.nodes.keys())

    @property
    def fleet(self) -> Fleet:
        return self.context.fleet

    @property
    def clock(self) -> Clock:
        return self.ports.clock

    @property
    def ledger(self) -> Ledger:
        return self.ports.ledger

    def holds(self) -> Holds:
        """Return the holds of the spec and of the ledger, as of this moment."""
        return by_subject(self.fleet.holds, self.ledger.holds())

    def worth_waiting(self, observed: Observed, plan: NodePlan) -> bool:
        """Return whether a silent host or BMC may answer soon: it boots, or an earlier run was interrupted on it."""
        readings = (observed.host, observed.hot) if observed.node in self.attempts.interrupted else ()
        silent = any(isinstance(one, Silent) and one.reason is not UnknownReason.NOT_ASKED for one in readings)
        return self.boots(observed, plan) or silent

    def boots(self, observed: Observed, plan: NodePlan) -> bool:
        """Return whether a boot or an installation is under way and may still end by itself.

        A boot that takes too long counts until the sources agree that it is stuck, where a remediation policy says
        what follows from that.
        """
        system = observed.hot
        if isinstance(system, Silent) or isinstance(observed.host, Answered):
            return False
        if system.value.boot_phase not in _BOOTING:
            return False
        desired = self.fleet.nodes.get(observed.node)
        left_alone = desired is None or desired.profile.remediation is None
        agreed = left_alone or (plan.blocked is not None and plan.blocked.code not in _UNSETTLED)
        self.mind_clock()
        return not (agreed and boot_is_stuck(self.ledger.node(observed.node), self.clock.now()))

    def stop(self) -> Blocked | None:
        """Return why nothing that was planned may begin on any node; None when nothing stops the fleet.

        Work that runs ends its current action.
        """
        if self.context.refused and not self.context.barred:
            return Blocked(BlockCode.STOPPED, self.context.refused)
        return self.stop_of_all()

    def stop_of_all(self) -> Blocked | None:
        """Return why nothing at all may begin, not even what no guard of a plan refuses, such as isolation."""
        if self.context.barred:
            return Blocked(BlockCode.STOPPED, self.context.barred)
        return stopped(by_subject((), self.ledger.holds()), self.clock.now())

    def stop_of_isolation(self) -> Blocked | None:
        """Return why no node may be isolated, or taken back; None when nothing stands against it."""
        if self.context.others_barred:
            return Blocked(BlockCode.STOPPED, self.context.others_barred)
        return self.stop_of_all()

    def bar_of(self, node: str) -> str:
        """Return why nothing may begin on this node, while it may on others; "" when it may."""
        approved = self.context.approved
        return "" if approved is not None and node in approved.nodes else self.context.others_barred

    def brake(self) -> Blocked | None:
        """Return the storm brake, which holds back every disruption; None when it is not set. Any runner may set it."""
        return braked(by_subject((), self.ledger.holds()), self.clock.now())

    def stale_because(self, plan: NodePlan, *, begun: bool) -> str:
        """Return why this fresh plan goes beyond the approved one; "" when it does not or no approval is needed."""
        approved = self.context.approved
        if approved is None:
            return ""
        return stale_because(approved.nodes.get(plan.node), plan, begun=begun, shared=self._shared(approved, plan.node))

    def other_inputs(self, plan: NodePlan) -> str:
        """Name the inputs of this fresh plan that differ from the approved ones; "" when none does."""
        approved = self.context.approved
        if approved is None or plan.node not in approved.nodes:
            return ""
        return other_inputs(approved.nodes[plan.node], plan, self._shared(approved, plan.node))

    def _shared(self, approved: Plan, node: str) -> Shared:
        desired, planner = self.fleet.nodes[node], self.context.planner
        planner.key(desired.profile)  # the node may have been planned by another planner
        return Shared(approved.shared, planner.shared, partial(place_of, desired=desired, fleet=self.fleet))

    def plan_node(
        self, desired: Desired, observed: Observed, record: NodeRecord, *, spare: bool = False
    ) -> tuple[NodePlan, NodePlan | None]:
        """Plan one node from fresh facts: its whole plan, and its part that waits for no rollout (None: nothing).

        `spare`: it is kept as one once it is ready.
        """
        planner = as_spare(self.context.planner, desired.node) if spare else self.context.planner
        context = replace(planner.context, now=self.clock.now())
        return replace(planner, context=context, holds=self.holds()).plan_parts(desired, observed, record)
