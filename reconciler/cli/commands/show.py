"""reconciler show"""

from __future__ import annotations

import json
from pathlib import Path

import click

from reconciler.cli.options import output_option
from reconciler.cli.terminal import show as on_screen
from reconciler.model.errors import UsageError


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@output_option
def show(file: Path, output: str) -> None:
    """Render a plan, drift report or observation that a command wrote to FILE."""
    from reconciler.model.documents import dump, load
    from reconciler.model.observed import Observation
    from reconciler.model.plan import Plan
    from reconciler.model.report import DriftReport
    from reconciler.render import drift, observation, plan
    from reconciler.render.comment import as_markdown

    text = file.read_bytes()
    try:
        keys = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from None
    keys = keys if isinstance(keys, dict) else {}
    if "fingerprint" in keys:
        found: Plan | DriftReport | Observation = load(Plan, text, name=str(file))
    elif "items" in keys:
        found = load(DriftReport, text, name=str(file))
    elif "nodes" in keys:
        found = load(Observation, text, name=str(file))
    else:
        raise UsageError(f"{file}: neither a plan, nor a drift report, nor an observation")
    if output == "json":
        shown = dump(found)
    else:
        human = output == "human"
        match found:
            case Plan():
                shown = plan.human(found) if human else as_markdown(found)
            case DriftReport():
                shown = drift.human(found) if human else as_markdown(found)
            case Observation():
                shown = observation.human(found) if human else observation.as_markdown(found)
    on_screen(shown, output)
