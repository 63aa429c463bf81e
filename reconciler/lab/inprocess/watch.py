"""ports.Watch on the lab's cluster, on its kernel logs and on its BMCs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing

from reconciler.lab.hardware.control_plane import ClusterTruth, Gone, NodeObject, WatchEvent
from reconciler.lab.hardware.kernel_log import EVENTS
from reconciler.lab.hardware.machine import Machine
from reconciler.model.observed import UNSCHEDULABLE
from reconciler.model.own_writes import OwnWrites
from reconciler.model.ports import Clock, Watch

_ABOUT = re.compile(r"NVRM: Xid|fallen off|" + "|".join(re.escape(line) for _, line in EVENTS.values()))
POLL_S = 2.0  # ClusterTruth advances when it is read


async def _news(clock: Clock, look: Callable[[], Iterable[str]]) -> AsyncGenerator[str]:
    """Yield what looks find, one every few seconds."""
    while True:
        for name in await _found(clock, look):
            yield name


async def _found(clock: Clock, look: Callable[[], Iterable[str]]) -> list[str]:
    """Return what the first look finds that finds anything. Looks are taken by a timer, which wakes no task.

    Hours of virtual time are thousands of looks, and to wake a task for each costs more than all else that they do.
    """
    loop, pause_s = asyncio.get_running_loop(), clock.real_seconds(POLL_S)
    found: asyncio.Future[list[str]] = loop.create_future()
    timer: asyncio.TimerHandle

    def take() -> None:
        nonlocal timer
        if found.done():  # nobody waits any more
            return
        try:
            news = list(look())
        except Exception as error:  # noqa: BLE001 - raised where the news is awaited
            found.set_exception(error)
            return
        if news:
            found.set_result(news)
        else:
            timer = loop.call_later(pause_s, take)

    timer = loop.call_later(pause_s, take)
    try:
        return await found
    finally:
        timer.cancel()


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

        def look() -> Iterable[str]:
            nonlocal revision, silent, known
            if self._truth.down is not silent:
                silent = self._truth.down
                tell("the API server does not answer" if silent else "")
            if silent:
                return ()
            news: dict[str, None] = {}
            try:
                for event in self._truth.events_since(revision):
                    self._take(event, known, news)
            except Gone:
                before, known = known, self._now()
                news = {name: None for name in {**before, **known} if before.get(name) != known.get(name)}
            revision = self._truth.revision
            return news

        async with aclosing(_news(self._clock, look)) as names:
            async for name in names:
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
        known = {name: list(_lines(machine)) for name, machine in self._machines.items()}

        def look() -> Iterator[str]:
            for name, machine in self._machines.items():
                before, now = known[name], _lines(machine)
                if now == before:
                    continue
                known[name] = list(now)
                new = now[len(before) if now[: len(before)] == before else 0 :]
                if any(map(_ABOUT.search, new)) or any(text in line.lower() for line in new for text in self._texts()):
                    yield name

        async with aclosing(_news(self._clock, look)) as names:
            async for name in names:
                yield name


class EventWatch:
    """The events of BMCs that answer, as the wire's driver takes them: what is OK is no news."""

    def __init__(self, machines: Mapping[str, Machine], clock: Clock) -> None:
        self._machines = machines
        self._clock = clock

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:  # noqa: ARG002
        """Yield the nodes whose BMC has logged a new event that is not OK."""
        known = {name: len(machine.state.events) for name, machine in self._machines.items()}

        def look() -> Iterator[str]:
            for name, machine in self._machines.items():
                events = machine.state.events
                if len(events) == known[name]:
                    continue
                new = events[known[name] :]  # none of a log that was cleared
                known[name] = len(events)
                if any(event["severity"] != "OK" for event in new) and machine.bmc_up:
                    yield name

        async with aclosing(_news(self._clock, look)) as names:
            async for name in names:
                yield name


def _lines(machine: Machine) -> list[str]:
    system = machine.state.os
    return [] if system is None else system.kernel_log


def _state(node: NodeObject) -> object:
    taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE)
    return node.uid, node.unschedulable, node.ready, dict(node.labels), taints, dict(node.conditions)


_: type[Watch] = TruthWatch
_l: type[Watch] = LogWatch
_e: type[Watch] = EventWatch
