"""The table of a cluster's actions against the points at which a run of them dies.

A row is an action in a stage of the cluster's life, a column a kind of call after which the run dies. Of each call that
an action makes, the first one, the last one and one between are played.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conftest import ROOT
from tests.faults.cluster_life import STAGES, Point, calls_of, interrupted

PAGE: Final = ROOT / "docs/reference/cluster-matrix.md"
NODES: Final = 5  # three servers and two agents
MARK: Final = "<!-- python -m tests.faults cluster -->"
COLUMNS: Final[Mapping[str, Callable[[Point], bool]]] = {
    "intent": lambda at: (at.port, at.call) == ("ledger", "begin"),
    "host": lambda at: at.port == "host",
    "BMC": lambda at: at.port == "bmc",
    "cluster": lambda at: at.port == "cluster",
    "Helm": lambda at: at.port == "helm",
    "outcome": lambda at: (at.port, at.call) == ("ledger", "finish"),
    "ledger": lambda at: at.port == "ledger" and at.call not in ("begin", "finish"),
}


@dataclass(frozen=True)
class Cell:
    """A run of a stage that dies after its `at`-th call, and the one that goes on. `wrong`: what is not as it must."""

    stage: str
    point: Point
    at: int
    wrong: Sequence[str] = ()

    @property
    def place(self) -> tuple[str, str, str]:
        """Stage, action and column."""
        return self.stage, self.point.action, column_of(self.point)


def column_of(point: Point) -> str:
    return next(name for name, fits in COLUMNS.items() if fits(point))


def points(stage: str, calls: Sequence[Point]) -> list[Cell]:
    """Return the cells of a stage: of equal calls of an action the first, the last and one between."""
    found: dict[Point, list[int]] = defaultdict(list)
    only = STAGES[stage].actions
    for at, point in enumerate(calls, start=1):
        if not only or point.action in only:
            found[point].append(at)
    chosen = {at: point for point, ats in found.items() for at in (ats[0], ats[len(ats) // 2], ats[-1])}
    return [Cell(stage, point, at) for at, point in sorted(chosen.items())]


def played(cells: Iterable[Cell]) -> Iterator[Cell]:
    for cell in cells:
        yield Cell(cell.stage, cell.point, cell.at, tuple(interrupted(cell.stage, NODES, cell.at)))


def undisturbed() -> dict[str, list[Cell]]:
    """Return the cells of every stage, which are not played yet."""
    return {stage: points(stage, calls_of(stage, NODES)) for stage in STAGES}


def table(cells: Iterable[Cell]) -> list[str]:
    """Return the lines of the table in Markdown."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for cell in cells:
        stage, action, column = cell.place
        row = rows.setdefault((stage, action), {})
        row[column] = "broke" if cell.wrong or row.get(column) == "broke" else "✓"
    lines = [f"| stage | action | {' | '.join(COLUMNS)} |", "|" + "---|" * (2 + len(COLUMNS))]
    for (stage, action), row in sorted(rows.items(), key=lambda item: (list(STAGES).index(item[0][0]), item[0][1])):
        name = action if " " in action else f"`{action}`"
        lines.append(f"| {stage} | {name} | {' | '.join(row.get(column, '') for column in COLUMNS)} |")
    return lines


def on_page(page: Path = PAGE) -> list[str]:
    """Return the lines of the table as the documentation has it."""
    return page.read_text().partition(MARK)[2].strip().splitlines()


def write(lines: Sequence[str], page: Path = PAGE) -> None:
    before = page.read_text().partition(MARK)[0]
    page.write_text(before + MARK + "\n\n" + "\n".join(lines) + "\n")
