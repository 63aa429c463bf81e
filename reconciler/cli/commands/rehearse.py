"""reconciler rehearse"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click
from pydantic import TypeAdapter

from reconciler.app.plan import open_workspace
from reconciler.app.ports import FleetRequest, PlanSource
from reconciler.app.rehearsal.inputs import parse_failure_rate, rehearsal_input
from reconciler.app.rehearsal.processes import default_jobs, on_engine
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
    """0.02, 2% or reimage=5%: an action, or "*" for all, and its share."""

    name = "failure-rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_failure_rate(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@fleet_options(rev=True, engine=True)
@plan_source_options(
    observation="Rehearse from this observation, and read no node.",
    base="Rehearse the change from this revision on. Only addresses that it names are contacted.",
)
@click.option(
    "--failure-rate", "failure_rates", type=FailureRate(), multiple=True, metavar="[ACTION=]SHARE",
    help="Share of the nodes on which the action, or every action, always fails: 2%, reimage=5%.",
)  # fmt: skip
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed of the first run; each further run adds 1.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Number of runs. Default: 20, or fewer when many nodes change.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Runs at once, each in a process of its own. Default: one for each core, where that pays.",
)
def rehearse(
    request: FleetRequest, source: PlanSource, failure_rates: tuple[tuple[str, float], ...], seed: int,
    runs: int | None, jobs: int | None, output: str,
) -> int:  # fmt: skip
    """Simulate the whole rollout in virtual time: how long it takes, which nodes are out, what fails and halts.

    Planner, scheduler and executor are those of apply. No node is changed, and the ledger is a copy in memory. Exit
    code 7: an invariant was broken, which is a bug and comes with its evidence. Exit code 8: a guard refuses the plan,
    a rollout halts, or nothing may start.
    """
    workspace = open_workspace(request, PlanSource(None, source.base, source.head), TERMINAL)
    start = rehearsal_input(workspace, source.observation, dict(failure_rates))
    changes = start.plan.totals.nodes_with_changes
    number = runs or min(MOST_RUNS, max(1, CHANGED_NODES // max(changes, 1)))

    def show_run(at: int) -> None:
        if at == 1 or sys.stderr.isatty():
            say(f"rehearsing {changes} nodes, run {at} of {number}", err=True)

    seeds = range(seed, seed + number)
    if workspace.engine.access is None:
        found = simulate(start, seeds, show_run, jobs or default_jobs(changes, number, len(start.fleet.nodes)))
    else:
        tell(f"rehearsing {changes} nodes, {number} runs on the workers of {request.engine}")
        found = simulate(start, seeds, show_run, play=partial(on_engine, start, engine=workspace.engine, told=tell))
    if output == "json":
        show(TypeAdapter(Rehearsal).dump_json(found, indent=1).decode() + "\n", output)
    else:
        show((human if output == "human" else as_markdown)(found), output)
    return exit_code(found)


def tell(text: str) -> None:
    say(text, err=True)


def exit_code(found: Rehearsal) -> ExitCode:
    wanted = bool(found.nodes_with_changes or found.left)
    nothing = wanted and not any(run.actions for run in found.runs)
    return strongest(
        [
            ExitCode.PARTLY_FAILED if found.broken else ExitCode.DONE,
            ExitCode.REFUSED if found.refused or found.halted or nothing else ExitCode.DONE,
        ]
    )
