"""reconciler stop, reconciler resume"""

from __future__ import annotations

import click

from reconciler.app import holds
from reconciler.app.ledger_admin import existing_ledger
from reconciler.app.ports import FleetRequest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import ledger_location_options
from reconciler.cli.terminal import say
from reconciler.model.errors import UsageError
from reconciler.model.records import FLEET, STORM
from reconciler.render.text import clock


@click.command()
@ledger_location_options
@click.option("--reason", required=True, help="Why. Every plan, drift report and apply shows it.")
def stop(request: FleetRequest, reason: str) -> None:
    """Stop the whole fleet: no action starts until `reconciler resume`.

    An action under way is finished, and nothing follows it. The spec need not be valid.
    """
    if not reason.strip():
        raise UsageError("a stop needs a --reason: every plan and report shows it")
    workspace = workspace_for(request)
    with existing_ledger(workspace, create=True) as ledger:
        done = holds.stop(workspace, ledger, reason)
    say(f"stopped: nothing begins any more. Ledger {done.ledger}")
    for hold in done.before:
        if hold.subject == STORM:
            say(f"the storm brake is set too, since {clock(hold.since)}: {hold.reason}")
        else:
            say(f"it was stopped before, by {hold.owner} at {clock(hold.since)}: {hold.reason}")
    for lease in done.running:
        say(f"running: {lease.holder}; it finishes its actions and then ends")


@click.command()
@ledger_location_options
def resume(request: FleetRequest) -> None:
    """Lift the stop of the whole fleet, and the storm brake.

    Holds of nodes and pools remain. Nothing starts before the next apply. The next pass sets the brake again while
    nodes still fail.
    """
    workspace = workspace_for(request)
    with existing_ledger(workspace) as ledger:
        lifted = holds.resume(workspace, ledger)
    for hold in lifted:
        what = "stopped" if hold.subject == FLEET else "braked"
        say(f"resumed; it was {what} by {hold.owner} at {clock(hold.since)}: {hold.reason}")
