"""The plan before and the outcome after `apply` and `gate run`, as people read them, and the question in between.

It is loaded before anything is changed: a run of hours can be told though the package was upgraded meanwhile.
"""

from __future__ import annotations

import click

from reconciler.app.apply import require_startable
from reconciler.cli.terminal import show
from reconciler.model.documents import dump
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome
from reconciler.render.apart import shown_apart
from reconciler.render.comment import as_markdown
from reconciler.render.outcome import human
from reconciler.render.plan import human as plan_text


def confirm(plan: Plan) -> None:
    """Show the plan and ask whether to apply it. Raise Abort when the answer is no."""
    show(plan_text(plan) + "\n", err=True)
    require_startable(plan)
    if plan.changes and not click.confirm(f"Apply this to {plan.totals.nodes_with_changes} nodes?", err=True):
        raise click.Abort


def print_outcome(outcome: ApplyOutcome, output: str) -> None:
    """Print the outcome of a run. `output`: "json", "markdown" or "human"."""
    if output == "json":
        show(dump(outcome), output)
    else:
        show(shown_apart(outcome, human if output == "human" else as_markdown), output)
