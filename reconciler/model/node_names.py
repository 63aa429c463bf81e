"""Names of nodes in a text: runs of them are folded, and a list is cut where there is no more room."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


def fold(names: Iterable[str]) -> str:
    """Return node names with runs folded: gpu-a[001-003,007], gpu-b001."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    others: list[str] = []
    for name in names:
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
        if match is None:
            others.append(name)
        else:
            groups.setdefault((match[1], len(match[2]), match[3]), []).append(int(match[2]))
    folded = []
    for (prefix, width, suffix), numbers in groups.items():
        runs = _runs(sorted(set(numbers)))
        parts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs]
        single = len(parts) == 1 and "-" not in parts[0]
        folded.append(f"{prefix}{parts[0]}{suffix}" if single else f"{prefix}[{','.join(parts)}]{suffix}")
    return ", ".join([*folded, *sorted(others)])


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The names of nodes, of which a list may have room for some only."""

    nodes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        return fold(self.nodes) + (f" ({len(self)})" if len(self) > 1 else "")

    def within(self, limit: int) -> str:
        """Return folded names: as many whole ones as fit into `limit` characters, and the number of the others."""
        if len(whole := str(self)) <= limit:
            return whole
        fewest, most = 0, min(len(self) - 1, limit)
        while fewest < most:
            middle = (fewest + most + 1) // 2
            fewest, most = (middle, most) if len(self._first(middle)) <= limit else (fewest, middle - 1)
        return self._first(fewest)

    def _first(self, number: int) -> str:
        if not number:
            return count(len(self), "node")
        return f"{fold(self.nodes[:number])} and {len(self) - number:,} more"


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
