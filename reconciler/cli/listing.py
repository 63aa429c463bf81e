"""Listings on stdout: a table for people and in Markdown, an array of objects in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from reconciler.cli.terminal import show
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import brief, markdown, plain, warnings


def print_listing(
    head: Sequence[str], rows: Sequence[Sequence[str | int]], output: str, *, empty: str, time_scale: float = 1.0,
    err: bool = False,
) -> None:  # fmt: skip
    """Print rows under a head, or `empty` for none. `err` prints a table for people to stderr."""
    if output == "json":
        show(json.dumps([dict(zip(head, row, strict=True)) for row in rows], indent=1) + "\n", output)
    elif not rows:
        show(f"{empty}\n", output)
    elif output == "markdown":
        cells = [tuple(markdown(str(cell), 300) for cell in row) for row in rows]
        show("\n".join([*markdown_table(head, cells), ""]), output)
    else:
        fitted = [tuple(plain(brief(str(cell)), 160) for cell in row) for row in rows]
        show("\n".join([*warnings((), time_scale), *table(head, fitted, indent=""), ""]), err=err)
