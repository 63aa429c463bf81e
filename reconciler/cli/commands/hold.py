"""reconciler hold, reconciler release"""

from __future__ import annotations

import click

from reconciler.app import holds
from reconciler.app.ports import FleetRequest
from reconciler.cli.completion import node_or_pool_names
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import Duration, spec_options
from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError


@click.command()
@click.argument("subject", metavar="[NODE|pool/POOL]", required=False, shell_complete=node_or_pool_names)
@click.option("--reason", help="Why. Every plan and report shows it.")
@click.option("--for", "duration", type=Duration(), metavar="DURATION", help="How long. Default: until it is released.")
@spec_options()
def hold(request: FleetRequest, subject: str | None, reason: str | None, duration: float | None) -> None:
    """Forbid all actions on a node or a pool. Without an argument, list the holds.

    The ledger keeps a hold, whatever becomes of the spec. The spec may declare holds too; apply and drift copy them to
    the ledger.
    """
    workspace = workspace_for(request)
    if subject is None:
        if reason is not None or duration is not None:
            raise UsageError("name the node or pool/POOL to hold")
        show(holds.list_holds(workspace))
        return
    if not reason:
        raise UsageError("a hold needs --reason: every plan and report shows it")
    until = holds.hold(workspace, subject, reason, duration)
    say(f"{subject} is held{f' until {until:%Y-%m-%d %H:%M UTC}' if until else ''}: {reason}")


@click.command()
@click.argument("subject", metavar="NODE|pool/POOL", shell_complete=node_or_pool_names)
@spec_options()
def release(request: FleetRequest, subject: str) -> None:
    """Release every hold of a node or a pool. A hold that the spec declares must be removed there too."""
    places = " and ".join(holds.release(workspace_for(request), subject))
    if places:
        say(f"{subject} is released, but {places} holds it again from now on: remove the hold from the spec")
    else:
        say(f"{subject} is released")
