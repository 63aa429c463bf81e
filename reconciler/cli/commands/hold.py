"""reconciler hold, reconciler release"""

from __future__ import annotations

import click

from reconciler.app import holds
from reconciler.app.ports import FleetRequest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import Duration, spec_options
from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError


@click.command()
@click.argument("subject", metavar="[NODE|pool/POOL]", required=False)
@click.option("--reason", help="Why; everybody who finds the node held will read it.")
@click.option("--for", "duration", type=Duration(), metavar="DURATION", help="Until then; without it, until released.")
@spec_options()
def hold(request: FleetRequest, subject: str | None, reason: str | None, duration: float | None) -> None:
    """Forbid acting on a node or a pool; without one, list what is held.

    A hold is a ledger row: it outlives any change of the spec. The spec may declare holds too; apply and drift copy
    them to the ledger.
    """
    workspace = workspace_for(request)
    if subject is None:
        if reason is not None or duration is not None:
            raise UsageError("name the node, or pool/POOL, that shall be held")
        show(holds.list_holds(workspace))
        return
    if not reason:
        raise UsageError("a hold needs --reason: everybody who finds the node held will read it")
    until = holds.hold(workspace, subject, reason, duration)
    say(f"{subject} is held{f' until {until:%Y-%m-%d %H:%M UTC}' if until else ''}: {reason}")


@click.command()
@click.argument("subject", metavar="NODE|pool/POOL")
@spec_options()
def release(request: FleetRequest, subject: str) -> None:
    """Lift every hold of a node or a pool. One that the spec declares must be taken out there too."""
    places = " and ".join(holds.release(workspace_for(request), subject))
    if places:
        say(f"{subject} is released, but {places} holds it again from now on: take the hold out of the spec")
    else:
        say(f"{subject} is released")
