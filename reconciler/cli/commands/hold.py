"""reconciler hold, reconciler release"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from reconciler.cli.options import Common, Duration
from reconciler.model.errors import UsageError

subject = click.argument("subject", metavar="NODE|pool/POOL")
spec = click.option(
    "--spec",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("fleet-spec"),
    show_default=True,
    metavar="SPEC",
)
ledger = click.option(
    "--ledger", envvar="RECONCILER_LEDGER", metavar="URL", help="Ledger: a file or a postgresql:// URL."
)
endpoints = click.option(
    "--endpoints",
    envvar="RECONCILER_ENDPOINTS",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
)


def session_for(spec: Path, ledger: str | None, endpoints: Path | None) -> Any:
    from reconciler.cli.session import Session

    return Session(Common(spec, None, "human", (), (), ledger, endpoints))


@click.command()
@subject
@click.option("--reason", required=True, help="Why; everybody who finds the node held will read it.")
@click.option("--for", "duration", type=Duration(), metavar="DURATION", help="Until then; without it, until released.")
@spec
@ledger
@endpoints
def hold(
    subject: str, reason: str, duration: float | None, spec: Path, ledger: str | None, endpoints: Path | None
) -> None:
    """Forbid acting on a node or a pool. A hold is a ledger row: it outlives any change of the spec."""
    from reconciler.cli.session import whoami

    session = session_for(spec, ledger, endpoints)
    check_subject(session.fleet, subject)
    now = session.clock.now()
    with session.ledger() as book:
        made = book.hold(
            subject, reason, whoami(), None if duration is None else now + timedelta(seconds=duration), now
        )
    until = f" until {made.until:%Y-%m-%d %H:%M UTC}" if made.until else ""
    click.echo(f"{subject} is held{until}: {reason}")


@click.command()
@subject
@spec
@ledger
@endpoints
def release(subject: str, spec: Path, ledger: str | None, endpoints: Path | None) -> None:
    """Lift every hold of a node or a pool."""
    from reconciler.cli.session import whoami

    session = session_for(spec, ledger, endpoints)
    with session.ledger() as book:
        lifted = book.release(subject, whoami(), session.clock.now())
        others = [found.subject for found in book.holds()]
    if not lifted:
        held = f"; held are {', '.join(sorted(set(others)))}" if others else "; nothing is held"
        raise UsageError(f"{subject} is not held{held}")
    click.echo(f"{subject} is released")


def check_subject(fleet: Any, subject: str) -> None:
    """UsageError for a node or pool that the fleet does not have: a typo must not look like protection."""
    from reconciler.spec.faults import did_you_mean

    pools = {f"pool/{node.pool}" for node in fleet.nodes.values()}
    if subject not in fleet.nodes and subject not in pools:
        hint = did_you_mean(subject, [*fleet.nodes, *pools])
        raise UsageError(f"fleet {fleet.settings.fleet} has no {subject!r}" + (f"; {hint}" if hint else ""))
