"""reconciler report"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import click

from reconciler.app.history import period_report
from reconciler.app.ports import FleetRequest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import Since, observation_option, output_option, spec_argument, spec_options
from reconciler.cli.terminal import show
from reconciler.model.documents import dump
from reconciler.render.period_report import as_markdown, human


@click.command()
@click.option("--since", type=Since(), default="7d", show_default=True, metavar="TIME",
              help="Begin: 2h or 7d ago, 2026-11-01 or 2026-11-01T03:00 (UTC).")  # fmt: skip
@spec_options(spec_argument)
@click.option("--html", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Also observe the nodes, as drift does, and write one page, DIR/index.html.")  # fmt: skip
@observation_option("With --html: show this observation, and read no node.")
@output_option
def report(
    request: FleetRequest, since: timedelta | datetime, html: Path | None, observation: Path | None, output: str
) -> None:
    """Report on a period: availability, drift that came and went, recoveries, quarantines and actions.

    The source is the ledger, where `drift`, `apply` and `run` record the status of each node. Hours in which none of
    them ran are "not observed", and do not count for the availability.
    """
    found = period_report(workspace_for(request), since, html, observation)
    show(dump(found) if output == "json" else (human if output == "human" else as_markdown)(found), output)
