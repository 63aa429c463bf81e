"""The tables of actions against the points at which a run of them dies: of a K3s cluster, and of a serving group.

A row is an action in a stage of the cluster's life, a column a kind of call after which the run dies. Of each call that
an action makes, the first one, the last one and one between are played.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conftest import ROOT
from tests.faults import cluster_life, serving_life
from tests.faults.cluster_life import Point, Stage

NODES: Final = 5  # three servers and two agents
COLUMNS: Final[Mapping[str, Callable[[Point], bool]]] = {
    "intent": lambda at: (at.port, at.call) == ("ledger", "begin"),
    "host": lambda at: at.port == "host",
    "BMC": lambda at: at.port == "bmc",
    "cluster": lambda at: at.port == "cluster",
    "Helm": lambda at: at.port == "helm",
    "installer": lambda at: at.port == "installer",
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


@dataclass(frozen=True)
class Lives:
    """What is lived stage by stage. `calls_of` plays a stage undisturbed, `interrupted` kills its runs after calls."""

    name: str
    stages: Mapping[str, Stage]
    calls_of: Callable[[str], Sequence[Point]]
    interrupted: Callable[..., list[str]]

    @property
    def page(self) -> Path:
        return ROOT / f"docs/reference/{self.name}-matrix.md"

    @property
    def mark(self) -> str:
        return f"<!-- python -m tests.faults {self.name} -->"

    def undisturbed_of(self, stage: str) -> list[Cell]:
        """Return the cells of a stage, which are not played yet."""
        return points(stage, self.calls_of(stage), self.stages[stage].actions)

    def undisturbed(self) -> dict[str, list[Cell]]:
        return {stage: self.undisturbed_of(stage) for stage in self.stages}

    def played(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        for cell in cells:
            yield Cell(cell.stage, cell.point, cell.at, tuple(self.interrupted(cell.stage, cell.at)))

    def table(self, cells: Iterable[Cell]) -> list[str]:
        """Return the lines of the table in Markdown, without columns that no cell is in."""
        rows: dict[tuple[str, str], dict[str, str]] = {}
        for cell in cells:
            stage, action, column = cell.place
            row = rows.setdefault((stage, action), {})
            row[column] = "broke" if cell.wrong or row.get(column) == "broke" else "✓"
        columns = [name for name in COLUMNS if any(name in row for row in rows.values())]
        lines = [f"| stage | action | {' | '.join(columns)} |", "|" + "---|" * (2 + len(columns))]
        order = list(self.stages)
        for (stage, action), row in sorted(rows.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
            name = action if " " in action else f"`{action}`"
            lines.append(f"| {stage} | {name} | {' | '.join(row.get(column, '') for column in columns)} |")
        return lines

    def on_page(self) -> list[str]:
        """Return the lines of the table as the documentation has it."""
        return self.page.read_text().partition(self.mark)[2].strip().splitlines()

    def write(self, lines: Sequence[str]) -> None:
        before = self.page.read_text().partition(self.mark)[0]
        self.page.write_text(before + self.mark + "\n\n" + "\n".join(lines) + "\n")


def column_of(point: Point) -> str:
    return next(name for name, fits in COLUMNS.items() if fits(point))


def points(stage: str, calls: Sequence[Point], only: Collection[str]) -> list[Cell]:
    """Return the cells of a stage: of equal calls of an action the first, the last and one between."""
    found: dict[Point, list[int]] = defaultdict(list)
    for at, point in enumerate(calls, start=1):
        if not only or point.action in only:
            found[point].append(at)
    chosen = {at: point for point, ats in found.items() for at in (ats[0], ats[len(ats) // 2], ats[-1])}
    return [Cell(stage, point, at) for at, point in sorted(chosen.items())]


CLUSTER: Final = Lives(
    "cluster",
    cluster_life.STAGES,
    lambda stage: cluster_life.calls_of(stage, NODES),
    lambda stage, *calls: cluster_life.interrupted(stage, NODES, *calls),
)
SERVING: Final = Lives("serving", serving_life.STAGES, serving_life.calls_of, serving_life.interrupted)
