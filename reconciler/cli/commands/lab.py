"""reconciler lab"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter

from reconciler.app.validate import validate_spec
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.groups import Group
from reconciler.cli.options import TimeScale, spec_argument
from reconciler.cli.terminal import say, show
from reconciler.lab.control import clear_fault, exchange_part, inject_fault, read_state, run_slurm, shut_down
from reconciler.lab.hardware.faults import FAULTS
from reconciler.lab.scenario import load_scenario
from reconciler.model.errors import SpecError
from reconciler.model.played_signal import PlayedSignal
from reconciler.render import signal_matrix
from reconciler.render.tables import table
from reconciler.render.text import count

directory = click.option(
    "--dir", "directory", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="DIR",
    help="The lab's directory: spec, secrets, endpoints, control socket.",
)  # fmt: skip


@click.group(cls=Group)
def lab() -> None:
    """Run a simulated fleet on loopback: BMCs, hosts and a Kubernetes API, with faults to inject."""


@lab.command()
@directory
@click.option("--nodes", type=click.IntRange(1, 100_000), metavar="N", help="Generate a fleet of N nodes and its spec.")
@click.option(
    "--spec",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="SPEC",
    help="Simulate the nodes of this spec.",
)
@click.option(
    "--scenario",
    default="drifted",
    show_default=True,
    metavar="NAME|FILE",
    help="How the nodes differ from the spec at the start.",
)
@click.option("--seed", type=int, metavar="S", help="Seed for the nodes that the scenario picks.")
@click.option("--time-scale", type=TimeScale(), default=60.0, show_default=True, metavar="F",
              help="How many times faster than real time the lab runs.")  # fmt: skip
@click.option("--slurm", is_flag=True, help="Give the generated fleet a Slurm in place of a Kubernetes.")
def up(
    directory: Path,
    nodes: int | None,
    spec: Path | None,
    scenario: str,
    seed: int | None,
    time_scale: float,
    slurm: bool,
) -> None:
    """Start a lab, and run it in the foreground until SIGINT or `lab down`."""
    from reconciler.lab.up import Options, Running, up  # a second of asyncssh, aiohttp: the other commands need none

    def announce(running: Running) -> None:
        nodes_up = count(len(running.lab.machines), "node")
        say(f"{nodes_up} up, scenario {scenario}; their time runs {time_scale:g} times as fast as yours.")
        say("In another terminal:", "")
        say(f"  export RECONCILER_ENDPOINTS={running.directory / 'endpoints.json'}")
        say(f"  reconciler drift {running.spec}")
        say(f"  reconciler plan {running.spec} --out plan.json")
        say(f"  reconciler apply {running.spec} --plan plan.json --yes")
        say(f"  reconciler lab fault --dir {directory} NODE       # how a node can be broken")
        if running.lab.slurm is not None:
            say(f"  reconciler lab slurm --dir {directory} -- squeue  # or sinfo, scontrol, sbatch, scancel")
        say("")
        say("Ctrl-C ends the lab.", err=True)

    options = Options(directory, load_scenario(scenario), spec, nodes, seed, time_scale, slurm)
    asyncio.run(up(options, announce))


@lab.command()
@directory
@click.argument("node")
@click.argument("kind", required=False)
@click.argument("parameters", nargs=-1, metavar="[KEY=VALUE]...")
def fault(directory: Path, node: str, kind: str | None, parameters: tuple[str, ...]) -> None:
    """Inject a fault of KIND into NODE. Without KIND, list the kinds."""
    if kind is None:
        rows = [
            (name, " ".join(f"{key}={value}" for key, value in found.parameters.items()), found.description)
            for name, found in FAULTS.items()
        ]
        say(*table(("kind", "parameters", "what happens"), rows))
        return
    inject_fault(directory, node, kind, dict(_parameter(text) for text in parameters))
    say(f"{node}: {kind}")


def _parameter(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@lab.command()
@directory
@click.argument("node")
@click.argument("kind", required=False)
def clear(directory: Path, node: str, kind: str | None) -> None:
    """Remove a fault of NODE, or all of its faults."""
    clear_fault(directory, node, kind)
    say(f"{node}: {kind or 'every fault'} lifted")


@lab.command()
@directory
@click.argument("node")
@click.argument("part", type=click.Choice(["psu", "fan", "drive", "dimm", "gpu", "nic"]))
@click.argument("index", type=click.IntRange(min=0))
def exchange(directory: Path, node: str, part: str, index: int) -> None:
    """Put another PART in place of the one at INDEX of NODE, counted from 0, as a technician does.

    The machine must be off for a dimm, gpu or nic. The faults of the part go with it.
    """
    exchange_part(directory, node, part, index)
    say(f"{node}: {part} {index} is another one now")


@lab.command(context_settings={"ignore_unknown_options": True})
@directory
@click.option("--user", default="ada", show_default=True, help="User who runs it, as reasons and jobs show.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
def slurm(directory: Path, user: str, command: tuple[str, ...]) -> int:
    """Run a command of the lab's Slurm, as people do: squeue, sinfo, scontrol, sbatch, scancel."""
    ran = run_slurm(directory, command, user)
    show(ran.stdout, "text")
    show(ran.stderr, "text", err=True)
    return ran.exit_status


