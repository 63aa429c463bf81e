"""Read CSV inventories: many nodes, one in each line, without settings of their own.

The rows do not pass through pydantic models, as 200,000 of them would take minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from io import StringIO
from typing import Final

from reconciler.model.desired import Endpoints, RootDisk
from reconciler.model.errors import Diagnostic, Position, did_you_mean
from reconciler.model.vocab import NodeState, Provision
from reconciler.spec.kinds.node_pool import NodePoolSpec
from reconciler.spec.node_source import NO_MACHINE, NORMALISERS, Expansion, NodeSource
from reconciler.spec.parse import DeclaredResource
from reconciler.strict_yaml.characters import check_line

COLUMNS: Final = ("name", "bmc", "host", "serial", "uuid", "hostname", "rootDisk", "state", "provision")

_MAX_LINE: Final = 8192  # characters; a row has a dozen cells, of addresses, names and serial numbers
_CELL = re.compile(r'("(?:[^"]|"")*"|[^,"]*)(,|$)')
_DOMAIN_COLUMN = re.compile(r"domains\.[a-z][a-z0-9-]*")


class RowPositions(Mapping[str, Position]):
    """The positions of the values of a row, by path. As a dict it would be the largest part of a node in memory."""

    __slots__ = ("_columns", "_file", "_line")

    def __init__(self, file: str, line: int, columns: tuple[tuple[str, int], ...]) -> None:
        self._file, self._line, self._columns = file, line, columns

    def __getitem__(self, path: str) -> Position:
        for known, column in self._columns:
            if known == path:
                return Position(self._file, self._line, column)
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class InventoryReader:
    """Reads one CSV file of a pool, and adds its problems to the expansion."""

    def __init__(self, pool: DeclaredResource[NodePoolSpec], file: str, expansion: Expansion) -> None:
        self._pool = pool
        self._file = file
        self._shared = expansion
        self._problems = expansion.problems
        self._columns: list[str] = []
        self._positions: dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] = {}  # most rows share theirs

    def read(self, text: str) -> list[NodeSource]:
        """Return the nodes of the file. Raise SpecTooLarge at the first row beyond what a spec may have."""
        lines = StringIO(text, newline="\n")  # as a list, 16 MiB of empty lines are 128 MiB
        if not self._header(next(lines, "").rstrip("\r\n")):
            return []
        nodes = []
        for number, line in enumerate(lines, 2):
            if line.strip():
                self._shared.allowance.take(1, Position(self._file, number, 1))
                node = self._row(number, line.rstrip("\r\n"))
                if node is not None:
                    nodes.append(node)
        return nodes

    def _note(self, line: int, column: int, problem: str, hint: str = "") -> None:
        self._problems.append(Diagnostic(Position(self._file, line, column), "", problem, hint))

    def _header(self, line: str) -> bool:
        before = len(self._problems)
        if len(line) > _MAX_LINE:
            self._note(1, 1, f"a line of more than {_MAX_LINE} characters")
            return False
        for name, start in _cells(line) or ():
            if name not in COLUMNS and not _DOMAIN_COLUMN.fullmatch(name):
                self._note(1, start, f"unknown column {name!r}", did_you_mean(name, (*COLUMNS, "domains.<label>")))
            elif name in self._columns:
                self._note(1, start, f"column {name!r} is listed twice")
            self._columns.append(name)
        if "name" not in self._columns:
            self._note(1, 1, "column 'name' is missing", "the first line names the columns")
        return len(self._problems) == before

    def _row(self, number: int, line: str) -> NodeSource | None:
        cells = _cells(line) if len(line) <= _MAX_LINE else []
        if cells is None or len(cells) != len(self._columns):
            found = "a quote is not closed" if cells is None else f"{len(cells)} cells for {len(self._columns)} columns"
            self._note(number, 1, found if cells != [] else f"a line of more than {_MAX_LINE} characters")
            return None
        values: dict[str, str] = {}
        domains = dict(self._pool.spec.domains)
        at = [("node", 1)]
        failed = False
        for column, (text, start) in zip(self._columns, cells, strict=True):
            if not text:
                continue
            try:
                check_line(text)
                if column.startswith("domains."):
                    domains[column[8:]] = text
                    continue
                values[column] = _CHECKS[column](text)
            except ValueError as error:
                self._note(number, start, str(error))
                failed = True
            if column in _PATHS:
                at.append((_PATHS[column], start))
        if "name" not in values and not failed:
            self._note(number, 1, "the node has no name")
            failed = True
        if not failed and "bmc" not in values and "host" not in values:
            self._note(number, 1, "the node has no address", "give bmc, host or both")
            failed = True
        if not failed and "provision" in values and "serial" not in values and "uuid" not in values:
            self._note(number, 1, *NO_MACHINE)
            failed = True
        positions = tuple(at)
        where = RowPositions(self._file, number, self._positions.setdefault(positions, positions))
        return None if failed else self._node(values, domains, where)

    def _node(self, values: Mapping[str, str], domains: Mapping[str, str], at: RowPositions) -> NodeSource:
        hostname = values.get("hostname")
        return NodeSource(
            name=values["name"],
            pool=self._pool.name,
            at=at["node"],
            endpoints=Endpoints(values.get("bmc"), values.get("host")),
            state=NodeState(values["state"]) if "state" in values else self._pool.spec.state,
            domains=self._shared.domains(domains),
            serial=values.get("serial"),
            uuid=values.get("uuid"),
            hostname=values["name"] if hostname == values["name"] else hostname,
            root_disk=RootDisk(serial=values["rootDisk"]) if "rootDisk" in values else None,
            provision=Provision(values["provision"]) if "provision" in values else None,
            provenance=at,
        )


def _cells(line: str) -> list[tuple[str, int]] | None:
    """Return the cells of a line, each with the column it starts in. None when a quote is not closed."""
    if '"' not in line:
        found, start = [], 1
        for cell in line.split(","):
            found.append((cell.strip(), start))
            start += len(cell) + 1
        return found
    quoted = []
    at = 0
    while True:
        match = _CELL.match(line, at)
        if match is None:
            return None
        text = match[1]
        quoted.append((text[1:-1].replace('""', '"') if text.startswith('"') else text.strip(), at + 1))
        if not match[2]:
            return quoted
        at = match.end()


def _one_of(words: type[StrEnum]) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in list(words):
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return check


_CHECKS: Final[Mapping[str, Callable[[str], str]]] = {
    **NORMALISERS,
    "state": _one_of(NodeState),
    "provision": _one_of(Provision),
}
_PATHS: Final = {
    "serial": "identity.serial",
    "uuid": "identity.uuid",
    "hostname": "host.hostname",
    "rootDisk": "image.root_disk",
    "provision": "provision",
}
