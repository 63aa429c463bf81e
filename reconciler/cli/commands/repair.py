"""reconciler repair"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import click

from reconciler.app import repair as use_case
from reconciler.app.apply import require_signed_spec
from reconciler.app.holds import check_subject
from reconciler.app.ports import AllowedSigners, FleetRequest
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.cli.apply_dialogue import print_outcome
from reconciler.cli.commands.apply import exit_code
from reconciler.cli.completion import node_names
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.options import Duration, fleet_options, output_option, signer_options, spec_options
from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError
from reconciler.model.repairs import Repair, RepairPhase
from reconciler.render.repair import as_json, as_markdown, human
from reconciler.render.text import plain

_WAIT = click.option(
    "--wait", "wait_s", type=Duration(), default="30m", show_default=True, metavar="DURATION",
    help="Time limit for waiting, whether for budget, windows or another run that carries it out.",
)  # fmt: skip


@click.group(cls=Group)
def repair() -> None:
    """List what waits for a person, and guide the exchange of a part."""


@repair.command("list")
@fleet_options()
def list_(request: FleetRequest, output: str) -> None:
    """List the nodes that wait for a person: part, slot and serial, since when, what was tried, and the evidence."""
    found = use_case.waiting(workspace_for(request))
    write = {"json": as_json, "markdown": as_markdown}.get(output, human)
    show(write(found), output)


@repair.command()
@click.argument("node", shell_complete=node_names)
@click.option("--part", "parts", multiple=True, metavar="PART",
              help="Part to exchange, by its name in `repair list` or its serial. Default: by signals.")  # fmt: skip
@click.option("--reason", default="", help="Why, for the journal and every report.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@_WAIT
@spec_options()
@signer_options
@output_option
def start(
    request: FleetRequest, signers: AllowedSigners, node: str, parts: tuple[str, ...], reason: str, yes: bool,
    wait_s: float, output: str,
) -> int:  # fmt: skip
    """Take NODE out for the exchange of a part: drained within the budget, its locator LED on, and switched off.

    Before anything is written to its BMC, serial number and UUID must be those of this node. Until `repair done`,
    nothing else is done to it.
    """
    if not sys.stdin.isatty() and not yes:
        raise UsageError("off a terminal, repair start needs --yes")
    workspace = _workspace(request, node)
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        made = use_case.order_start(workspace, ledger, node, parts, reason)
        say(plain(f"{node}: {made.what}", 400), err=True)
        if not yes and not click.confirm("Drain it, switch its locator LED on and switch it off?", err=True):
            raise click.Abort
        use_case.give(workspace, ledger, made)
        code = _carry_out(use_case.OrderRun(workspace, ledger, node), "repair start", wait_s, output)
        if use_case.is_off(ledger.node(node)):
            say(plain(f"{node} is off: exchange {made.what}, then `reconciler repair done {node}`", 400), err=True)
    return code


@repair.command()
@click.argument("node", shell_complete=node_names)
@click.option("--accept", default="", metavar="WHY",
              help="Accept the parts as they are, such as one that was reseated, and say why.")  # fmt: skip
@_WAIT
@spec_options()
@signer_options
@output_option
def done(request: FleetRequest, signers: AllowedSigners, node: str, accept: str, wait_s: float, output: str) -> int:
    """Bring NODE back: power on, LED off, its parts read anew and recorded, and the gate by part.

    A part that is the same, the wrong one, or one that was taken out as faulty before is not accepted, which is told.
    """
    workspace = _workspace(request, node)
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        before = use_case.order_return(workspace, ledger, node, accept)
        order = use_case.OrderRun(workspace, ledger, node)
        return max(_carry_out(order, "repair done", wait_s, output), _tell_end(order, before))


def _workspace(request: FleetRequest, node: str) -> Workspace:
    whole = workspace_for(request)
    check_subject(whole.fleet, node)
    workspace = workspace_for(replace(request, limit=(node,)))
    workspace.fleet = whole.fleet
    return workspace


def _carry_out(order: use_case.OrderRun, command: str, wait_s: float, output: str) -> int:
    if (held := order.leader()) is not None:
        say(f"the order is given; it is carried out by {held.holder}", err=True)
        for line in order.follow(wait_s, lambda seconds: run_async(order.workspace.clock.sleep(seconds))):
            say(plain(f"{order.node}: {line}", 400), err=True)
        return ExitCode.DONE if order.is_carried_out else ExitCode.INCOMPLETE
    result = order.carry_out(command, wait_s, partial(exit_code, detailed=False))
    print_outcome(result.outcome, output)
    return result.code


def _tell_end(order: use_case.OrderRun, before: Repair) -> int:
    """Say what became of the parts. Return the exit code that this asks for."""
    after = next(one for one in order.ledger.repairs() if one.id == before.id)
    if after.phase is RepairPhase.CLOSED:
        say(plain(f"{after.node}: {after.told}", 400), err=True)
    elif after.phase is RepairPhase.REFUSED:
        say(plain(f"{after.node}: not accepted: {after.told}", 400), err=True)
        return ExitCode.PARTLY_FAILED
    return ExitCode.DONE
