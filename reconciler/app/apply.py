"""The `apply` use case: carry out an approved plan, or whatever the spec asks for, in one run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler import __version__
from reconciler.app.drift_report import drift_report
from reconciler.app.ports import AllowedSigners
from reconciler.app.publish import redacted
from reconciler.app.recording import pools_of
from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.workspace import Workspace
from reconciler.converge.apply import (
    AllNodesStale,
    ApplyInterrupted,
    ApplyReport,
    ApplyRequest,
    check_guards,
    check_stop,
)
from reconciler.converge.apply import apply as apply_nodes
from reconciler.drivers.signers import Signers, unsigned
from reconciler.model.documents import load
from reconciler.model.errors import LedgerError, ReconcilerError, Refused, StalePlan
from reconciler.model.outcome import outcome_word
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.recording import Recording
from reconciler.model.report import APPLY_FORMAT, ActionEnd, ApplyOutcome, DriftReport, NodeEnd, ReleaseEnd
from reconciler.render.record import of_apply

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


class StaleNodes(StalePlan):
    """Every selected node changed since the plan was made, and `outcome` names them."""

    def __init__(self, message: str, outcome: ApplyOutcome) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class ApplyJob:
    """The work of one run. Without `approved`, it is all that the spec asks for.

    `wait_s`: how long to wait for budget, boots and tests. `redact`: leave serials, names and addresses of machines
    out of progress and outcome. `consented`: nodes that a person has typed the consent for to decommission them.
    `command`: the name of the run.
    """

    approved: Plan | None
    wait_s: float
    redact: bool
    consented: frozenset[str] = frozenset()
    command: str = "apply"


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of a run, and the exit code that the ledger recorded for it."""

    outcome: ApplyOutcome
    left: DriftReport  # what still differs from the spec
    code: int
    pools: Mapping[str, str]  # node -> pool

    def recording(self) -> Recording:
        """Return what --record saves of this run."""
        return of_apply(self.outcome, self.left, self.pools)


def load_plan(workspace: Workspace, file: Path) -> Plan:
    """Read an approved plan and limit the workspace to its nodes. Raise StalePlan for one that was made offline."""
    plan = load(Plan, file.read_bytes(), name=str(file))
    if plan.offline is not None:
        raise StalePlan(f"plan {plan.id} was made offline, from a published observation: make one of the nodes")
    workspace.narrow(plan)
    return plan


def require_signed_spec(workspace: Workspace, ledger: SqlLedger, allowed: AllowedSigners) -> None:
    """Raise Refused unless every commit that changed the spec since the last apply has an allowed signature.

    As in `run`, a signature on a later commit does not cover an unsigned one below it.
    """
    signers = Signers(allowed.ssh, allowed.gpg)
    if not signers:
        return
    signers.check()
    source = workspace.fleet.source
    if not source.commit or source.dirty:
        raise Refused("the spec has uncommitted changes, which no signature covers: commit them")
    if problem := run_async(unsigned(signers, workspace.request.spec, source.commit, ledger.last_commit())):
        raise Refused(f"{problem}; only signed commits are applied here")


def plan_for_approval(workspace: Workspace, ledger: SqlLedger) -> Plan:
    """Observe the nodes and return the plan that somebody is to approve."""
    observation = workspace.observe()
    workspace.foresee(observation, ledger)
    return workspace.make_plan(observation, ledger, new_id("plan", workspace.clock.now()))


def require_startable(plan: Plan) -> None:
    """Raise Refused when a guard, a stop or the storm brake keeps the whole plan from starting."""
    check_guards(plan)
    check_stop(plan.stopped)


