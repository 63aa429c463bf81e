"""reconciler history"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timedelta

import click

from reconciler.app.history import node_history
from reconciler.app.ports import FleetRequest
from reconciler.cli.completion import node_names
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import Since, output_option, spec_options
from reconciler.cli.terminal import say, show
from reconciler.render.history import as_markdown, human


@click.command()
@click.argument("node", shell_complete=node_names)
@click.option("--last", "--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, metavar="N",
              help="Number of entries, the newest.")  # fmt: skip
@click.option(
    "--since", type=Since(), metavar="TIME", help="Begin: 2h or 3d ago, 2026-11-21 or 2026-11-21T03:00 (UTC)."
)
@spec_options()
@output_option
def history(request: FleetRequest, node: str, last: int, since: timedelta | datetime | None, output: str) -> None:
    """Show the history of a node: its status, its drift, and every action on it with run, plan and commit.

    Holds, stops and rollouts that concerned it are included.
    """
    found = node_history(workspace_for(request), node, last, since)
    if not found.entries:
        say(f"{node}: nothing is recorded {'since then' if since else 'yet'}", err=True)
    if output == "json":
        entries = [asdict(entry) for entry in found.entries]
        show(json.dumps(entries, default=lambda at: at.isoformat(), indent=1) + "\n", output)
    elif found.entries:
        show((human if output == "human" else as_markdown)(found), output)
