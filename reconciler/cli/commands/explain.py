"""reconciler explain"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.explain import explain as explain_node
from reconciler.app.ports import FleetRequest
from reconciler.cli.completion import node_names
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import TERMINAL
from reconciler.cli.options import fleet_options, observation_option, redact_option
from reconciler.cli.terminal import show
from reconciler.model.errors import UsageError
from reconciler.render.explain import as_json, as_markdown, human, redacted


@click.command()
@click.argument("what", metavar="NODE[.path]", shell_complete=node_names)
@fleet_options(rev=True)
@observation_option("Explain from this observation, and read no node.")
@click.option("--offline", is_flag=True, help="Explain the spec alone, and contact nothing.")
@redact_option
def explain(
    request: FleetRequest, what: str, observation: Path | None, offline: bool, redact: bool, output: str
) -> int:
    """Explain NODE, or one value of it: what the spec wants, which line and commit set that, what was observed, what
    would be done and why nothing less is enough, what blocks it, and when it may start."""
    if redact and offline:
        raise UsageError("--redact goes by what was observed: leave out --offline")
    made = explain_node(request, TERMINAL, what, observation, offline=offline)
    text = {"human": human, "json": as_json, "markdown": as_markdown}[output](made)
    show(redacted(made, text) if redact else text, output)
    return ExitCode.DONE
