"""reconciler isolation"""

from __future__ import annotations

import click

from reconciler.app import isolation as use_case
from reconciler.app.ports import FleetRequest
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.listing import print_listing
from reconciler.cli.options import Duration, output_option, spec_options
from reconciler.cli.terminal import say


@click.group(cls=Group)
def isolation() -> None:
    """List nodes that are isolated, which a health signal took out of service at once, or retract a signal."""


@isolation.command("list")
@spec_options()
@output_option
def list_(request: FleetRequest, output: str) -> None:
    """List isolated nodes with their evidence, and retracted signals."""
    rows = use_case.list_isolation(workspace_for(request))
    print_listing(("what", "signal", "since", "state"), rows, output, empty="no node is isolated")


@isolation.command()
@click.argument("signal", metavar="SIGNAL")
@click.option("--reason", required=True, help="Why the signal is wrong. Every report of it shows this.")
@click.option(
    "--for", "duration", type=Duration(), metavar="DURATION", help="How long. Default: until `isolation restore`."
)
@spec_options()
@output_option
def retract(request: FleetRequest, signal: str, reason: str, duration: float | None, output: str) -> int:
    """Declare a signal wrong: lift the cordons that it alone has set, without a gate, and set no more of them.

    Nodes that were drained or treated since then return through their gate. Until `reconciler isolation restore`, the
    signal is reported and has no effect.
    """
    done = use_case.retract(workspace_for(request), signal, reason, duration)
    if done.left_to:
        say(f"{done.signal} is retracted. The run that has the lease lifts the cordons: {done.left_to}", err=True)
        return ExitCode.DONE
    print_listing(
        ("node", "outcome"), done.nodes, output, empty=f"{done.signal} is retracted; no cordon is to be lifted"
    )
    return ExitCode.PARTLY_FAILED if done.failed else ExitCode.DONE


@isolation.command()
@click.argument("signal", metavar="SIGNAL")
@spec_options()
def restore(request: FleetRequest, signal: str) -> None:
    """Let a retracted signal isolate nodes again."""
    say(f"{use_case.restore(workspace_for(request), signal)} isolates nodes again, from the next pass on")
