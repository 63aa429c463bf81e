"""reconciler history"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from reconciler.cli.commands.hold import check_subject, endpoints, ledger, session_for, spec
from reconciler.cli.options import output_option
from reconciler.cli.terminal import say, show
from reconciler.model.units import parse_duration


class Since(click.ParamType[timedelta | datetime]):
    """2h, 3d: so long ago; or an instant, in UTC unless it says otherwise."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta | datetime:
        try:
            return timedelta(seconds=parse_duration(value))
        except ValueError:
            pass
        try:
            at = datetime.fromisoformat(value)
            return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):  # overflow: of the first and the last day that there is
            self.fail(f"{value!r} is neither a duration (2h, 3d) nor a time (2026-11-21, 2026-11-21T03:00)", param, ctx)


@click.command()
@click.argument("node")
@click.option("--last", "--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, metavar="N",
              help="How many entries, the newest.")  # fmt: skip
@click.option("--since", type=Since(), metavar="TIME", help="2h, 3d, 2026-11-21 or 2026-11-21T03:00 (UTC).")
@spec
@ledger
@endpoints
@output_option
def history(
    node: str, last: int, since: timedelta | datetime | None, spec: Path, ledger: str | None, endpoints: Path | None,
    output: str,
) -> None:  # fmt: skip
    """Tell a node's story: how it stands, what was found, and what was done to it, by which run, plan and commit.

    Holds and stops that kept it from being acted on are part of it, and so are rollouts that it had a place in.
    """
    from reconciler.render.history import NodeHistory, OpenDrift, as_markdown, human

    session = session_for(spec, ledger, endpoints)
    now = session.clock.now()
    begin = now - since if isinstance(since, timedelta) else since
    pool = session.fleet.nodes[node].pool if node in session.fleet.nodes else ""
    with session.ledger() as book:
        entries = book.history(node, last + 1, since=begin, pool=pool)
        limited, entries = len(entries) > last, entries[-last:]
        story = NodeHistory(
            node, book.node(node), [OpenDrift(*item) for item in book.open_drift(node)], entries,
            book.runs({entry.run for entry in entries if entry.run}), now, session.time_scale, limited,
        )  # fmt: skip
    if not entries:
        check_subject(session.fleet, node)
        say(f"{node}: nothing is recorded {'since then' if begin else 'yet'}", err=True)
    if output == "json":
        show(
            json.dumps([asdict(entry) for entry in entries], default=lambda at: at.isoformat(), indent=1) + "\n", output
        )
    elif entries:
        show((human if output == "human" else as_markdown)(story), output)
