"""reconciler apply"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.app.recorder import Place, keep, pools_of, ready_recorder, record_option
from reconciler.app.redact import redact_option, redacted
from reconciler.app.signed import check_signed, signer_options
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.options import Common, Duration, detailed_exitcode, fleet_options
from reconciler.cli.terminal import show
from reconciler.model.errors import LedgerError, ReconcilerError, StalePlan, UsageError
from reconciler.model.plan import NodePlan, Plan

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.converge.apply import ApplyReport
    from reconciler.model.ports import Ledger
    from reconciler.model.report import ApplyOutcome


@click.command()
@fleet_options(rev=True)
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Do what this plan says, or a part of it, and nothing else.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait", type=Duration(), default="30m", show_default=True, metavar="DURATION",
              help="Wait for budget, boots and tests at most as long; 0 = one pass.")  # fmt: skip
@signer_options
@record_option
@redact_option
@detailed_exitcode
def apply(
    common: Common, plan_file: Path | None, yes: bool, wait: float, allowed_signers: Path | None,
    allowed_keys: Path | None, record: Place | None, redact: bool, detailed_exitcode: bool,
) -> int:  # fmt: skip
    """Bring the nodes to what the spec says, under one budget. Ctrl-C starts nothing more and parks what runs."""
    from reconciler.app.session import Session, drift_report, new_id
    from reconciler.model.documents import load
    from reconciler.render.record import of_apply

    if not sys.stdin.isatty() and (plan_file is None or not yes):
        raise UsageError(
            "off a terminal, apply needs --plan FILE and --yes: make the plan with `reconciler plan --out FILE`"
        )
    session = Session(common)
    session.check_selection()
    recorder = ready_recorder(record, session)
    approved = None if plan_file is None else load(Plan, plan_file.read_bytes(), name=str(plan_file))
    if approved is not None:
        if approved.offline is not None:
            raise StalePlan(f"plan {approved.id} was made offline, from what was published: make one of the nodes here")
        session.narrow(approved)
    with session.ledger() as ledger:
        check_signed(session, ledger, allowed_signers, allowed_keys)
        if approved is None and not yes:
            approved = confirm(session, ledger)
        run = new_id("run", session.clock.now())
        plan_id = run if approved is None else approved.id
        ledger.start_run(run, "apply", session.fleet.source.commit, plan_id, session.clock.now())
        try:
            report = carry_out(session, ledger, run, plan_id, approved, wait, redact=redact)
        except ReconcilerError as error:
            from reconciler.cli.exit_codes import of_error

            with suppress(LedgerError):  # it may be the very reason
                ledger.end_run(run, int(of_error(error)), str(error), session.clock.now())
            raise
        outcome = document_of(report, session, ledger, redact=redact)
        left = drift_report(report.plan, report.observation)
        if redact:
            left = redacted(left, session, report.observation, ledger)
        code = exit_code(outcome, detailed=detailed_exitcode)
        ledger.end_run(run, int(code), f"{len(outcome.actions)} actions", session.clock.now())
    print_outcome(outcome, common.output)
    if recorder is not None:
        keep(recorder, of_apply(outcome, left, pools_of(session.fleet, report.plan.nodes)))
    return code


def confirm(session: Session, ledger: Ledger) -> Plan:
    """Show the plan and ask. The plan, which is approved then and nothing beyond it; Abort when the answer is no."""
    from reconciler.app.session import new_id
    from reconciler.converge.apply import check_guards, check_stop
    from reconciler.render.plan import human

    observation = session.observe()
    session.learn(observation, ledger)
    plan = session.make_plan(observation, ledger, new_id("plan", session.clock.now()))
    show(human(plan) + "\n", err=True)
    check_guards(plan)
    check_stop(plan.stopped)
    if plan.changes and not click.confirm(f"Apply this to {plan.totals.nodes_with_changes} nodes?", err=True):
        raise click.Abort
    return plan


def carry_out(
    session: Session,
    ledger: Ledger,
    run: str,
    plan_id: str,
    approved: Plan | None,
    wait: float,
    *,
    redact: bool = False,
) -> ApplyReport:
    """One run, and what came of it; an interrupted one is told as far as it came."""
    from reconciler.app.session import run_async, whoami
    from reconciler.cli.progress import make_progress
    from reconciler.converge.apply import AllNodesStale, ApplyInterrupted, ApplyRequest, apply

    names, scope = session.selection
    request = ApplyRequest(
        fleet=session.fleet, run=run, plan_id=plan_id, holder=f"{whoami()}, {run}", signatures=session.signatures,
        selected=None if len(names) == len(session.fleet.nodes) else names, scope=scope, approved=approved,
        wait_s=wait, time_scale=session.time_scale, estimates=session.estimates(ledger),
        endpoints=session.endpoints_digest,
    )  # fmt: skip
    interrupted: list[ApplyReport] = []

    async def work() -> ApplyReport:
        fabric = session.fabric()
        try:
            with make_progress("observing", session.time_scale, terse=redact) as progress:
                return await apply(
                    request, fabric=fabric, ledger=ledger, clock=session.clock, gate=session.gate, progress=progress
                )
        except ApplyInterrupted as cancelled:
            interrupted.append(cancelled.report)
            raise
        finally:
            await fabric.close()

    try:
        report = run_async(work())
    except AllNodesStale as stale:
        print_outcome(document_of(stale.report, session, ledger, redact=redact), session.common.output)
        if redact:
            raise StalePlan(f"plan {plan_id}: every node changed since it was made") from None
        raise
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):  # what is left is short: to close the ledger, and to tell
            signal.signal(number, signal.SIG_IGN)
        if not interrupted:
            raise
        report = interrupted[0]
    return report


def document_of(report: ApplyReport, session: Session, ledger: Ledger, *, redact: bool) -> ApplyOutcome:
    made = as_document(report)
    return redacted(made, session, report.observation, ledger) if redact else made


def as_document(report: ApplyReport) -> ApplyOutcome:
    from reconciler import __version__
    from reconciler.model.outcome import outcome_word
    from reconciler.model.report import APPLY_FORMAT, ActionEnd, ApplyOutcome, NodeEnd

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
    )


def _opens_at(plan: NodePlan) -> datetime | None:
    """When time lets it start."""
    return plan.blocked.until if plan.changes and plan.blocked is not None and plan.blocked.code.passes else None


def exit_code(outcome: ApplyOutcome, *, detailed: bool) -> ExitCode:
    states = {end.state for end in outcome.nodes.values()}
    codes = [ExitCode.DONE]
    if outcome.interrupted:
        codes.append(ExitCode.INTERRUPTED)
    if "crashed" in states:  # a bug is no failure of hardware: it comes first, as the table has it
        codes.append(ExitCode.INTERNAL_ERROR)
    if "failed" in states or ("stale" in states and outcome.actions):
        codes.append(ExitCode.PARTLY_FAILED)
    if outcome.stopped or outcome.braked or any(rollout.halted for rollout in outcome.rollouts):
        codes.append(ExitCode.REFUSED)
    idle = not outcome.actions and (outcome.changes or "postponed" in states) and not states & {"failed", "crashed"}
    if idle and outcome.next_at is None:
        codes.append(ExitCode.REFUSED)
    if not outcome.tolerated:
        codes.append(ExitCode.INCOMPLETE)
    if detailed and (outcome.changes or outcome.incomplete or states - {"done", "converged"}):
        codes.append(ExitCode.CHANGES)
    return strongest(codes)


def print_outcome(outcome: ApplyOutcome, output: str) -> None:
    from reconciler.model.documents import dump
    from reconciler.render.apart import shown_apart
    from reconciler.render.comment import as_markdown
    from reconciler.render.outcome import human

    if output == "json":
        show(dump(outcome), output)
    else:
        show(shown_apart(outcome, human if output == "human" else as_markdown), output)
