"""reconciler lease"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from reconciler.app.ledger_admin import existing_ledger, release_lease
from reconciler.app.ports import FleetRequest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.listing import print_listing
from reconciler.cli.options import ledger_location_options, output_option
from reconciler.cli.terminal import say
from reconciler.model.records import Lease
from reconciler.render.text import clock


@click.group(cls=Group)
def lease() -> None:
    """List leases or release one. One run at a time holds the lease of a fleet, one action at a time that of a BMC."""


@lease.command(name="list")
@ledger_location_options
@output_option
def listed(request: FleetRequest, output: str) -> None:
    """List every lease with its holder, and when it expires unless the holder renews it."""
    workspace = workspace_for(request)
    with existing_ledger(workspace) as ledger:
        found = sorted(ledger.leases(), key=lambda one: one.scope)
        now = ledger.lease_time(workspace.clock.now())
    rows = [_row(one, now) for one in found]
    head = ("id", "scope", "holder", "since", "until", "state")
    print_listing(head, rows, output, empty="nobody holds a lease", time_scale=workspace.time_scale)


@lease.command()
@ledger_location_options
@click.option(
    "--id", "token", type=click.IntRange(1, 2**63 - 1), required=True, metavar="ID", help="ID that `lease list` prints."
)
def release(request: FleetRequest, token: int) -> None:
    """Release the lease of a run that is gone, or that must not continue.

    The lease of a fleet takes those of the run on BMCs with it. A run that is still alive stops before its next write.
    A run that died needs no release: its lease expires within a minute.
    """
    taken = release_lease(workspace_for(request), token)
    since = f"since {clock(taken.since)}, " if taken.since is not None else ""
    say(f"lease {token} on {taken.scope} is released; it was held by {taken.holder} ({since}good until "
               f"{clock(taken.expires_at)})")  # fmt: skip


def _row(one: Lease, now: datetime) -> Sequence[str | int]:
    state = "held" if one.expires_at > now else "ran out"
    since = clock(one.since) if one.since is not None else ""
    return one.token, one.scope, one.holder, since, clock(one.expires_at), state
