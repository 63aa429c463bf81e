"""The writes on node objects that this process has made, so that a watch does not report them as news."""

from __future__ import annotations

_MOST = 10_000  # a watch is never that far behind


class OwnWrites:
    """The resourceVersions of our latest writes. No two writes in a cluster have the same."""

    def __init__(self) -> None:
        self._versions: dict[str, None] = {}  # oldest first

    def add(self, resource_version: str) -> None:
        self._versions[resource_version] = None
        if len(self._versions) > _MOST:
            del self._versions[next(iter(self._versions))]

    def __contains__(self, resource_version: str) -> bool:
        return resource_version in self._versions
