"""Edit the text of a CSV inventory: set cells, remove rows. All other lines stay as they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping


class Table:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self.columns = _cells(self._lines[0])

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def row(self, name: str) -> dict[str, str] | None:
        """Return the cells of a node that are not empty, by column; None when it has no row."""
        at = self._find(name)
        if at is None:
            return None
        return {column: cell for column, cell in zip(self.columns, _cells(self._lines[at]), strict=False) if cell}

    def set(self, name: str, column: str, value: str) -> Table:
        """Return the table with one cell set. Raise KeyError without such a row or column."""
        at = self._find(name)
        if at is None or column not in self.columns:
            raise KeyError(column)
        return self._changed(at, _put(self._lines[at], self.columns.index(column), value))

    def without(self, name: str) -> Table:
        return self._changed(self._find(name), None)

    def with_row(self, cells: Mapping[str, str]) -> Table:
        """Return the table with one more row at its end. Raise KeyError where it has no column for a cell."""
        if missing := cells.keys() - set(self.columns):
            raise KeyError(min(missing))
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow([cells.get(column, "") for column in self.columns])
        end = "\r" if self._lines[0].endswith("\r") else ""
        last = len(self._lines)
        while last > 1 and not self._lines[last - 1].strip():
            last -= 1
        return Table("\n".join([*self._lines[:last], text.getvalue() + end, *(self._lines[last:] or [""])]))

    def _find(self, name: str) -> int | None:
        own = self.columns.index("name")
        rows = ((at, _cells(line)) for at, line in enumerate(self._lines[1:], 1) if line.strip())
        return next((at for at, cells in rows if cells[own] == name), None)

    def _changed(self, at: int | None, line: str | None) -> Table:
        if at is None:
            raise KeyError(at)
        return Table("\n".join([*self._lines[:at], *([] if line is None else [line]), *self._lines[at + 1 :]]))


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
