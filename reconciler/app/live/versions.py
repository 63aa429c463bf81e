"""Versions of the lines of a fleet, so that a reader is sent what has changed since it last asked, and no more."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.model.live import NodeLine


@dataclass(frozen=True, slots=True)
class News:
    """`version`: to ask with the next time. `whole`: `lines` are all there are."""

    version: str
    whole: bool
    lines: tuple[NodeLine, ...]
    gone: tuple[str, ...]


class LineVersions:
    """The lines as they were last told, each with the number of the change that it came with.

    A version names this object, too: one that another process gave is never taken for ours.
    """

    def __init__(self) -> None:
        self._own = uuid.uuid4().hex[:12]
        self._number = 0
        self._lines: dict[str, tuple[NodeLine, int]] = {}
        self._gone: dict[str, int] = {}

    def take(self, lines: Mapping[str, NodeLine]) -> None:
        """Take the lines of now; unchanged ones keep their number."""
        number = self._number + 1
        known = self._lines
        newer = {
            name: (line, number)
            for name, line in lines.items()
            if (old := known.get(name)) is None or (old[0] is not line and old[0] != line)
        }
        gone = known.keys() - lines.keys()
        if not newer and not gone:
            return
        self._number = number
        self._lines = {name: newer.get(name) or known[name] for name in lines}
        self._gone = {name: at for name, at in self._gone.items() if name not in lines} | dict.fromkeys(gone, number)

    def since(self, version: str) -> News:
        """Return the lines that a reader of `version` lacks; all of them when it is not one of ours."""
        own, _, text = version.partition("-")
        seen = int(text) if own == self._own and text.isdecimal() else -1
        whole = not 0 <= seen <= self._number
        lines = [line for line, at in self._lines.values() if whole or at > seen]
        gone = () if whole else tuple(name for name, at in self._gone.items() if at > seen)
        return News(f"{self._own}-{self._number}", whole, tuple(lines), gone)
