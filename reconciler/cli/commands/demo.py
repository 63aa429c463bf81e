"""reconciler demo"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from reconciler.cli import main
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import TimeScale
from reconciler.cli.terminal import say, show
from reconciler.lab.process import lab_process
from reconciler.lab.scenario import load_scenario
from reconciler.model.documents import load
from reconciler.model.errors import UsageError
from reconciler.model.plan import Goal, NodePlan, Plan
from reconciler.model.units import format_duration
from reconciler.render.tables import table
from reconciler.render.text import plain


@click.command()
@click.argument("spec", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("fleet-spec"))
@click.option(
    "--scenario",
    default="demo",
    show_default=True,
    metavar="NAME|FILE",
    help="How the nodes differ from the spec at the start.",
)
@click.option("--time-scale", type=TimeScale(), default=60.0, show_default=True, metavar="F",
              help="How many times faster than real time the lab runs.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the lab running at the end.")
def demo(spec: Path, scenario: str, time_scale: float, keep: bool) -> int:
    """Simulate SPEC in a lab whose nodes differ from it: observe, plan, converge, and show that nothing is left to do.

    Exit code 0 means that every node ended as the scenario declares.
    """
    directory = Path(tempfile.mkdtemp(prefix="reconciler-demo-"))
    say(f"Starting a lab on loopback that plays {spec}, scenario {scenario}, in {directory}.")
    say(
        f"A minute here is {format_duration(60 * time_scale)} there. It takes a minute or two; nothing else is touched."
    )
    options = ("--spec", str(spec), "--scenario", scenario, "--time-scale", str(time_scale))
    with lab_process(directory, *options) as lab:
        # exported, not passed as options: the printed commands can then be typed while the lab runs
        os.environ["RECONCILER_ENDPOINTS"] = str(directory / "endpoints.json")
        code = converge(directory, spec, scenario)
        if keep:
            say("", "The lab runs until Ctrl-C. In another terminal:")
            say(f"  export RECONCILER_ENDPOINTS={directory}/endpoints.json")
            lab.wait()
    if code is ExitCode.DONE:
        shutil.rmtree(directory)
    return code


def converge(directory: Path, spec: Path, scenario: str) -> ExitCode:
    plan_file, last = directory / "plan.json", directory / "last.json"
    step("Drift: how the nodes differ from the spec, as read over Redfish, SSH and kubectl")
    say(f"$ export RECONCILER_ENDPOINTS={directory}/endpoints.json", bold=True)
    run("drift", str(spec), allow=(0, 4))
    step("Plan: what would be done, and why")
    run("plan", str(spec), "--out", str(plan_file), allow=(0, 4))
    step("Apply: carry out the plan, under the budget of the spec")
    run("apply", str(spec), "--plan", str(plan_file), "--yes", "--wait", "30m", allow=(0, 4, 7))
    step("Drift and plan again: what is left, and why")
    run("drift", str(spec), allow=(0, 4))
    say()
    run("plan", str(spec), "--out", str(last), allow=(0, 4))
    return judge(last, spec, scenario)


def run(*words: str, allow: tuple[int, ...]) -> None:
    """Print and run a command. Raise UsageError when its exit code is not among `allow`."""
    say(f"$ reconciler {' '.join(words)}", bold=True)
    sys.stdout.flush()
    code = main.run(list(words))
    if code not in allow:
        raise UsageError(f"`reconciler {words[0]}` ended with {code}")


def judge(last: Path, spec: Path, scenario: str) -> ExitCode:
    """Compare the end of each node with what the scenario declares, and print the table."""
    plan = load(Plan, last.read_bytes(), name=str(last))
    wanted = load_scenario(scenario)
    rows, good = [], True
    for name, node in plan.nodes.items():
        end, expected = end_of(node), wanted.expect(name).value
        good = good and end == expected
        why = "" if end == "converged" else (node.blocked.detail if node.blocked else node.situation)
        mark = "ok" if end == expected else f"WRONG, expected {expected}"
        rows.append((mark, name, end.replace("_", " "), plain(why, 160)))
    step("How every node ended" if good else f"Some node of {spec} did not end as scenario {scenario} declares")
    show("\n".join([*table(("", "node", "end", "why"), rows), ""]))
    if good:
        say("", "That is what the scenario declares. To look around in such a lab: `reconciler demo --keep`.")
    return ExitCode.DONE if good else ExitCode.PARTLY_FAILED


def end_of(node: NodePlan) -> str:
    """Return the end state of a node in the words of a scenario, such as converged, isolated or left_alone."""
    if node.actions:
        return "unfinished"
    if node.goal is Goal.ISOLATED:
        return "isolated" if node.in_service is False else "unfinished"
    if node.goal is Goal.CONVERGED_CORDONED:
        return "cordoned"
    if node.blocked is not None:
        return "left_alone"
    return "converged" if node.in_service else "unfinished"


def step(title: str) -> None:
    say()
    say(f"=== {title}", bold=True, colour="cyan")
    say()
    sys.stdout.flush()
