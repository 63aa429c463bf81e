"""reconciler lease"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from reconciler.cli.listing import print_listing
from reconciler.cli.options import output_option
from reconciler.cli.place import Place, place_options
from reconciler.cli.terminal import say
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from reconciler.model.records import Lease


@click.group()
def lease() -> None:
    """Who writes: one run at a time has the lease on a fleet, and one action at a time that on a BMC."""


@lease.command(name="list")
@place_options
@output_option
def listed(place: Place, output: str) -> None:
    """Every lease, its holder, and until when it is good if its holder falls silent."""
    session = place.session()
    with place.open(session) as book:
        found = sorted(book.leases(), key=lambda one: one.scope)
        now = book.lease_time(session.clock.now())
    rows = [_row(one, now) for one in found]
    head = ("id", "scope", "holder", "since", "until", "state")
    print_listing(head, rows, output, empty="nobody holds a lease", time_scale=session.time_scale)


@lease.command()
@place_options
@click.option(
    "--id", "token", type=click.IntRange(1, 2**63 - 1), required=True, metavar="ID", help="As `lease list` prints it."
)
def release(place: Place, token: int) -> None:
    """Take a lease away, of a run that is known to be gone or must not go on.

    With that on a fleet go those that the run has on BMCs. If it still runs, it stops before its next write to
    anything. Nobody needs this for a run that died; its lease runs out within a minute.
    """
    from reconciler.app.session import whoami
    from reconciler.render.text import clock

    session = place.session()
    with place.open(session) as book:
        taken = book.take_away(token, whoami(), session.clock.now())
        if taken is None:
            others = [f"{one.token} ({one.scope}, {one.holder})" for one in book.leases()]
            held = f"held is {', '.join(others)}" if others else "nobody holds one"
            raise UsageError(f"no lease has the id {token} now; {held}")
    since = f"since {clock(taken.since)}, " if taken.since is not None else ""
    say(f"lease {token} on {taken.scope} is released; it was held by {taken.holder} ({since}good until "
               f"{clock(taken.expires_at)})")  # fmt: skip


def _row(one: Lease, now: datetime) -> Sequence[str | int]:
    from reconciler.render.text import clock

    state = "held" if one.expires_at > now else "ran out"
    since = clock(one.since) if one.since is not None else ""
    return one.token, one.scope, one.holder, since, clock(one.expires_at), state
