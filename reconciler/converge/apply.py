"""Apply: take the lease, observe everything once, then work on every node that may go, until nothing more may start.

Nodes are worked on side by side under one budget (DESIGN 8). Which may start is decided again whenever one ends; a node
that fails stays out of service, is reported, and holds no other node up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from reconciler.converge.clock_steps import ClockSteps
from reconciler.converge.dispatcher import Dispatcher
from reconciler.converge.events import Progress, RunPlanned, ignore
from reconciler.converge.held_queues import let_queues_go
from reconciler.converge.lease import held_lease
from reconciler.converge.left_dark import LeftDark
from reconciler.converge.leftovers import close_needless, lift_forgotten_marks, take_over
from reconciler.converge.observation_pass import ObservationPass, make_plan, planner_for
from reconciler.converge.observe import observe
from reconciler.converge.ports import GateRunner
from reconciler.converge.release_work import ReleaseResult, ReleaseWork
from reconciler.converge.remember import remember_plans, remember_service_status
from reconciler.converge.run import Attempts, Ended, Executed, NodeResult, PassContext, Run, RunPorts
from reconciler.converge.run_progress import run_progress
from reconciler.model.desired import Fleet
from reconciler.model.errors import Blind, LedgerError, Refused, StalePlan
from reconciler.model.inputs import RECIPE
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan, Scope, is_crashed
from reconciler.model.ports import Clock, Fabric, Ledger
from reconciler.model.records import NodeRecord, isolated_for
from reconciler.planner.fleet.plan_request import PlanRequest, records_needed
from reconciler.planner.node.estimates import Estimates
from reconciler.planner.node.holds import by_subject, stopped


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """The task of one run of apply.

    `signatures`: (image, version) -> verified, as for `plan_fleet`. `holder`: the name that the lease shows to others.
    `selected`: None = the whole fleet. `endpoints`: as in planner.conditions.Context. `consented`: nodes that a person
    has typed the consent for to decommission them, under the approved plan. `alone`: nobody else acts on the fleet, as
    in a rehearsal, so what only others could end is not waited for.
    """

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
    endpoints: str = ""
    consented: frozenset[str] = frozenset()
    alone: bool = False

    @property
    def names(self) -> list[str]:
        """The selected nodes, in the order of the fleet."""
        selected = frozenset(self.fleet.nodes if self.selected is None else self.selected)
        return [name for name in self.fleet.nodes if name in selected]


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """The results of a run. `plan`: what is left to do. `abandoned`: nodes that left the spec with our mark on them."""

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
    releases: Mapping[str, ReleaseResult] = field(default_factory=dict)

    def of(self, state: Ended) -> tuple[NodeResult, ...]:
        return tuple(result for result in self.results.values() if result.state is state)


class ApplyInterrupted(asyncio.CancelledError):
    """A run was cancelled after it had begun. `report` says how far it came.

    `asyncio.timeout` and `TaskGroup` compare a cancellation by its exact type, so do not await `apply` inside of them.
    """

    def __init__(self, report: ApplyReport) -> None:
        super().__init__()
        self.report = report


class AllNodesStale(StalePlan):
    """Every node of the approved plan has changed since, so nothing was done. `report` says how."""

    def __init__(self, message: str, report: ApplyReport) -> None:
        super().__init__(message)
        self.report = report


async def apply(
    request: ApplyRequest,
    *,
    fabric: Fabric,
    ledger: Ledger,
    clock: Clock,
    gate: GateRunner,
    progress: Progress = ignore,
) -> ApplyReport:
    """Bring the selected nodes to what the spec says, and report what was done.

    Raises LeaseHeld, StalePlan, Refused, Blind and LedgerError as in model.errors; AllNodesStale and, when cancelled,
    ApplyInterrupted carry the report. What runs is parked then, and journaled for the next run to continue.
    """
    approved = request.approved
    if approved is not None:
        check_usable(approved, request.fleet, ledger, clock.now())
    async with held_lease(ledger, request.fleet.settings.fleet, request.holder, clock) as lease:
        reads = asyncio.Semaphore(request.fleet.settings.concurrency)
        apply_run = await begin_run(
            request, RunPorts(fabric, ledger, clock, gate, lease, progress, reads, ClockSteps(clock))
        )
        progress(RunPlanned(request.run, partial(run_progress, apply_run.dispatcher), clock.now))
        try:
            await apply_run.work()
            ended = apply_run.dispatcher
            await let_queues_go(ended.run, ended.plans, ended.observation.nodes, results=ended.results())
        except asyncio.CancelledError:
            raise ApplyInterrupted(apply_run.report(interrupted=True)) from None
        except LedgerError as error:
            raise LedgerError(f"{error}; what was under way is parked, and the next run continues it") from error
        return apply_run.conclude()


def check_usable(plan: Plan, fleet: Fleet, ledger: Ledger, now: datetime) -> None:
    """Raise StalePlan or Refused unless the plan may be applied to this fleet now."""
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
    """Raise Refused when the whole fleet is stopped. `stop`: why, as in Plan.stopped; "" = it is not."""
    if stop:
        raise Refused(f"nothing is done: {stop}")


def check_guards(plan: Plan) -> None:
    """Raise Refused when a guard refuses the plan."""
    if plan.refused:
        raise Refused(f"plan {plan.id} is refused: {'; '.join(plan.refused)}")


async def begin_run(request: ApplyRequest, ports: RunPorts) -> ApplyRun:
    """Observe everything before anything is written, then take over what an earlier run left behind."""
    fleet, names, ledger, clock = request.fleet, request.names, ports.ledger, ports.clock
    started_at = clock.now()
    stop = stopped(by_subject((), ledger.holds()), started_at)
    check_stop("" if stop is None else stop.detail)
    await LeftDark(ledger, clock, ports.lease).give_power(ports.fabric, fleet, ())
    observation = await observe(
        fleet,
        names,
        ports.fabric,
        clock,
        fresh_inventory=True,
        progress=ports.progress,
        time_scale=request.time_scale,
    )
    needed = records_needed(fleet, names)
    look = ObservationPass(fleet, observation, names, ledger, clock, ledger.nodes(needed))
    if look.outage:
        raise Blind(look.outage)
    look.learn(acts=True)
    look.copy_holds()
    resumed = await take_over(ledger, ports.fabric.installer(), fleet, set(names), clock.now())
    plan = make_plan(fleet, observation, ledger, _plan_request(request), clock.now())
    check_stop(plan.stopped)
    check_guards(plan)
    abandoned: tuple[str, ...] = ()
    if request.selected is None:
        abandoned = await lift_forgotten_marks(ledger, ports.fabric.cluster(), fleet, clock, ports.lease)
        ledger.forget([name for name in ledger.known() if name not in fleet.nodes], clock.now())
    context = PassContext(
        request.run, request.plan_id, fleet,
        planner_for(fleet, observation, ledger, _plan_request(request), clock.now()),
        approved=request.approved, begun=_begun(request.approved, look.records),
        consented=request.consented if request.approved is not None else frozenset(),
    )  # fmt: skip
    look.remember_drift(plan.nodes, request.run)
    look.remember_statuses(plan.nodes)
    run = Run(ports, Attempts(resumed), context)
    await let_queues_go(run, plan.nodes, observation.nodes)
    dispatcher = Dispatcher(run, observation, plan.nodes, ledger.nodes(needed))
    return ApplyRun(request, dispatcher, started_at, abandoned, ReleaseWork(run, request.approved))


def _plan_request(request: ApplyRequest) -> PlanRequest:
    return PlanRequest(
        request.plan_id,
        request.signatures,
        request.names,
        request.scope,
        request.estimates or Estimates(),
        request.endpoints,
    )


@dataclass(frozen=True, slots=True)
class ApplyRun:
    """A run of apply whose nodes have all been observed and planned."""

    request: ApplyRequest
    dispatcher: Dispatcher
    started_at: datetime
    abandoned: tuple[str, ...]
    releases: ReleaseWork

    async def work(self) -> None:
        """Work on nodes and releases side by side. A run of some nodes leaves releases alone, as they are of all."""
        request = self.request
        if not request.fleet.settings.releases or request.selected is not None:
            await self.dispatcher.work(request.wait_s, alone=request.alone)
            return
        nodes = asyncio.ensure_future(self.dispatcher.work(request.wait_s, alone=request.alone))
        beside = asyncio.ensure_future(self.releases.beside(nodes))
        try:
            done, _ = await asyncio.wait([nodes, beside], return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in (nodes, beside):
                task.cancel()
            await asyncio.wait([nodes, beside])

    def report(self, *, interrupted: bool = False) -> ApplyReport:
        run, request = self.dispatcher.run, self.request
        observation = replace(self.dispatcher.observation, finished_at=run.clock.now())
        plan = make_plan(request.fleet, observation, run.ledger, _plan_request(request), run.clock.now())
        crashed = {name: node.situation for name, node in plan.nodes.items() if is_crashed(node)}
        return ApplyReport(
            run=request.run,
            plan_id=request.plan_id,
            results={
                **self.dispatcher.results(),
                **{name: NodeResult(name, Ended.CRASHED, why) for name, why in crashed.items()},
            },
            executed=tuple(run.attempts.executed),
            observation=observation,
            plan=plan,
            abandoned=self.abandoned,
            started_at=self.started_at,
            ended_at=run.clock.now(),
            interrupted=interrupted,
            releases=self.releases.results,
        )

    def conclude(self) -> ApplyReport:
        """Record how the nodes were left, and mark the approved plan as used once no node can go further under it."""
        report, request, run = self.report(), self.request, self.dispatcher.run
        ledger, clock, plans = run.ledger, run.clock, report.plan.nodes
        settled = {end.node for end in (*report.of(Ended.CONVERGED), *report.of(Ended.DONE))}
        close_needless(ledger, run.attempts.resumed, settled, clock.now())
        records = ledger.nodes(request.names)
        remember_plans(ledger, request.fleet, plans, report.observation.nodes, records, request.run, clock.now())
        remember_service_status(ledger, request.fleet, plans, clock.now())
        approved = request.approved
        if approved is None:
            return report
        ends = {name: report.results[name].state for name in request.names if name in approved.nodes}
        # The nodes that the plan would change, and those that it left alone and that need a change now.
        concerned = [name for name, end in ends.items() if approved.nodes[name].changes or end is Ended.STALE]
        if concerned and not report.executed and {ends[name] for name in concerned} == {Ended.STALE}:
            first = report.results[concerned[0]]
            raise AllNodesStale(
                f"plan {approved.id}: every node changed since; {first.node}: {first.detail}; make a new one", report
            )
        whole = {name for name, node in approved.nodes.items() if node.changes and name in request.fleet.nodes}
        through = {name for name, end in ends.items() if end in (Ended.CONVERGED, Ended.DONE, Ended.STALE)}
        left = {one.name for one in approved.releases if one.changes_something} - self.releases.settled
        if whole <= through and not left:  # nodes that this run was not asked for may still be done under it
            ledger.use_plan(approved.id, clock.now())
        return report


def _begun(approved: Plan | None, records: Mapping[str, NodeRecord]) -> frozenset[str]:
    """Return the nodes that something of the approved plan was tried on. Isolating a node is no part of a plan."""
    if approved is None:
        return frozenset()
    since = approved.created_at
    return frozenset(
        name
        for name, record in records.items()
        if any(attempt.at >= since and not isolated_for(attempt.cause) for attempt in record.attempts)
    )