def apply(
    workspace: Workspace, ledger: SqlLedger, job: ApplyJob, exit_code: Callable[[ApplyOutcome], int]
) -> ApplyResult:
    """Carry out `job` as one run of the ledger, which ends with `exit_code` of its outcome.

    An interrupted run has an outcome as well. Raise StaleNodes, or what else ends a run, after it was recorded.
    """
    clock = workspace.clock
    run = new_id("run", clock.now())
    plan_id = run if job.approved is None else job.approved.id
    ledger.start_run(run, job.command, workspace.fleet.source.commit, plan_id, clock.now())
    try:
        report = _carry_out(workspace, ledger, job, run, plan_id)
    except ReconcilerError as error:
        with suppress(LedgerError):  # the ledger may be why the run ended
            ledger.end_run(run, workspace.frontend.exit_code(error), str(error), clock.now())
        raise
    outcome = _outcome(report, workspace, ledger, redact=job.redact)
    left = drift_report(report.plan, report.observation)
    if job.redact:
        left = redacted(left, workspace, report.observation, ledger)
    code = exit_code(outcome)
    ledger.end_run(run, int(code), f"{len(outcome.actions)} actions", clock.now())
    return ApplyResult(outcome, left, code, pools_of(workspace.fleet, report.plan.nodes))


def _carry_out(workspace: Workspace, ledger: SqlLedger, job: ApplyJob, run: str, plan_id: str) -> ApplyReport:
    names, scope = workspace.selection
    request = ApplyRequest(
        fleet=workspace.fleet, run=run, plan_id=plan_id, holder=f"{whoami()}, {run}",
        signatures=workspace.signatures, selected=None if len(names) == len(workspace.fleet.nodes) else names,
        scope=scope, approved=job.approved, wait_s=job.wait_s, time_scale=workspace.time_scale,
        estimates=workspace.estimates(ledger), endpoints=workspace.endpoints_digest,
        consented=job.consented,
    )  # fmt: skip
    interrupted: list[ApplyReport] = []

    async def work() -> ApplyReport:
        fabric = workspace.fabric(ledger)
        try:
            with workspace.frontend.progress("observing", workspace.clock.now, terse=job.redact) as progress:
                return await apply_nodes(
                    request, fabric=fabric, ledger=ledger, clock=workspace.clock, gate=workspace.gate, progress=progress
                )
        except ApplyInterrupted as cancelled:
            interrupted.append(cancelled.report)
            raise
        finally:
            await fabric.close()

    try:
        return run_async(work())
    except AllNodesStale as stale:
        message = f"plan {plan_id}: every node changed since it was made" if job.redact else str(stale)
        raise StaleNodes(message, _outcome(stale.report, workspace, ledger, redact=job.redact)) from None
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):  # only closing the ledger and printing the outcome are left
            signal.signal(number, signal.SIG_IGN)
        if not interrupted:
            raise
        return interrupted[0]


def _outcome(report: ApplyReport, workspace: Workspace, ledger: SqlLedger, *, redact: bool) -> ApplyOutcome:
    document = outcome_document(report)
    return redacted(document, workspace, report.observation, ledger) if redact else document


def outcome_document(report: ApplyReport) -> ApplyOutcome:
    plan = report.plan
    return ApplyOutcome(
        format_version=APPLY_FORMAT,
        tool_version=__version__,
        run=report.run,
        plan=report.plan_id,
        fleet=plan.fleet,
        source=plan.source,
        scope=plan.scope,
        started_at=report.started_at,
        ended_at=report.ended_at,
        interrupted=report.interrupted,
        nodes={name: NodeEnd(result.state.value, result.detail) for name, result in report.results.items()},
        actions=tuple(
            ActionEnd(
                done.node,
                f"{done.action}:{done.target}" if done.target else done.action,
                outcome_word(done.outcome),
                done.outcome.detail,
                done.started_at,
                done.seconds,
            )
            for done in report.executed
        ),
        abandoned=report.abandoned,
        incomplete=plan.incomplete,
        tolerated=plan.tolerated,
        changes=plan.changes,
        insecure=plan.insecure,
        time_scale=plan.time_scale,
        rollouts=plan.rollouts,
        next_at=min(filter(None, map(_opens_at, plan.nodes.values())), default=None),
        stopped=plan.stopped,
        braked=plan.braked,
        releases=tuple(ReleaseEnd(one.name, one.state.value, one.detail) for one in report.releases.values()),
    )


def _opens_at(plan: NodePlan) -> datetime | None:
    """Return when time alone lets the work on this node start; None when something else is in the way."""
    return plan.blocked.until if plan.changes and plan.blocked is not None and plan.blocked.code.passes else None
