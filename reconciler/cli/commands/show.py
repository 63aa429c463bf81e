"""reconciler show"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.documents import read_document
from reconciler.cli.options import output_option
from reconciler.cli.terminal import show as on_screen
from reconciler.model.documents import dump
from reconciler.model.fleet_overview import FleetOverview
from reconciler.model.observed import Observation
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.render import drift, observation, outcome, period_report, plan, status
from reconciler.render.apart import shown_apart
from reconciler.render.comment import as_markdown


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@output_option
def show(file: Path, output: str) -> None:
    """Render a plan, drift report, apply outcome, observation, status or period report from FILE."""
    found = read_document(file)
    match found:
        case _ if output == "json":
            shown = dump(found)
        case Observation():
            shown = shown_apart(found, observation.human if output == "human" else observation.as_markdown)
        case PeriodReport():
            shown = (period_report.human if output == "human" else period_report.as_markdown)(found)
        case FleetOverview():
            shown = (status.human if output == "human" else status.as_markdown)(found)
        case Plan():
            shown = shown_apart(found, plan.human if output == "human" else as_markdown)
        case DriftReport():
            shown = shown_apart(found, drift.human if output == "human" else as_markdown)
        case ApplyOutcome():
            shown = shown_apart(found, outcome.human if output == "human" else as_markdown)
    on_screen(shown, output)
