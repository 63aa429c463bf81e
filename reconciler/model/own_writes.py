"""The writes on node objects that this process has made, so that a watch does not report them as news."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_MOST = 10_000  # a watch is never that far behind


class OwnWrites:
    """The resourceVersions of our latest writes. No two writes in a cluster have the same."""

    def __init__(self) -> None:
        self._versions: dict[str, None] = {}  # oldest first
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def to(self, node: str) -> Iterator[None]:
        """Note that a write to this node is under way: its event may come before its answer."""
        self._under_way[node] += 1
        try:
            yield
        finally:
            self._under_way[node] -= 1

    def are_under_way(self, node: str) -> bool:
        return self._under_way[node] > 0

    def add(self, resource_version: str) -> None:
        self._versions[resource_version] = None
        if len(self._versions) > _MOST:
            del self._versions[next(iter(self._versions))]

    def __contains__(self, resource_version: str) -> bool:
        return resource_version in self._versions
