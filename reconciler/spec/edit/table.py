"""Edit the text of a CSV inventory: set cells, add and remove rows. All other lines stay as they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence


class Table:
    def __init__(self, text: str) -> None:
        self._lines: list[str | None] = list(text.split("\n"))  # None: taken out
        self.columns = _cells(text.split("\n", 1)[0])
        own = self.columns.index("name") if "name" in self.columns else 0
        self._at = dict[str, int]()  # name -> its first line
        for at, line in enumerate(text.split("\n")):
            if at and line.strip():
                self._at.setdefault(_cells(line)[own], at)

    @property
    def text(self) -> str:
        return "\n".join(line for line in self._lines if line is not None)

    def row(self, name: str) -> dict[str, str] | None:
        """Return the cells of a node that are not empty, by column; None when it has no row."""
        line = self._line(name)
        if line is None:
            return None
        return {column: cell for column, cell in zip(self.columns, _cells(line), strict=False) if cell}

    def set(self, name: str, column: str, value: str) -> None:
        """Set one cell. Raise KeyError without such a row or column."""
        line = self._line(name)
        if line is None or column not in self.columns:
            raise KeyError(column)
        self._lines[self._at[name]] = _put(line, self.columns.index(column), value)

    def remove(self, name: str) -> None:
        """Take the row of a node out. Raise KeyError without such a row."""
        self._lines[self._at.pop(name)] = None

    def add(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Add rows at the end, whose nodes are not looked for here. Raise KeyError without a column for a cell."""
        written = []
        for cells in rows:
            if missing := cells.keys() - set(self.columns):
                raise KeyError(min(missing))
            text = io.StringIO()
            csv.writer(text, lineterminator="").writerow([cells.get(column, "") for column in self.columns])
            written.append(text.getvalue() + ("\r" if (self._lines[0] or "").endswith("\r") else ""))
        last = len(self._lines)
        while last > 1 and not (self._lines[last - 1] or "").strip():
            last -= 1
        rest = [line for line in self._lines[last:] if line is not None]
        self._lines[last:] = [*written, *(rest or [""])]

    def _line(self, name: str) -> str | None:
        return self._lines[self._at[name]] if name in self._at else None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line.rstrip("\r")]))]


def _put(line: str, column: int, value: str) -> str:
    """Return the line with one cell changed. A line without quotes keeps its blanks."""
    end = "\r" if line.endswith("\r") else ""
    if '"' in line + value or "," in value:
        cells = _cells(line)
        cells[column] = value
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells)
        return text.getvalue() + end
    parts = line.removesuffix("\r").split(",")
    old = parts[column]
    parts[column] = old.replace(old.strip(), value) if old.strip() else value
    return ",".join(parts) + end
