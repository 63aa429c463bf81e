"""Plain-text tables: columns as wide as their content, the last one free. Widths count terminal cells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from reconciler.render.text import plain

_CELL = 4000  # characters


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Return the lines of a table, one for each row, whatever its cells hold. Columns without content are left out."""
    rows = [[plain(cell, _CELL) for cell in row] for row in rows]
    used = [at for at in range(len(head)) if any(row[at] for row in rows)]
    lines = [[head[at] for at in used], *([row[at] for at in used] for row in rows)]
    widths = [max(cell_len(line[at]) for line in lines) for at in range(len(used))]
    return [
        (
            indent + "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table. Cells must be escaped already."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + " --- |" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
