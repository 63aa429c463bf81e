"""Apply: the lease, one full observation, then every node that may go, until nothing more may start (DESIGN 8).

Nodes run side by side under one budget. Which may start is decided again whenever one ends; a node that fails stays
out of service, is reported, and holds nobody else up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.converge.dispatcher import Dispatcher
from reconciler.converge.events import Progress, RunEnded, ignore
from reconciler.converge.lease import HeldLease, held_lease
from reconciler.converge.leftovers import close_needless, lift_forgotten_marks, take_over
from reconciler.converge.observation_pass import ObservationPass, PlanRequest, make_plan, planner_for
from reconciler.converge.observe import observe
from reconciler.converge.ports import GateRunner
from reconciler.converge.remember import remember_plans, remember_service_status
from reconciler.converge.run import Ended, Executed, NodeResult, Run
from reconciler.model.desired import Fleet
from reconciler.model.errors import Blind, LedgerError, Refused, StalePlan
from reconciler.model.inputs import RECIPE
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan, Scope, is_crashed
from reconciler.model.ports import Clock, Fabric, Ledger
from reconciler.model.records import NodeRecord, isolated_for
from reconciler.planner.fleet.planner import records_needed
from reconciler.planner.node.estimates import Estimates
from reconciler.planner.node.holds import by_subject, stopped


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """`signatures`: (image, version) -> verified, as for `plan_fleet`. `holder`: who the lease names to others."""

    fleet: Fleet
    run: str
    plan_id: str
    holder: str
    signatures: Mapping[tuple[str, str], bool | None]
    selected: Sequence[str] | None = None
    scope: Scope | None = None
    approved: Plan | None = None
    wait_s: float = 1800.0
    estimates: Estimates | None = None
    time_scale: float = 1.0
    endpoints: str = ""  # as in planner.conditions.Context
    alone: bool = False  # nobody else acts on the fleet, as in a rehearsal: what only others could end won't end


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What a run did. `plan`: what is left to do. `abandoned`: marks of ours on nodes that left the spec."""

    run: str
    plan_id: str
    results: Mapping[str, NodeResult]
    executed: tuple[Executed, ...]
    observation: Observation
    plan: Plan
    abandoned: tuple[str, ...]
    started_at: datetime
    ended_at: datetime
    interrupted: bool = False

    def of(self, state: Ended) -> tuple[NodeResult, ...]:
        return tuple(result for result in self.results.values() if result.state is state)


async def apply(
    request: ApplyRequest,
    *,
    fabric: Fabric,
    ledger: Ledger,
    clock: Clock,
    gate: GateRunner,
    progress: Progress = ignore,
) -> ApplyReport:
    """LeaseHeld, StalePlan, Refused, Blind, LedgerError as in model.errors.

    When cancelled, what runs is parked, journaled for the next run to continue; the report then goes to `progress`. So
    it does before StalePlan, if the nodes themselves are why.
    """
    approved = request.approved
    if approved is not None:
        check_usable(approved, request.fleet, ledger, clock.now())
    async with held_lease(ledger, request.fleet.settings.fleet, request.holder, clock) as lease:
        work = _Apply(request, fabric, ledger, clock, gate, progress, lease)
        try:
            await work.start()
            await work.dispatcher.work(request.wait_s, alone=request.alone)
        except asyncio.CancelledError:
            if work.started:
                progress(RunEnded(work.report(interrupted=True)))
            raise
        except LedgerError as error:
            if work.started:
                raise LedgerError(f"{error}; what was under way is parked, and the next run goes on with it") from error
            raise
        return work.conclude()


def check_usable(plan: Plan, fleet: Fleet, ledger: Ledger, now: datetime) -> None:
    if plan.fleet != fleet.settings.fleet:
        raise StalePlan(f"plan {plan.id} is for fleet {plan.fleet}, this is {fleet.settings.fleet}")
    if plan.recipe != RECIPE:
        raise StalePlan(
            f"plan {plan.id} was made by another version of the reconciler, and binds other inputs (recipe "
            f"{plan.recipe or '1'}, this version reads {RECIPE}); make a new one"
        )
    if now > plan.expires_at:
        raise StalePlan(f"plan {plan.id} expired at {plan.expires_at:%Y-%m-%d %H:%M:%SZ}; make a new one")
    if ledger.plan_used(plan.id):
        raise StalePlan(f"plan {plan.id} is used up; make a new one")
    check_guards(plan)


def check_stop(stop: str) -> None:
    """`stop`: as Plan.stopped."""
    if stop:
        raise Refused(f"nothing is done: {stop}")


def check_guards(plan: Plan) -> None:
    if plan.refused:
        raise Refused(f"plan {plan.id} is refused: {'; '.join(plan.refused)}")


