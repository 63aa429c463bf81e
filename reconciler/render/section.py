"""A section of a report: a title, sentences and a table, for a terminal, Markdown and the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reconciler.render.markdown import Cell, MarkdownWriter
from reconciler.render.markdown import write as write_markdown
from reconciler.render.tables import table
from reconciler.render.text import NodeNames, plain


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    says: tuple[str, ...]
    head: tuple[str, ...] = ()
    rows: Sequence[Sequence[Cell]] = ()

    def lines(self, most: int, names: int, cell: int) -> list[str]:
        """Return it for a terminal: at most `most` rows; `names` and `cell` limit the characters of one cell."""
        lines = ["", self.title, *(f"  {plain(line, 400)}" for line in self.says)]
        rows = [
            [one.within(names) if isinstance(one, NodeNames) else plain(one, cell) for one in row]
            for row in self.rows[:most]
        ]
        lines += table(self.head, rows) if rows else []
        if len(self.rows) > most:
            lines.append(f"  and {len(self.rows) - most:,} more rows: --output json has all of them")
        return lines


def as_markdown(title: str, sentence: str, notes: Iterable[str], sections: Iterable[Section]) -> str:
    """Return a report of these sections as a document in Markdown."""
    told, parts = list(notes), list(sections)

    def body(writer: MarkdownWriter) -> None:
        writer.heading(title, 2)
        writer.paragraph(sentence[:1].upper() + sentence[1:] + ".", bold=True)
        writer.quoted_list(told)
        for section in parts:
            writer.heading(section.title)
            writer.bullet_list(section.says)
            writer.table(section.head, section.rows)

    return write_markdown(body, "`--output json` has all of it").text


def percent(share: float) -> str:
    """Return a percentage that is never rounded up: 99.999% is not all of the time."""
    return "100%" if share >= 1 else f"{math.floor(share * 10_000) / 100:.2f}%"
