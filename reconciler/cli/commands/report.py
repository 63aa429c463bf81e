"""reconciler report"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import click

from reconciler.cli.commands.history import Since
from reconciler.cli.commands.hold import endpoints, ledger, session_for
from reconciler.cli.options import output_option
from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError


@click.command()
@click.argument("spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"))
@click.option("--since", type=Since(), default="7d", show_default=True, metavar="TIME",
              help="2h, 7d, 2026-11-01 or 2026-11-01T03:00 (UTC).")  # fmt: skip
@ledger
@endpoints
@click.option("--html", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Also look at the nodes, as drift does, and write it all as one page, DIR/index.html.")  # fmt: skip
@click.option("--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="With --html: show this observation instead of reading the nodes.")  # fmt: skip
@output_option
def report(
    spec: Path, since: timedelta | datetime, ledger: str | None, endpoints: Path | None, html: Path | None,
    observation: Path | None, output: str,
) -> None:  # fmt: skip
    """Tell what happened to the fleet: availability, drift that came and went, recoveries, quarantines, actions.

    It is told from the ledger: `drift`, `apply` and `run` note there how each node stands. Hours in which none of them
    looked are "not observed", and no part of the availability.
    """
    from reconciler.app.page import look, write_page
    from reconciler.model.documents import dump
    from reconciler.planner.fleet.period_report import period_report
    from reconciler.render.period_report import as_markdown, human

    session = session_for(spec, ledger, endpoints)
    fleet, begin = session.fleet, _begin(since, session.clock.now())
    if observation is not None and html is None:
        raise UsageError("--observation is what --html shows; without it, nothing is told of how nodes stand now")
    with session.ledger() as book:
        found = None if html is None else look(session, book, observation)
        now = session.clock.now()
        told = period_report(book.past(begin, now), fleet.settings.fleet, fleet.nodes, begin, now, session.time_scale)
        if html is not None and found is not None:
            say(f"written to {write_page(session, book, found, told, html)}", err=True)
    show(dump(told) if output == "json" else (human if output == "human" else as_markdown)(told), output)


def _begin(since: timedelta | datetime, now: datetime) -> datetime:
    begin = now - since if isinstance(since, timedelta) else since
    if begin >= now:
        raise UsageError(f"--since {begin:%Y-%m-%d %H:%M} UTC is not in the past")
    return begin
