"""Count the nodes that are out of service at once, so that tests can compare the peak with a budget.

A node counts from the moment it leaves service until it serves again. A node that never served does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Peak:
    """The most members of one group that were out of service at once, and when that was first reached."""

    most: int = 0
    at: float = 0.0
    nodes: list[str] = field(default_factory=list)


class Outages:
    """`groups`: node -> groups it counts in, such as "fleet", "pool train-1", "rack r1". Other nodes don't count."""

    def __init__(self, groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = groups
        self._served: set[str] = set()
        self._out: dict[str, set[str]] = {group: set() for found in groups.values() for group in found}
        self._peaks = {group: Peak() for group in self._out}

    def record(self, node: str, serves: bool, now: float) -> None:
        """Record whether a node is in service at `now`."""
        if serves:
            self._served.add(node)
        for group in self._groups.get(node, ()):
            out, peak = self._out[group], self._peaks[group]
            if serves:
                out.discard(node)
            elif node in self._served:
                out.add(node)
            if len(out) > peak.most:
                peak.most, peak.at, peak.nodes = len(out), now, sorted(out)

    def dump(self) -> dict[str, Any]:
        """Return for each group the nodes that are out of service now, and the peak since the lab began."""
        return {group: {"now": sorted(self._out[group]), **asdict(peak)} for group, peak in self._peaks.items()}