class _Apply:
    def __init__(
        self,
        request: ApplyRequest,
        fabric: Fabric,
        ledger: Ledger,
        clock: Clock,
        gate: GateRunner,
        progress: Progress,
        lease: HeldLease,
    ) -> None:
        self.request = request
        self.fabric = fabric
        self.ledger = ledger
        self.clock = clock
        self.gate = gate
        self.progress = progress
        self.lease = lease
        self.started_at = clock.now()
        self.abandoned: tuple[str, ...] = ()
        self.started = False

    @property
    def names(self) -> list[str]:
        fleet, selected = self.request.fleet, self.request.selected
        return [name for name in fleet.nodes if selected is None or name in self._selected]

    @property
    def _selected(self) -> frozenset[str]:
        return frozenset(self.request.selected or ())

    async def start(self) -> None:
        """Read only, until everything was observed once; then take over what an earlier run left behind."""
        request, now = self.request, self.clock.now
        stop = stopped(by_subject((), self.ledger.holds()), now())
        check_stop("" if stop is None else stop.detail)
        observation = await observe(
            request.fleet, self.names, self.fabric, self.clock,
            fresh_inventory=True, progress=self.progress, time_scale=request.time_scale,
        )  # fmt: skip
        look = ObservationPass(
            request.fleet, observation, self.names, self.ledger, self.clock,
            self.ledger.nodes(records_needed(request.fleet, self.names)),
        )  # fmt: skip
        if look.outage:
            raise Blind(look.outage)
        look.learn(evidence=True)
        look.copy_holds()
        resumed = await take_over(self.ledger, self.fabric.installer(), request.fleet, set(self.names), now())
        plan = self.plan(observation)
        check_stop(plan.stopped)
        check_guards(plan)
        if request.selected is None:
            self.abandoned = await lift_forgotten_marks(
                self.ledger, self.fabric.cluster(), request.fleet, self.clock, self.lease
            )
            self.ledger.forget([name for name in self.ledger.known() if name not in request.fleet.nodes], now())
        planner = planner_for(request.fleet, observation, self.ledger, self.plan_request(), now())
        self.run = Run(
            id=request.run, plan_id=request.plan_id, fleet=request.fleet, fabric=self.fabric, ledger=self.ledger,
            clock=self.clock, gate=self.gate, planner=planner, lease=self.lease, approved=request.approved,
            progress=self.progress, begun=_begun(request.approved, look.records), resumed=resumed,
            interrupted={node for node, _, _ in resumed},
            reading=asyncio.Semaphore(request.fleet.settings.concurrency),
        )  # fmt: skip
        look.remember_drift(plan.nodes, request.run)
        look.remember_statuses(plan.nodes)
        records = self.ledger.nodes(records_needed(request.fleet, self.names))
        self.dispatcher = Dispatcher(self.run, observation, plan.nodes, records)
        self.started = True

    def plan(self, observation: Observation) -> Plan:
        return make_plan(self.request.fleet, observation, self.ledger, self.plan_request(), self.clock.now())

    def plan_request(self) -> PlanRequest:
        request = self.request
        known = self.ledger.known() if request.selected is None else ()
        return PlanRequest(
            request.plan_id, self.names, request.signatures, request.scope, request.estimates, request.endpoints, known
        )

    def report(self, *, interrupted: bool = False) -> ApplyReport:
        observation = replace(self.dispatcher.observation, finished_at=self.clock.now())
        plan = self.plan(observation)
        crashed = {name: node.situation for name, node in plan.nodes.items() if is_crashed(node)}
        return ApplyReport(
            run=self.request.run,
            plan_id=self.request.plan_id,
            results={
                **self.dispatcher.results(),
                **{name: NodeResult(name, Ended.CRASHED, why) for name, why in crashed.items()},
            },
            executed=tuple(self.run.executed),
            observation=observation,
            plan=plan,
            abandoned=self.abandoned,
            started_at=self.started_at,
            ended_at=self.clock.now(),
            interrupted=interrupted,
        )

    def conclude(self) -> ApplyReport:
        """What is left, after all; and the approved plan is used up once none of its nodes can go further under it."""
        report = self.report()
        settled = {end.node for end in (*report.of(Ended.CONVERGED), *report.of(Ended.DONE))}
        close_needless(self.ledger, self.run.resumed, settled, self.clock.now())
        records = self.ledger.nodes(self.names)
        remember_plans(
            self.ledger, self.request.fleet, report.plan.nodes, report.observation.nodes, records, self.request.run,
            self.clock.now(),
        )  # fmt: skip
        remember_service_status(self.ledger, self.request.fleet, report.plan.nodes, self.clock.now())
        approved = self.request.approved
        if approved is None:
            return report
        ends = {name: report.results[name].state for name in self.names if name in approved.nodes}
        # Whoever the plan would change, and whoever it left alone that needs a change now: its mark was lifted, say.
        concerned = [name for name, end in ends.items() if approved.nodes[name].changes or end is Ended.STALE]
        if concerned and not report.executed and {ends[name] for name in concerned} == {Ended.STALE}:
            self.progress(RunEnded(report))
            first = concerned[0]
            raise StalePlan(
                f"plan {approved.id}: every node changed since; {first}: {report.results[first].detail}; make a new one"
            )
        whole = {name for name, node in approved.nodes.items() if node.changes and name in self.request.fleet.nodes}
        through = {name for name, end in ends.items() if end in (Ended.CONVERGED, Ended.DONE, Ended.STALE)}
        if whole <= through:  # nodes that this run was not asked for may still be done under it
            self.ledger.use_plan(approved.id, self.clock.now())
        return report


def _begun(approved: Plan | None, records: Mapping[str, NodeRecord]) -> frozenset[str]:
    if approved is None:
        return frozenset()
    since = approved.created_at
    return frozenset(
        name
        for name, record in records.items()
        if any(a.at >= since and not isolated_for(a.cause) for a in record.attempts)  # isolating is no part of a plan
    )
