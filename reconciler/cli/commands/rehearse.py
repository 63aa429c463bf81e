"""reconciler rehearse"""

from __future__ import annotations

import sys
from typing import Any

import click
from pydantic import TypeAdapter

from reconciler.app.plan import open_workspace
from reconciler.app.ports import FleetRequest, PlanSource
from reconciler.app.rehearsal.inputs import parse_failure_rate, rehearsal_input
from reconciler.app.rehearsal.simulation import rehearse as simulate
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.frontend import TERMINAL
from reconciler.cli.options import fleet_options, plan_source_options
from reconciler.cli.terminal import say, show
from reconciler.model.rehearsal import Rehearsal
from reconciler.render.rehearsal import as_markdown, human

CHANGED_NODES = 5_000  # in all runs together, which takes about a minute, unless --runs says otherwise
MOST_RUNS = 20


class FailureRate(click.ParamType[tuple[str, float]]):
    """0.02, 2%, reimage=5%: an action, or "*" for all, and a share."""

    name = "failure-rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_failure_rate(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@fleet_options(rev=True)
@plan_source_options(
    observation="Rehearse from this observation instead of reading the nodes.",
    base="Rehearse a change beyond this revision; contact only what that names.",
)
@click.option(
    "--failure-rate", "failure_rates", type=FailureRate(), multiple=True, metavar="[ACTION=]SHARE",
    help="On this share of the nodes the action (or each one) fails whenever it is tried: 2%, reimage=5%.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="What chance draws from; +1 per run.")
@click.option("--runs", type=click.IntRange(1, 1000), metavar="N", help="Default: 20; fewer where many nodes change.")
def rehearse(
    request: FleetRequest, source: PlanSource, failure_rates: tuple[tuple[str, float], ...], seed: int,
    runs: int | None, output: str,
) -> int:  # fmt: skip
    """Play the whole rollout on simulated nodes, in virtual time: how long it takes, who is out, what fails and halts.

    The same planner, scheduler and executor as in apply; no node is changed, and the ledger is a copy in memory. Exit
    codes: 7 when an invariant was broken (a bug, with the evidence), 8 when a guard refuses the plan, a rollout halts,
    or nothing may start.
    """
    workspace = open_workspace(request, PlanSource(None, source.base, source.head), TERMINAL)
    start = rehearsal_input(workspace, source.observation, dict(failure_rates))
    changes = start.plan.totals.nodes_with_changes
    number = runs or min(MOST_RUNS, max(1, CHANGED_NODES // max(changes, 1)))

    def show_run(at: int) -> None:
        if at == 1 or sys.stderr.isatty():
            say(f"rehearsing {changes} nodes, run {at} of {number}", err=True)

    found = simulate(start, range(seed, seed + number), show_run)
    if output == "json":
        show(TypeAdapter(Rehearsal).dump_json(found, indent=1).decode() + "\n", output)
    else:
        show((human if output == "human" else as_markdown)(found), output)
    return exit_code(found)


def exit_code(found: Rehearsal) -> ExitCode:
    wanted = bool(found.nodes_with_changes or found.left)
    nothing = wanted and not any(run.actions for run in found.runs)
    return strongest(
        [
            ExitCode.PARTLY_FAILED if found.broken else ExitCode.DONE,
            ExitCode.REFUSED if found.refused or found.halted or nothing else ExitCode.DONE,
        ]
    )
