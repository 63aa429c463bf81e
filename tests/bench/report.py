"""The results of a section, as a text table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """A table. The first column holds text, the others figures. None: does not apply."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float | int | None, ...]]
    notes: tuple[str, ...] = field(default=())

    def text(self) -> str:
        cells = [self.columns, *(tuple(map(show, row)) for row in self.rows)]
        widths = [max(len(row[at]) for row in cells) for at in range(len(self.columns))]
        lines = [_line(row, widths) for row in cells]
        return "\n".join([self.title, _rule(widths), lines[0], _rule(widths), *lines[1:], *map(_note, self.notes)])

    def json(self) -> dict[str, Any]:
        return asdict(self)


def show(cell: str | float | int | None) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.3g}" if abs(cell) < 1 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    first, *others = (
        text.ljust(width) if at == 0 else text.rjust(width)
        for at, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()


def _rule(widths: list[int]) -> str:
    return "-" * (sum(widths) + 2 * (len(widths) - 1))


def _note(text: str) -> str:
    return f"  * {text}"
