"""Meetings of nodes that are cut off from mains together, since they share outlets.

The one whose outlets are switched calls the others. Each is drained by work of its own, and waits in an action of its
own, so that nothing else is done to it; then all shut down, and the power of all goes and comes. Nothing of it outlives
the process: attempts in the journal do, and who finds his alone there plans anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SharedCut:
    """A cut to come. `node`: whose outlets are switched; `others`: who loses power with it.

    `ready`: those that are drained and wait; `off`: those that are shut down, too. `left`: who takes no part any more,
    with why. `called`: all are ready, and shut down now. `over`: the outlets give power, and are not switched again.
    """

    node: str
    others: tuple[str, ...]
    drains_s: float = 0.0  # how long their drains may take
    ready: set[str] = field(default_factory=set)
    off: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)
    called: bool = False
    over: bool = False

    def drop_out(self, node: str, why: str) -> None:
        self.left.setdefault(node, why)

    def awaits(self, node: str) -> bool:
        return node in self.others and node not in self.left and not self.over


@dataclass(slots=True)
class SharedCuts:
    """The meetings of a run, by the node whose outlets are switched."""

    _cuts: dict[str, SharedCut] = field(default_factory=dict)

    def begin(self, node: str, others: tuple[str, ...], drains_s: float) -> None:
        self.end(node)
        self._cuts[node] = SharedCut(node, others, drains_s)

    def end(self, node: str) -> tuple[str, ...]:
        """End the meeting of a node, if there is one, and return whom it still awaited."""
        cut = self._cuts.pop(node, None)
        if cut is None:
            return ()
        awaited = tuple(name for name in cut.others if cut.awaits(name))
        cut.over = True
        return awaited

    def about(self, node: str) -> SharedCut | None:
        """Return the meeting that a node has called, or is awaited at."""
        return self._cuts.get(node) or next((cut for cut in self._cuts.values() if cut.awaits(node)), None)

    def caller(self, node: str) -> str:
        """Return the node with which this one is to be cut off, "" when with none."""
        return next((cut.node for cut in self._cuts.values() if cut.awaits(node)), "")

    def drop_out(self, node: str, why: str) -> None:
        """Note that nobody works on a node any more, which may be awaited."""
        for cut in self._cuts.values():
            if cut.awaits(node):
                cut.drop_out(node, why)
