"""reconciler plan"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.app.ports import FleetRequest, PlanSource
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.options import (
    OutFile,
    detailed_exitcode,
    fleet_options,
    location_options,
    plan_source_options,
    redact_option,
)
from reconciler.cli.terminal import say, show

if TYPE_CHECKING:
    from reconciler.model.plan import Plan


@click.command()
@fleet_options(rev=True, engine=True)
@plan_source_options(
    observation="Plan from this observation, or a published one, and read no node.",
    base="Plan the change from this revision on. Only addresses that it names are contacted.",
)
@click.option("--out", type=OutFile(), metavar="FILE", help="Also write the plan to this file.")
@click.option("--summary", "summarised", is_flag=True, help="Show counts by pool in place of each node's steps.")
@redact_option
@detailed_exitcode
def plan(
    request: FleetRequest, source: PlanSource, out: Path | None, summarised: bool, redact: bool,
    detailed_exitcode: bool, output: str,
) -> int:  # fmt: skip
    """Show what would be done to each node, in which order and why. Nothing is changed, and no lease is taken."""
    from reconciler.app.documents import write_file
    from reconciler.app.plan import make_plan, open_workspace
    from reconciler.cli.frontend import TERMINAL
    from reconciler.model.documents import dump
    from reconciler.render.apart import shown_apart
    from reconciler.render.comment import as_markdown
    from reconciler.render.plan import human
    from reconciler.render.plan_summary import summary

    if summarised and output != "human":
        raise click.UsageError("--summary is for people: JSON and Markdown have their totals")
    made = make_plan(open_workspace(request, source, TERMINAL), source.observation, redact=redact)
    if out is not None:
        write_file(out, dump(made))
    if output == "json":
        show(dump(made), output)
    else:
        people = summary if summarised else human
        show(shown_apart(made, people if output == "human" else as_markdown), output)
        if out is not None and output == "human":
            say("", f"written to {out}", err=True)
            if made.changes and not made.refused and made.offline is None:
                when = "Next" if made.change is None else "Once it is merged"
                command = f"  reconciler apply {request.spec} --plan {out} --yes{location_options()}"
                say(f"{when}:", command, err=True)  # on a line of its own: who copies it gets all of it
    return exit_code(made, detailed=detailed_exitcode)


def exit_code(plan: Plan, *, detailed: bool) -> ExitCode:
    waits = any(node.blocked is not None and node.blocked.code.passes for node in plan.nodes.values())
    refused = plan.refused or plan.stopped or plan.braked or any(rollout.halted for rollout in plan.rollouts)
    differs = plan.change is not None and not plan.change.empty
    changes = plan.changes or waits or plan.incomplete or differs
    return strongest(
        [
            ExitCode.REFUSED if refused else ExitCode.DONE,
            ExitCode.INCOMPLETE if not plan.tolerated else ExitCode.DONE,
            ExitCode.CHANGES if detailed and changes else ExitCode.DONE,
        ]
    )
