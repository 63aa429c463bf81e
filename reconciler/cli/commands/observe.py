"""reconciler observe"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from reconciler.app.documents import write_file
from reconciler.app.drift import is_tolerated
from reconciler.app.drift import observe as observe_nodes
from reconciler.app.ports import FleetRequest
from reconciler.app.publish import publish_observation
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import OutFile, fleet_options, publish_option
from reconciler.cli.terminal import show
from reconciler.model.documents import dump
from reconciler.render.apart import shown_apart
from reconciler.render.observation import as_markdown, human


@click.command()
@fleet_options(rev=True, engine=True)
@click.option("--out", type=OutFile(), metavar="FILE", help="Also write the observation to this file.")
@publish_option
def observe(request: FleetRequest, out: Path | None, publish: Path | None, output: str) -> int:
    """Read every node over Redfish, SSH and kubectl, and print the observation. Nothing is changed."""
    workspace = workspace_for(request)
    observation = observe_nodes(workspace)
    if out is not None:
        write_file(out, dump(observation))
    if output == "json":
        show(dump(observation), output)
    else:
        _, scope = workspace.selection
        show(shown_apart(observation, partial(human if output == "human" else as_markdown, scope=scope)), output)
    if publish is not None:
        publish_observation(workspace, observation, publish)
    return ExitCode.DONE if is_tolerated(workspace, observation) else ExitCode.INCOMPLETE
