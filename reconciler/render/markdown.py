"""Markdown for a comment: whole elements only, and fewer of them where a comment would grow too long.

Callers hand over plain text, which is escaped here: strings of BMCs and nodes are untrusted (conventions R7). A
document is a function that is called with one writer after another, each of a stricter level, until its text fits.
Every element is bounded by the level, so that the last one always fits (DESIGN section 10, conventions R5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from reconciler.render.tables import markdown_table
from reconciler.render.text import NodeNames, count, html, markdown, plain

CHARACTERS: Final = 60_000  # of a comment, of which GitHub takes 65,536
SUMMARY: Final = 225_000  # of a job's summary, of which it takes a mebibyte

Cell = str | NodeNames


@dataclass(frozen=True, slots=True)
class Level:
    """The amount of detail that a document may have."""

    rows: int  # of one table, and entries of one list
    cell: int  # characters of one value or sentence
    names: int  # characters of one list of node names
    diffs: bool  # what becomes of each value
    nodes: bool  # what is done to each node
    all: bool = True  # more than what every report must have


FULL: Final = Level(4000, 1000, 20_000, diffs=True, nodes=True)  # for what has more room than a comment
LEVELS: Final = (
    Level(400, 400, 700, diffs=True, nodes=True),  # longer lists of names are read by nobody
    Level(150, 300, 500, diffs=False, nodes=True),
    Level(40, 200, 400, diffs=False, nodes=False),
    Level(10, 120, 200, diffs=False, nodes=False),
    Level(3, 80, 100, diffs=False, nodes=False, all=False),
)


class MarkdownWriter:
    """The Markdown of one document at one level. `cut`: the level left something out."""

    def __init__(self, level: Level, rest: str) -> None:
        self.level = level
        self.cut = level not in (FULL, LEVELS[0])
        self._rest = rest  # where all of it is
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def cell(self, content: Cell) -> str:
        if isinstance(content, NodeNames):
            return markdown(self.names(content), 2 * self.level.names)
        return markdown(content, self.level.cell)

    def names(self, nodes: NodeNames) -> str:
        """Return as many names as there is room for."""
        shown = nodes.within(self.level.names)
        self.cut |= shown != str(nodes)
        return shown

    def heading(self, text: str, depth: int = 3) -> None:
        self._lines += [f"{'#' * depth} {markdown(text, self.level.cell)}", ""]

    def paragraph(self, text: str, *, bold: bool = False) -> None:
        written = markdown(text, 3 * self.level.cell).strip()
        if written.startswith("/"):
            written = f"\\{written}"  # else GitLab does what the line says: it would be a quick action
        if written:
            self._lines += [f"**{written}**" if bold else written, ""]

    def raw(self, text: str) -> None:
        """Add Markdown as it is: text of our own, with nothing of a machine or a spec in it."""
        self._lines += [text, ""]

    def quoted_list(self, sentences: Iterable[str], alert: str = "") -> None:
        lines = [f"> - {sentence}" for sentence in self._some(sentences)]
        if lines:
            self._lines += [*([f"> [!{alert}]"] if alert else []), *lines, ""]

    def bullet_list(self, sentences: Iterable[str]) -> None:
        lines = [f"- {sentence}" for sentence in self._some(sentences)]
        self._lines += [*lines, ""] if lines else []

    def alert(self, kind: str, title: str, rows: Sequence[tuple[str, NodeNames]]) -> None:
        """Add a block that nobody overlooks, with a row for each consequence and its nodes."""
        if rows:
            lines = [f"> - **{self.cell(what)}**: {self._counted(who)}" for what, who in rows]
            self._lines += [f"> [!{kind}]", f"> {markdown(title, self.level.cell)}", ">", *lines, ""]

    def _counted(self, who: NodeNames) -> str:
        """Put the number first where a long list of names would hide it."""
        shown = self.cell(who)
        return f"{count(len(who), 'node')}: {shown}" if shown != markdown(str(who), 10_000) else shown

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Add a table, without columns that are empty in all rows. Rows beyond the level are only counted."""
        if not rows:
            return
        used = [at for at in range(len(head)) if any(row[at] for row in rows)]
        shown = rows[: self.level.rows]
        cells = [[self.cell(row[at]) or " " for at in used] for row in shown]
        self._lines += [*markdown_table([markdown(head[at]) for at in used], cells), ""]
        self.left_out(len(rows) - len(shown), "row")

    def fenced(self, language: str, lines: Sequence[str]) -> None:
        """Add a block of code, fenced with more backticks than any of its lines has in a row."""
        clean = [plain(line, 3 * self.level.cell) for line in lines]
        runs = [len(run) + 1 for line in clean for run in re.findall(r"`+", line)]
        fence = "`" * max([3, *runs])
        self._lines += [f"{fence}{language}", *clean, fence, ""]

    def log(self, text: str) -> None:
        """Add the last lines of a log."""
        lines = text.splitlines()
        self.fenced("text", lines[-self.level.rows :])
        self.left_out(len(lines) - self.level.rows, "line")

    def links(self, run: str, file: str = "") -> None:
        """Add links to the job, if its address is a URL, and to `file`, the full report among the job's artifacts."""
        if is_link(run):
            kept = f"; {file} is one of its artifacts" if file else ""
            self._lines += [f"<sub>[run]({run}){kept}</sub>", ""]

    @contextmanager
    def details(self, summary: str) -> Iterator[None]:
        """Fold what is written inside under a summary."""
        self._lines += [f"<details><summary>{html(summary, self.level.cell)}</summary>", ""]
        yield
        self._lines += ["</details>", ""]

    def footnote(self, parts: Iterable[str]) -> None:
        text = " · ".join(markdown(part, self.level.cell) for part in parts if part)
        self._lines += [f"<sub>{text}</sub>", ""]

    def _some(self, sentences: Iterable[str]) -> list[str]:
        """Return the entries of a list that fit. None of them begins with a space, which would make it code."""
        entries = list(sentences)
        shown = entries[: self.level.rows]
        if len(shown) < len(entries):
            self.cut = True
            shown.append(f"{len(entries) - len(shown):,} more; {self._rest}")
        return [written for entry in shown if (written := markdown(entry, 3 * self.level.cell).strip())]

    def left_out(self, number: int, noun: str, plural: str = "") -> None:
        """Say how many are left out, if any are, and where the reader finds them."""
        if number > 0:
            self.cut = True
            self._lines += [f"_{count(number, noun, plural)} more; {markdown(self._rest, 200)}_", ""]


@dataclass(frozen=True, slots=True)
class Written:
    text: str
    truncated: bool


def write(document: Callable[[MarkdownWriter], None], rest: str, *, most: int = CHARACTERS) -> Written:
    """Return the fullest form of at most that many characters. `rest`: where the reader finds all of it."""
    for level in LEVELS if most <= CHARACTERS else (FULL, *LEVELS):
        writer = MarkdownWriter(level, rest)
        document(writer)
        if fits(writer.text, most):
            break
    else:
        raise AssertionError("the last level is bounded")
    return Written(writer.text, writer.cut)


def fits(text: str, most: int) -> bool:
    """Return whether a text is short enough. It counts bytes too: a character has four at most."""
    return len(text) <= most and len(text.encode(errors="replace")) <= 4 * most


def is_link(url: str) -> bool:
    """Return whether a URL can be in Markdown as it is."""
    return re.fullmatch(r"https?://[\w.:/-]{1,300}", url, re.ASCII) is not None
