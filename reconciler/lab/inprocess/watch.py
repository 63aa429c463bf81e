"""ports.Watch on the lab's cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from reconciler.lab.hardware.control_plane import ClusterTruth, Gone, NodeObject
from reconciler.model.ports import Clock, Watch

POLL_S = 2.0  # ClusterTruth advances when it is read


class TruthWatch:
    def __init__(self, truth: ClusterTruth, clock: Clock) -> None:
        self._truth = truth
        self._clock = clock

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:
        """Yield changed nodes, all when the history is lost. Changed annotations do not count, as on the wire."""
        revision, silent = self._truth.revision, False
        known = {node.name: _state(node) for node in self._truth.nodes()}
        while True:
            await self._clock.sleep(POLL_S)
            if self._truth.down is not silent:
                silent = self._truth.down
                tell("the API server does not answer" if silent else "")
            if silent:
                continue
            try:
                events = self._truth.events_since(revision)
                touched = [event.object.name for event in events if isinstance(event.object, NodeObject)]
            except Gone:
                touched = [*known, *(node.name for node in self._truth.nodes())]
            revision = self._truth.revision
            now = {node.name: _state(node) for node in self._truth.nodes()}
            for name in dict.fromkeys(touched):
                if known.get(name) != now.get(name):
                    yield name
            known = now


def _state(node: NodeObject) -> tuple[object, ...]:
    return node.uid, node.unschedulable, node.ready, dict(node.labels), node.taints, dict(node.conditions)


_: type[Watch] = TruthWatch