@lab.command()
@directory
@click.option("--output", "-o", type=click.Choice(["human", "json"]), default="human", show_default=True)
def state(directory: Path, output: str) -> None:
    """Show the true state of the hardware, whatever its BMC reports."""
    found = read_state(directory)
    if output == "json":
        show(json.dumps(found, indent=1, sort_keys=True) + "\n", output)
        return
    rows = [_state_row(name, machine) for name, machine in sorted(found["nodes"].items())]
    say(*table(("node", "power", "phase", "image", "boots", "installs", "flashes", "faults"), rows))
    if found["cluster"] is not None:
        groups = found["cluster"]["out_of_service"].items()
        say("", "Nodes taken out of service, by group:")
        counts = [(group, str(len(one["now"])), str(one["most"]), " ".join(one["nodes"])) for group, one in groups]
        say(*table(("group", "now", "most at once", "nodes then"), counts))


@lab.command()
@spec_argument
@click.argument("signals", nargs=-1, metavar="[SIGNAL]...")
@click.option("--pool", default="", metavar="POOL", help="Play it on this pool. Default: the first that can be played.")
@click.option("--output", "-o", type=click.Choice(["human", "json"]), default="human", show_default=True)
def matrix(spec: Path, signals: tuple[str, ...], pool: str, output: str) -> int:
    """Play what raises each SIGNAL against each rung of a pool's ladder: what heals it, how long, and who is told.

    Two nodes of the spec fall ill in virtual time, by its own table of signals and without its budgets and windows.
    Nothing is contacted, and no lab has to run. Default: all signals, half a second each and rung. Exit code 7: a node
    did not come back, or nobody saw it or was told.
    """
    from reconciler.app.rehearsal.signals import cells, play_signal, stage_of  # the loop, which other commands need not

    fleet, found = validate_spec(spec, None)
    if fleet is None:
        raise SpecError(found)
    stage = stage_of(fleet, pool)
    wanted = list(cells(stage, signals))
    say(f"Playing {count(len(wanted), 'cause')} on {stage.node} of pool {stage.pool}.", err=True)
    played = [play_signal(stage, signal, rung) for signal, rung in wanted]
    if output == "json":
        show(TypeAdapter(list[PlayedSignal]).dump_json(played, indent=1).decode() + "\n", output)
    else:
        show(signal_matrix.human(played), output)
    return ExitCode.PARTLY_FAILED if any(one.trouble for one in played) else ExitCode.DONE


def _state_row(name: str, machine: dict[str, Any]) -> tuple[str, ...]:
    disk: dict[str, Any] = machine["disks"].get(machine.get("booted_disk") or "") or next(
        iter(machine["disks"].values()), {}
    )
    counters = machine["counters"]
    return (
        name, machine["power"], machine["phase"], disk.get("version", "-"), str(counters["boots"]),
        str(counters["installs"]), str(counters["flashes"]), ", ".join(machine["faults"]),
    )  # fmt: skip


@lab.command()
@directory
def down(directory: Path) -> int:
    """Stop the lab."""
    shut_down(directory)
    return ExitCode.DONE
