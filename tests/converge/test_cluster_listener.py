"""Which reports of the cluster wake a node, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.converge.cluster_listener import ClusterListener
from reconciler.converge.events import ignore
from reconciler.lab.inprocess import VirtualClock, run_virtual
from reconciler.model.vocab import NewsSource
from tests.converge.test_loop import Seen


class Scripted:
    """A watch that reports n0 at these moments. While `busy` says so, a worker is at it."""

    def __init__(self, clock: VirtualClock, reports: Sequence[float], busy: tuple[float, float]) -> None:
        self._clock, self._reports, self._busy = clock, reports, busy
        self.woken: list[float] = []
        self.read_bmc: list[bool] = []
        self.run = SimpleNamespace(fleet=SimpleNamespace(nodes={"n0": None}))

    async def changes(self, tell: Callable[[str], None] = lambda _: None) -> AsyncGenerator[str]:
        tell("")
        for at in self._reports:
            await self._clock.sleep(at - self._clock.elapsed)
            yield "n0"
        await asyncio.Event().wait()

    @property
    def at_work(self) -> set[str]:
        begins, ends = self._busy
        return {"n0"} if begins <= self._clock.elapsed < ends else set()

    def wake(self, _name: str, *, read_bmc: bool = False) -> None:
        self.woken.append(round(self._clock.elapsed, 1))
        self.read_bmc.append(read_bmc)


@pytest.mark.parametrize(
    ("reports", "busy", "woken"),
    [
        ([10, 10.2, 10.4, 11], (0, 0), [10, 15]),  # again and again: every five seconds
        ([10, 10.2], (9, 10.1), [10, 10.2]),  # the first is of our own work, and must not delay the second
        ([10, 10.2, 10.4], (9, 99), [10, 15]),
        ([10, 20], (0, 0), [10, 20]),
    ],
)
def test_reports_wake_a_node(reports: Sequence[float], busy: tuple[float, float], woken: list[float]) -> None:
    clock = VirtualClock()
    there: Any = Scripted(clock, reports, busy)
    listener = ClusterListener(clock, ignore, Seen())
    listener.dispatcher = there

    async def listen() -> None:
        task = asyncio.create_task(listener.listen({NewsSource.CLUSTER: there}))
        await asyncio.sleep(60)
        task.cancel()

    run_virtual(listen(), clock)
    assert there.woken == woken


def test_kernel_logs_wake_a_node_too_and_their_silence_is_told_apart() -> None:
    clock = VirtualClock()
    there: Any = Scripted(clock, [10, 10.2], (0, 0))
    told: list[str] = []

    class Deaf(Seen):
        def deaf(self, source: NewsSource, since: datetime | None) -> None:
            assert source is NewsSource.KERNEL_LOGS, "nobody watches anything else"
            self.deaf_since.append(since)

    class Silent(Scripted):
        async def changes(self, tell: Callable[[str], None] = lambda _: None) -> AsyncGenerator[str]:
            tell("1 of 2 hosts")
            async for name in super().changes():
                yield name

    seen = Deaf()
    logs: Any = Silent(clock, [10, 10.2], (0, 0))
    listener = ClusterListener(clock, lambda event: told.append(getattr(event, "message", "")), seen)
    listener.dispatcher = there

    async def listen() -> None:
        task = asyncio.create_task(listener.listen({NewsSource.KERNEL_LOGS: logs}))
        await asyncio.sleep(60)
        task.cancel()
        await asyncio.wait([task])

    run_virtual(listen(), clock)
    assert there.woken == [10, 15]
    assert told == ["kernel logs are not followed: 1 of 2 hosts"]
    assert seen.deaf_since[0] is not None
    assert seen.deaf_since[-1] is None, "nobody listens any more"


def test_events_of_a_bmc_wake_a_node_seldom_and_have_its_bmc_read() -> None:
    """A flood of events costs a BMC one inventory in half a minute; the kernel log is as quick as before."""
    clock = VirtualClock()
    there: Any = Scripted(clock, [10, 10.1, 10.2, 39, 80], (0, 0))
    logs: Any = Scripted(clock, [10.5], (0, 0))
    listener = ClusterListener(clock, ignore, Seen())
    listener.dispatcher = there

    async def listen() -> None:
        task = asyncio.create_task(listener.listen({NewsSource.KERNEL_LOGS: logs, NewsSource.BMC_EVENTS: there}))
        await asyncio.sleep(100)
        task.cancel()

    run_virtual(listen(), clock)
    assert list(zip(there.woken, there.read_bmc, strict=True)) == [(10, True), (10.5, False), (40, True), (80, True)]
