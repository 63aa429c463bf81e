"""Counts over a fleet that are kept as nodes change: each is what counting all nodes anew would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Tally(Generic[K]):
    """How many nodes have each key. Iterating yields the keys that some node has."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[K, ...]] = {}
        self._counts: Counter[K] = Counter()

    def take(self, node: str, keys: tuple[K, ...]) -> None:
        """Take what a node has now, in place of what it had."""
        had = self._of.get(node, ())
        if had == keys:
            return
        self._of[node] = keys
        self._counts.update(keys)
        self._forget(had)

    def keep(self, nodes: Container[str]) -> None:
        """Forget all nodes but these."""
        for node in [node for node in self._of if node not in nodes]:
            self._forget(self._of.pop(node))

    def _forget(self, keys: tuple[K, ...]) -> None:
        for key in keys:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._counts)

    def count(self, key: K) -> int:
        return self._counts[key]
