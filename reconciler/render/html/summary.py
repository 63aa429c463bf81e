"""The fleet as a whole, in the words of the other renderers: the verdict first, then the trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.model.period_report import PeriodReport
from reconciler.model.status import NodeStatus
from reconciler.render import drift, plan, rollouts
from reconciler.render.html.material import Material
from reconciler.render.markdown import Cell
from reconciler.render.period_report import sections
from reconciler.render.text import NodeNames, clock, count, plain, source, stop, warnings

NAMES: Final = 90  # characters of a list of nodes
ROWS: Final = 60  # of one table
_LONG: Final = 900


@dataclass(frozen=True, slots=True)
class Alert:
    """A sentence above all else. `grave`: a person must look."""

    text: str
    grave: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """How many nodes have a status. On the page it filters by this status, too."""

    status: str
    label: str
    meaning: str
    count: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `find`: per row, the text that finds its nodes on the map, or ""; `left_out`: rows not shown."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    find: list[str]
    left_out: int


_MEANING: Final = {
    NodeStatus.CONVERGED: "as specified",
    NodeStatus.ACTING: "an action runs",
    NodeStatus.PLANNED: "the next run acts on it",
    NodeStatus.WAITING: "goes by itself, later",
    NodeStatus.BLOCKED: "a person must look",
    NodeStatus.HELD: "by a hold or a stop",
    NodeStatus.SET_ASIDE: "quarantined or retired",
    NodeStatus.UNKNOWN: "too little could be read",
}


def tiles(material: Material) -> list[Tile]:
    found = Counter(material.statuses.values())
    return [Tile(s.value, s.value.replace("_", " "), meaning, found[s]) for s, meaning in _MEANING.items()]


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def alerts(material: Material) -> Iterator[Alert]:
    made = material.plan
    refused = (f"REFUSED: {sentence}" for sentence in made.refused)
    for line in (*stop(made.stopped, made.braked), *plan.isolation(made), *refused):
        yield Alert(plain(line, _LONG), grave=True)
    for rollout in made.rollouts:
        if rollout.halted:
            yield Alert(plain(f"Rollout of pool {rollout.pool} HALTED: {rollout.halted}", _LONG), grave=True)
    for line in (*made.notes, *warnings(made.insecure, made.time_scale)):
        yield Alert(plain(line, _LONG), grave=line.startswith("INSECURE"))


def facts(material: Material) -> list[tuple[str, str]]:
    made, seen = material.plan, material.observation
    return [
        ("Spec", plain(source(made.source), 200)),
        ("Observed", f"{clock(seen.started_at)} to {seen.finished_at:%H:%M:%S}"),
        ("Scope", f"{made.scope.selected:,} of {count(made.scope.total, 'node')}"),
        ("Plan", f"{plain(made.id)}, fingerprint {plain(made.fingerprint[:12])}"),
        ("Made", f"{clock(material.now)} by reconciler {material.tool_version}"),
    ]


def differences(material: Material) -> list[Table]:
    sections = drift.sections(drift.grouped(material.drift.items))
    found = []
    for section in sections:
        path = section.head.index("path") if "path" in section.head else None
        found.append(_table(section.title, section.head, section.rows, path))
    return found


def dangerous(material: Material) -> Table:
    red = plan.dangerous(material.plan)
    rows = [(name, NodeNames(tuple(nodes))) for name, nodes in red.items()]
    return _table("Reboots, flashes and reimages", ("action", "nodes"), rows)


def held_back(material: Material) -> Table:
    waiting = [node for node in material.plan.nodes.values() if node.blocked is not None]
    rows: list[tuple[Cell, ...]] = [
        (NodeNames(tuple(nodes)), *others) for nodes, *others in plan.blocked(waiting, material.plan)
    ]
    return _table("Held back, and why", plan.HELD, rows)


def budgets(material: Material) -> list[str]:
    return [plain(line, _LONG) for line in plan.budget(material.plan)]


def rollout_words(material: Material) -> list[tuple[str, list[str], list[str]]]:
    """Return for each rollout its title, the changes and the notes."""
    return [
        (
            plain(rollouts.title(each), _LONG),
            [plain(line, _LONG) for line in rollouts.changes(each)],
            [plain(line, _LONG) for line in rollouts.notes(each)],
        )
        for each in material.plan.rollouts
    ]


def past(report: PeriodReport) -> list[Table]:
    """Return the other tables of `report`."""
    return [_table(each.title, each.head, each.rows) for each in sections(report) if each.rows]


def _table(title: str, head: tuple[str, ...], rows: Sequence[Sequence[Cell]], find: int | None = None) -> Table:
    """Return a table without the columns that are empty in all rows."""
    used = [at for at in range(len(head)) if any(str(row[at]) for row in rows)]
    shown = rows[:ROWS]
    cells = [tuple(_cell(row[at]) for at in used) for row in shown]
    found = ["" if find is None else str(row[find]) for row in shown]
    return Table(title, tuple(head[at] or "what" for at in used), cells, found, len(rows) - len(shown))


def _cell(said: Cell) -> str:
    return said.within(NAMES) if isinstance(said, NodeNames) else plain(said, _LONG)
