"""ports.Watch on the lab's cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping

from reconciler.lab.hardware.control_plane import ClusterTruth, Gone, NodeObject, WatchEvent
from reconciler.lab.hardware.kernel_log import EVENTS
from reconciler.lab.hardware.machine import Machine
from reconciler.model.observed import UNSCHEDULABLE
from reconciler.model.own_writes import OwnWrites
from reconciler.model.ports import Clock, Watch

_ABOUT = re.compile(r"NVRM: Xid|fallen off|" + "|".join(re.escape(line) for _, line in EVENTS.values()))
POLL_S = 2.0  # ClusterTruth advances when it is read


class TruthWatch:
    """`own`: writes that are no news."""

    def __init__(self, truth: ClusterTruth, clock: Clock, own: OwnWrites | None = None) -> None:
        self._truth = truth
        self._clock = clock
        self._own = own or OwnWrites()

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:
        """Yield changed nodes, all when the history is lost. Changed annotations do not count, as on the wire."""
        revision, silent = self._truth.revision, False
        known = self._now()
        while True:
            await self._clock.sleep(POLL_S)
            if self._truth.down is not silent:
                silent = self._truth.down
                tell("the API server does not answer" if silent else "")
            if silent:
                continue
            news: dict[str, None] = {}
            try:
                for event in self._truth.events_since(revision):
                    self._take(event, known, news)
            except Gone:
                before, known = known, self._now()
                news = {name: None for name in {**before, **known} if before.get(name) != known.get(name)}
            revision = self._truth.revision
            for name in news:
                yield name

    def _now(self) -> dict[str, object]:
        return {node.name: _state(node) for node in self._truth.nodes()}

    def _take(self, event: WatchEvent, known: dict[str, object], news: dict[str, None]) -> None:
        node = event.object
        if not isinstance(node, NodeObject):
            return
        before, now = known.pop(node.name, None), None
        if event.type != "DELETED":
            now = known[node.name] = _state(node)
        if before != now and str(event.revision) not in self._own:
            news[node.name] = None


class LogWatch:
    """The kernel logs of machines that run a system. `texts`: what a fleet's own rows look for, in lower case."""

    def __init__(
        self, machines: Mapping[str, Machine], clock: Clock, texts: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._texts = texts
        self._machines = machines
        self._clock = clock

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:  # noqa: ARG002
        """Yield the nodes whose log has a new line about hardware."""
        known = {name: self._lines(name) for name in self._machines}
        while True:
            await self._clock.sleep(POLL_S)
            for name in self._machines:
                before, now = known[name], self._lines(name)
                if now == before:
                    continue
                known[name] = now
                new = now[len(before) if now[: len(before)] == before else 0 :]
                if any(map(_ABOUT.search, new)) or any(text in line.lower() for line in new for text in self._texts()):
                    yield name

    def _lines(self, name: str) -> list[str]:
        system = self._machines[name].state.os
        return [] if system is None else list(system.kernel_log)


class EventWatch:
    """The events of BMCs that answer, as the wire's driver takes them: what is OK is no news."""

    def __init__(self, machines: Mapping[str, Machine], clock: Clock) -> None:
        self._machines = machines
        self._clock = clock

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:  # noqa: ARG002
        """Yield the nodes whose BMC has logged a new event that is not OK."""
        known = {name: len(machine.state.events) for name, machine in self._machines.items()}
        while True:
            await self._clock.sleep(POLL_S)
            for name, machine in self._machines.items():
                events = machine.state.events
                new = events[known[name] :]  # none of a log that was cleared
                known[name] = len(events)
                if any(event["severity"] != "OK" for event in new) and machine.bmc_up:
                    yield name


def _state(node: NodeObject) -> object:
    taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE)
    return node.uid, node.unschedulable, node.ready, dict(node.labels), taints, dict(node.conditions)


_: type[Watch] = TruthWatch
_l: type[Watch] = LogWatch
_e: type[Watch] = EventWatch
