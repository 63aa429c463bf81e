"""reconciler report"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.history import ReportRequest, period_report
from reconciler.app.ports import FleetRequest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import OUTPUTS, Duration, Since, grouped, observation_option, spec_argument, spec_options
from reconciler.cli.terminal import show
from reconciler.model.documents import dump
from reconciler.render.period_report import as_markdown, human
from reconciler.render.reliability import as_csv

_FORMS = {"human": human, "markdown": as_markdown, "json": dump, "csv": as_csv}


@click.command()
@click.option("--since", type=Since(), default="7d", show_default=True, metavar="TIME",
              help="Begin: 2h or 7d ago, 2026-11-01 or 2026-11-01T03:00 (UTC).")  # fmt: skip
@spec_options(spec_argument)
@click.option("--html", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Also observe the nodes, as drift does, and write one page, DIR/index.html.")  # fmt: skip
@observation_option("With --html: show this observation, and read no node.")
@click.option("--lead-time", type=Duration(), metavar="DURATION",
              help="Time from a failure until the node serves again, for spares. Default: as measured.")  # fmt: skip
@click.option("--output", "-o", type=click.Choice([*OUTPUTS, "csv"]), default="human", show_default=True,
              help="Format of the document on stdout. csv: one line for each figure.")  # fmt: skip
@grouped(ReportRequest)
def report(request: FleetRequest, asked: ReportRequest, output: str) -> None:
    """Report on a period: availability, drift that came and went, recoveries, quarantines and actions.

    The source is the ledger, where `drift`, `apply` and `run` record the status of each node. Hours in which none of
    them ran are "not observed", and do not count for the availability.
    """
    found = period_report(workspace_for(request), asked)
    show(_FORMS[output](found), output)
