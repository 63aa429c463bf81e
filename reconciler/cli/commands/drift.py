"""reconciler drift"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from reconciler.app.drift import find_drift
from reconciler.app.ports import FleetRequest, RecordTarget
from reconciler.app.propose_drift import check_proposable, propose_drift
from reconciler.app.publish import publish_observation
from reconciler.app.recording import open_recorder, record
from reconciler.cli.crash_reports import CRASHES
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import detailed_exitcode, fleet_options, publish_option, record_option, redact_option
from reconciler.cli.terminal import say, show
from reconciler.model.documents import dump
from reconciler.model.report import DriftReport
from reconciler.render.apart import shown_apart
from reconciler.render.comment import as_markdown
from reconciler.render.drift import human


@click.command()
@fleet_options(rev=True, engine=True)
@click.option(
    "--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Compare this observation, and read no node.",
)  # fmt: skip
@click.option("--propose", is_flag=True, help="Also keep one pull request that has the spec want what the nodes have.")
@click.option(
    "--repo", default="", metavar="OWNER/NAME", help="With --propose: repository of the spec. Default: the CI job's."
)
@publish_option
@record_option
@redact_option
@detailed_exitcode
def drift(
    request: FleetRequest, observation: Path | None, propose: bool, repo: str, publish: Path | None,
    record_to: RecordTarget | None, redact: bool, detailed_exitcode: bool, output: str,
) -> int:  # fmt: skip
    """Show how the nodes differ from the spec, and since when. No node is changed."""
    workspace = workspace_for(request)
    workspace.check_selection()
    if propose:
        check_proposable(workspace)
    recorder = open_recorder(record_to, workspace)
    found = find_drift(workspace, observation, partial(exit_code, detailed=detailed_exitcode), redact=redact)
    if output == "json":
        show(dump(found.report), output)
    else:
        show(shown_apart(found.report, human if output == "human" else as_markdown), output)
    if publish is not None:
        publish_observation(workspace, found.observation, publish)
    if propose:
        propose_drift(workspace, found, repo, lambda text: say(text, err=True), redact=redact)
    if recorder is not None and found.outage:
        say(f"not recorded: {found.outage}", err=True)
    elif recorder is not None:
        record(recorder, found.recording())
    return found.code


def exit_code(report: DriftReport, *, detailed: bool) -> ExitCode:
    return strongest(
        [
            ExitCode.INCOMPLETE if not report.tolerated else ExitCode.DONE,
            ExitCode.CHANGES if detailed and (report.changes or report.incomplete or report.unknown) else ExitCode.DONE,
            CRASHES.code,
        ]
    )
