"""reconciler hold, reconciler release"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import Common, Duration, endpoints_option, ledger_option
from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError
from reconciler.model.records import Hold

if TYPE_CHECKING:
    from reconciler.model.desired import SpecHold

subject = click.argument("subject", metavar="NODE|pool/POOL")
spec = click.option(
    "--spec",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("fleet-spec"),
    show_default=True,
    metavar="SPEC",
)
ledger = ledger_option("Ledger: a file or a postgresql:// URL.")
endpoints = endpoints_option()


def session_for(spec: Path, ledger: str | None, endpoints: Path | None) -> Any:
    from reconciler.app.session import Session

    return Session(Common(spec, None, "human", (), (), ledger, endpoints))


@click.command()
@click.argument("subject", metavar="[NODE|pool/POOL]", required=False)
@click.option("--reason", help="Why; everybody who finds the node held will read it.")
@click.option("--for", "duration", type=Duration(), metavar="DURATION", help="Until then; without it, until released.")
@spec
@ledger
@endpoints
def hold(
    subject: str | None,
    reason: str | None,
    duration: float | None,
    spec: Path,
    ledger: str | None,
    endpoints: Path | None,
) -> None:
    """Forbid acting on a node or a pool; without one, list what is held.

    A hold is a ledger row: it outlives any change of the spec. The spec may declare holds too; apply and drift copy
    them to the ledger.
    """
    from reconciler.app.session import whoami

    session = session_for(spec, ledger, endpoints)
    now = session.clock.now()
    if subject is None:
        if reason is not None or duration is not None:
            raise UsageError("name the node, or pool/POOL, that shall be held")
        with session.ledger() as book:
            show(listed(session.fleet.holds, book.holds(), now))
        return
    if not reason:
        raise UsageError("a hold needs --reason: everybody who finds the node held will read it")
    check_subject(session.fleet, subject)
    until = None if duration is None else now + timedelta(seconds=duration)
    with session.ledger() as book:
        book.hold(subject, reason, whoami(), until, now)
    say(f"{subject} is held{f' until {until:%Y-%m-%d %H:%M UTC}' if until else ''}: {reason}")


def listed(declared: Sequence[SpecHold], kept: Sequence[Hold], now: datetime) -> str:
    """Every hold that stands, and where it comes from."""
    from reconciler.model.records import FLEET, STORM
    from reconciler.planner.node.holds import end_of, is_active, is_copy, origin
    from reconciler.render.tables import table
    from reconciler.render.text import clock

    cells = []
    holds: tuple[SpecHold | Hold, ...] = (*declared, *kept)
    for said in holds:
        if isinstance(said, Hold):
            copied, since = any(is_copy(said, one) for one in declared), clock(said.since)
        else:
            copied, since = False, next((clock(one.since) for one in kept if is_copy(one, said)), "the next apply")
        if is_active(said, now) and not copied:
            end = end_of(said)
            until = clock(end.astimezone(UTC)) if end else ""
            whom = {FLEET: "the whole fleet", STORM: "what disrupts"}.get(said.subject, said.subject)
            cells.append((whom, said.owner, since, until, origin(said) or "by command", said.reason))
    head = ("held", "owner", "since", "until", "set", "reason")
    return "\n".join(table(head, sorted(cells), indent="")) + "\n" if cells else "nothing is held\n"


@click.command()
@subject
@spec
@ledger
@endpoints
def release(subject: str, spec: Path, ledger: str | None, endpoints: Path | None) -> None:
    """Lift every hold of a node or a pool. One that the spec declares must be taken out there too."""
    from reconciler.app.session import whoami
    from reconciler.planner.node.holds import is_active

    session = session_for(spec, ledger, endpoints)
    now = session.clock.now()
    lines = [hold.position for hold in session.fleet.holds if hold.subject == subject and is_active(hold, now)]
    with session.ledger() as book:
        lifted = book.release(subject, whoami(), now)
        others = [found.subject for found in book.holds()]
    if lines:
        places = " and ".join(lines)
        if not lifted:
            raise UsageError(f"{subject} is held by the spec alone: take the hold out of {places}")
        say(f"{subject} is released, but {places} holds it again from now on: take the hold out of the spec")
    elif not lifted:
        held = f"; held are {', '.join(sorted(set(others)))}" if others else "; nothing is held"
        raise UsageError(f"{subject} is not held{held}")
    else:
        say(f"{subject} is released")


def check_subject(fleet: Any, subject: str) -> None:
    """UsageError for a node or pool that the fleet does not have: a typo must not look like protection."""
    from reconciler.spec.model_errors import did_you_mean

    pools = {f"pool/{node.pool}" for node in fleet.nodes.values()}
    if subject not in fleet.nodes and subject not in pools:
        hint = did_you_mean(subject, [*fleet.nodes, *pools])
        raise UsageError(f"fleet {fleet.settings.fleet} has no {subject!r}" + (f"; {hint}" if hint else ""))
