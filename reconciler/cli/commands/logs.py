"""reconciler logs"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import groupby

import click

from reconciler.app.logs import entries
from reconciler.app.ports import FleetRequest
from reconciler.cli.completion import node_names
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import Since, spec_options
from reconciler.cli.terminal import show
from reconciler.model.records import JournalEntry
from reconciler.render.text import brief, plain

_DETAIL = 400  # characters


@click.command()
@click.argument("nodes", metavar="[NODE]...", nargs=-1, shell_complete=node_names)
@click.option("-f", "--follow", is_flag=True, help="Go on with each entry that is written, until Ctrl-C.")
@click.option("--last", type=click.IntRange(1, 100_000), default=50, show_default=True, metavar="N",
              help="Number of entries, the newest.")  # fmt: skip
@click.option(
    "--since",
    type=Since(),
    metavar="TIME",
    help="Of those, the ones since 2h or 3d ago, or since 2026-11-21T03:00 (UTC).",
)
@spec_options()
@click.option("-o", "--output", type=click.Choice(["human", "json"]), default="human", show_default=True,
              help="json: one object a line.")  # fmt: skip
def logs(
    request: FleetRequest,
    nodes: tuple[str, ...],
    follow: bool,
    last: int,
    since: timedelta | datetime | None,
    output: str,
) -> None:
    """Print the journal of the fleet, or of nodes: what was begun, how it ended, holds, drift, gates, a line each.

    `history NODE` tells the same of one node in whole sentences, with commit and plan.
    """
    for page in entries(workspace_for(request), nodes, last, since, follow=follow):
        if output == "json":
            rows = [json.dumps({"id": number, **asdict(entry)}, default=datetime.isoformat) for number, entry in page]
        else:
            rows = list(lines(entry for _, entry in page))
        if rows and not show("".join(f"{row}\n" for row in rows), output):
            return


def lines(entries: Iterable[JournalEntry]) -> Iterator[str]:
    """Yield a line for each entry: when, node, what, and what is to be said of it.

    Values that are as desired again share a line where they are of one node and instant: a reimage heals dozens.
    """
    for (at, node, event, healed), group in groupby(entries, lambda one: (one.at, one.node, one.event, _healed(one))):
        same = list(group)
        for entry in same[:1] if healed else same:
            detail = f"{len(same)} values as desired again" if healed and len(same) > 1 else entry.detail
            said = (f"{at:%Y-%m-%d %H:%M:%S}", node or "-", event, entry.action, brief(detail))
            yield plain("  ".join(part for part in said if part), _DETAIL)


def _healed(entry: JournalEntry) -> bool:
    return entry.event == "drift" and "since" in entry.evidence
