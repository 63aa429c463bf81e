"""reconciler history"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from reconciler.cli.commands.hold import check_subject, endpoints, ledger, session_for, spec
from reconciler.cli.options import output_option
from reconciler.cli.terminal import show


@click.command()
@click.argument("node")
@click.option("--last", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="How many entries.")
@spec
@ledger
@endpoints
@output_option
def history(node: str, last: int, spec: Path, ledger: str | None, endpoints: Path | None, output: str) -> None:
    """Tell a node's story: what was found, what was done to it, by which run, plan and commit."""
    from reconciler.render.tables import markdown_table, table
    from reconciler.render.text import brief, clock, markdown, plain, warnings

    session = session_for(spec, ledger, endpoints)
    with session.ledger() as book:
        entries = book.history(node, last)
    if not entries:
        check_subject(session.fleet, node)
        click.echo(f"{node}: nothing is recorded yet", err=True)
    if output == "json":
        click.echo(json.dumps([asdict(entry) for entry in entries], default=lambda at: at.isoformat(), indent=1))
        return
    rows = [(clock(e.at), e.event, e.action, e.detail, e.commit[:12], e.run) for e in entries]
    head = ("when", "what", "action", "detail", "commit", "run")
    if output == "markdown":
        click.echo("\n".join(markdown_table(head, [tuple(markdown(cell, 300) for cell in row) for row in rows])))
    elif rows:
        told = table(head, [tuple(plain(brief(cell), 160) for cell in row) for row in _once(rows)])
        show("\n".join([*warnings((), session.time_scale), *told, ""]))


def _once(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Commit and run where they change: a run leaves many rows in a row."""
    before: list[tuple[str, ...]] = [(), *rows]
    return [row if row[-2:] != last[-2:] else (*row[:-2], "", "") for last, row in zip(before, rows, strict=False)]
