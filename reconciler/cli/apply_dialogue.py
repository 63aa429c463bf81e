"""The plan before and the outcome after `apply` and `gate run`, as people read them, and the question in between.

It is loaded before anything is changed: a run of hours can be told though the package was upgraded meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import click

from reconciler.app.apply import require_startable
from reconciler.cli.terminal import show
from reconciler.model.documents import dump
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome
from reconciler.model.vocab import Disruption
from reconciler.render.apart import shown_apart
from reconciler.render.comment import as_markdown
from reconciler.render.outcome import human
from reconciler.render.plan import human as plan_text
from reconciler.render.text import disruption

TYPED_ABOVE: Final = 10  # nodes that lose their boot or more: what a slip of the finger should not reach


def confirm(plan: Plan) -> None:
    """Show the plan and ask whether to apply it. Raise Abort when the answer is no."""
    show(plan_text(plan) + "\n", err=True)
    require_startable(plan)
    sentence = sentence_for(plan)
    if sentence:
        agreed = click.prompt(f"Type '{sentence}' to apply this", err=True) == sentence
    else:
        agreed = not plan.changes or click.confirm(f"Apply this to {plan.totals.nodes_with_changes} nodes?", err=True)
    if not agreed:
        raise click.Abort


def sentence_for(plan: Plan) -> str:
    """Return what a person types to agree to a plan that restarts, flashes or reimages many nodes: "reimage 60".

    The worst of it is named, with the number of its nodes; "" for a plan that `y` is enough for.
    """
    worst = Counter(node.disruption for node in plan.nodes.values() if node.disruption >= Disruption.REBOOT)
    if worst.total() <= TYPED_ABOVE:
        return ""
    level = max(worst)
    return f"{disruption(level)} {worst[level]}"


def print_outcome(outcome: ApplyOutcome, output: str) -> None:
    """Print the outcome of a run. `output`: "json", "markdown" or "human"."""
    if output == "json":
        show(dump(outcome), output)
    else:
        show(shown_apart(outcome, human if output == "human" else as_markdown), output)
