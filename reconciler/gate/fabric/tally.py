"""Count runs by node and partner."""

from __future__ import annotations

from collections import defaultdict
from typing import Final


class Counts(dict[str, int]):
    """Runs by partner. Made much faster than a Counter, which thousands of nodes and links would feel."""

    def __missing__(self, partner: str) -> int:
        return 0

    def total(self) -> int:
        return sum(self.values())


Tally = defaultdict[str, Counts]  # node -> partner -> runs
NONE: Final = Counts()


def counts_of(tally: Tally, node: str) -> Counts:
    """Return what a tally has of a node, without an entry for one that it has nothing of."""
    return tally.get(node, NONE)
