"""reconciler apply"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.app.ports import AllowedSigners, FleetRequest, RecordTarget
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.options import (
    Duration,
    detailed_exitcode,
    fleet_options,
    grouped,
    record_option,
    redact_option,
    signer_options,
)
from reconciler.cli.terminal import show
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from reconciler.model.plan import Plan
    from reconciler.model.report import ApplyOutcome


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    plan_file: Path | None
    yes: bool
    confirm: tuple[str, ...]
    wait_s: float
    redact: bool
    detailed_exitcode: bool


_OPTIONS = (
    click.option("--plan", "plan_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
                 help="Carry out this plan, or a part of it, and nothing else."),
    click.option("--yes", is_flag=True, help="Skip the confirmation."),
    click.option("--confirm", multiple=True, metavar="TEXT",
                 help="The typed consent to decommission a node of the plan: 'decommission NODE'; --yes is none."),
    click.option("--wait", "wait_s", type=Duration(), default="30m", show_default=True, metavar="DURATION",
                 help="Time limit for waiting, whether for budget, boots or tests. 0: make one pass."),
    redact_option,
    detailed_exitcode,
)  # fmt: skip


@click.command()
@fleet_options(rev=True, engine=True)
@grouped(ApplyOptions, *_OPTIONS)
@signer_options
@record_option
def apply(
    request: FleetRequest, options: ApplyOptions, signers: AllowedSigners, record_to: RecordTarget | None, output: str
) -> int:
    """Converge the nodes to the spec, under one disruption budget.

    Ctrl-C starts nothing more, and parks what runs so that the next run continues it.
    """
    from reconciler.app.apply import ApplyJob, StaleNodes, load_plan, plan_for_approval, require_signed_spec
    from reconciler.app.apply import apply as apply_job
    from reconciler.app.recording import open_recorder, record
    from reconciler.cli.apply_dialogue import confirm, print_outcome
    from reconciler.cli.frontend import workspace_for

    if not sys.stdin.isatty() and (options.plan_file is None or not options.yes):
        raise UsageError(
            "off a terminal, apply needs --plan FILE and --yes: make the plan with `reconciler plan --out FILE`"
        )
    workspace = workspace_for(request)
    workspace.check_selection()
    recorder = open_recorder(record_to, workspace)
    approved = None if options.plan_file is None else load_plan(workspace, options.plan_file)
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        if approved is None and not options.yes:
            approved = plan_for_approval(workspace, ledger)
            confirm(approved)
        try:
            consented = frozenset[str]() if options.plan_file is None else consent(approved, options.confirm)
            job = ApplyJob(approved, options.wait_s, options.redact, consented)
            result = apply_job(workspace, ledger, job, partial(exit_code, detailed=options.detailed_exitcode))
        except StaleNodes as error:
            print_outcome(error.outcome, output)
            raise
    print_outcome(result.outcome, output)
    if recorder is not None:
        record(recorder, result.recording())
    return result.code


def consent(plan: Plan | None, given: Sequence[str]) -> frozenset[str]:
    """Return the nodes of the plan whose decommissioning a person has consented to, each by typing its name.

    Raise UsageError for a consent that is missing, and for one that is to nothing in the plan.
    """
    from reconciler.model.plan import Goal

    leaving = [] if plan is None else [n for n, node in plan.nodes.items() if node.goal is Goal.DECOMMISSIONED]
    wanted = {f"decommission {name}": plan.nodes[name] for name in leaving if plan and plan.nodes[name].changes}
    if strange := [text for text in given if text not in wanted]:
        raise UsageError(f"--confirm {strange[0]!r}: the plan decommissions no such node")
    for sentence, node in wanted.items():
        if sentence in given:
            continue
        if not sys.stdin.isatty():
            raise UsageError(f"the plan decommissions {node.node} for good: this needs --confirm {sentence!r}")
        drives = ", ".join(action.target for action in node.actions if action.name == "erase") or "no drive"
        show(f"{node.node} leaves the fleet for good. This erases: {drives}. Nothing brings the data back.\n", err=True)
        if click.prompt(f"Type '{sentence}' to go on", err=True) != sentence:
            raise click.Abort
    return frozenset(node.node for node in wanted.values())


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
    releases = {end.state for end in outcome.releases}
    if releases & {"failed", "stale"}:
        codes.append(ExitCode.PARTLY_FAILED)
    if not outcome.tolerated or "not_started" in releases:
        codes.append(ExitCode.INCOMPLETE)
    if detailed and (outcome.changes or outcome.incomplete or states - {"done", "converged"}):
        codes.append(ExitCode.CHANGES)
    return strongest(codes)
