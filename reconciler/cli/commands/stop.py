"""reconciler stop, reconciler resume"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reconciler.cli.place import Place, place_options
from reconciler.cli.terminal import say
from reconciler.model.errors import UsageError
from reconciler.model.records import FLEET, STORM

if TYPE_CHECKING:
    from reconciler.model.ports import Ledger
    from reconciler.model.records import Hold


@click.command()
@place_options
@click.option("--reason", required=True, help="Why; every plan, drift report and apply will say it.")
def stop(place: Place, reason: str) -> None:
    """Stop the whole fleet: nothing begins any more, until somebody resumes.

    What runs ends the action that it is at, and is left as it is. The spec need not be valid.
    """
    from reconciler.app.session import whoami
    from reconciler.render.text import clock

    if not reason.strip():
        raise UsageError("a stop needs a --reason: everybody whom it stops will read it")
    session = place.session()
    now = session.clock.now()
    with place.open(session, create=True) as book:
        before = standing(book)
        book.hold(FLEET, reason, whoami(), None, now)
        say(f"stopped: nothing begins any more. Ledger {book.name}")
        for hold in before:
            if hold.subject == STORM:
                say(f"the storm brake is set too, since {clock(hold.since)}: {hold.reason}")
                continue
            say(f"it was stopped before, by {hold.owner} at {clock(hold.since)}: {hold.reason}")
        lease_now = book.lease_time(now)
        for lease in book.leases():
            if lease.expires_at > lease_now:
                say(f"running: {lease.holder}; what it is at ends, then it leaves")


@click.command()
@place_options
def resume(place: Place) -> None:
    """Lift the stop of the whole fleet, and the storm brake. Holds of nodes and pools stand; nothing begins before the
    next apply. While nodes still go bad, the next look sets the brake again.
    """
    from reconciler.app.session import whoami
    from reconciler.render.text import clock

    session = place.session()
    with place.open(session) as book:
        before = standing(book)
        if not before:
            raise UsageError(f"nothing is stopped in the ledger {book.name}")
        for subject in {hold.subject for hold in before}:
            book.release(subject, whoami(), session.clock.now())
    for hold in before:
        what = "stopped" if hold.subject == FLEET else "braked"
        say(f"resumed; it was {what} by {hold.owner} at {clock(hold.since)}: {hold.reason}")


def standing(book: Ledger) -> list[Hold]:
    return [hold for hold in book.holds() if hold.subject in (FLEET, STORM)]
