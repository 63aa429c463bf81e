"""Kernel logs that are followed: what wakes a node, what does not, and what of a host that floods or goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from reconciler.drivers import source_watch
from reconciler.drivers.source_watch import Pauses
from reconciler.drivers.ssh import KernelLogWatch, SshHost
from reconciler.drivers.ssh import kernel_log_watch as followed
from reconciler.drivers.ssh.facts.extended import Extended
from reconciler.lab.hardware.kernel_log import EVENTS
from reconciler.model.observed import Answered
from tests.lab.ssh_bench import NODE, Bench, play

pytestmark = pytest.mark.wire
PATIENCE_S = 10.0
QUIET_S = 0.5


class Watched:
    """A watch on one machine, whose news are counted."""

    def __init__(self, bench: Bench) -> None:
        self.host = SshHost(
            NODE, "127.0.0.1", port=bench.port, user="root",
            private_key=bench.client_key.export_private_key().decode(),
            authorities=(bench.authority.export_public_key().decode(),), now=lambda: datetime.now(UTC),
            extended=Extended(rows=(("dpu_dead", "heartbeat lost"), ("quiet", "never logged"))),
        )  # fmt: skip
        self.names = {NODE}
        self.news: list[str] = []
        self.told: list[str] = []
        self.watch = KernelLogWatch(lambda: self.names, lambda _: self.host, lambda: ["heartbeat lost"])

    async def follow(self) -> None:
        async with aclosing(self.watch.changes(self.told.append)) as names:
            async for name in names:
                self.news.append(name)


def watched(scenario: Callable[[Bench, Watched], Awaitable[None]]) -> None:
    async def whole(bench: Bench) -> None:
        there = Watched(bench)
        task = asyncio.create_task(there.follow())
        try:
            await until(lambda: bench.server.counters.sessions > 0)
            await asyncio.sleep(QUIET_S)
            await scenario(bench, there)
        finally:
            task.cancel()
            await asyncio.wait([task])
            await there.host.close()

    play(whole)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - the lab's machines tell nobody
            await asyncio.sleep(0.02)


def log(bench: Bench, *lines: str) -> None:
    bench.machine.system().kernel_log.extend(lines)


def test_a_line_about_hardware_wakes_the_node_and_no_other_line_does() -> None:
    async def scenario(bench: Bench, there: Watched) -> None:
        log(bench, "systemd[1]: Started Daily apt upgrade.", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570")
        await asyncio.sleep(QUIET_S)
        assert there.news == []
        log(bench, EVENTS["pcie_fatal"][1])
        await until(lambda: there.news == [NODE])
        bench.machine.inject("xid_79", gpu=3)
        await until(lambda: there.news == [NODE, NODE])
        log(bench, "acme 0000:5e:00.0: Heartbeat lost (0x17)")  # a row of the fleet's own looks for it
        await until(lambda: there.news == [NODE, NODE, NODE])
        read = await there.host.facts((), ())
        assert isinstance(read, Answered), read
        assert read.value.raised == {"dpu_dead": ("acme 0000:5e:00.0: Heartbeat lost (0x17)",), "quiet": ()}

    watched(scenario)


def test_a_node_that_floods_is_read_once_and_not_followed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "_LOOK_S", 0.1)
    monkeypatch.setattr(source_watch, "_DEAD_S", 0.0)

    async def scenario(bench: Bench, there: Watched) -> None:
        log(bench, *(f"NVRM: Xid (PCI:0000:1b:00): 45, pid={n}, channel {n:08x}" for n in range(20_000)))
        await until(lambda: bool(there.told))
        assert "prints more than" in there.told[0]
        assert NODE in there.told[0]
        heard = len(there.news)
        assert 1 <= heard < 50, "a burst is one piece of news"
        log(bench, *(["NVRM: Xid (PCI:0000:1b:00): 45, pid=1, more"] * 1000))
        await asyncio.sleep(QUIET_S)
        assert len(there.news) == heard

    watched(scenario)


def test_a_host_that_was_away_is_read_when_it_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "_LOOK_S", 0.1)
    monkeypatch.setattr(source_watch, "_DEAD_S", 0.3)
    monkeypatch.setattr(followed, "PAUSES", Pauses(0.2, 0.4))

    async def scenario(bench: Bench, there: Watched) -> None:
        await bench.server.stop()
        await until(lambda: bool(there.told))
        assert there.told[0].startswith("1 of 1 hosts")
        await bench.server.start(port=bench.port)
        await until(lambda: there.told[-1] == "")
        assert there.news == [NODE], "whatever it said meanwhile nobody heard"

    watched(scenario)


def test_who_leaves_the_spec_is_followed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "_LOOK_S", 0.1)

    async def scenario(bench: Bench, there: Watched) -> None:
        there.names = set()
        await asyncio.sleep(QUIET_S)
        log(bench, EVENTS["pcie_fatal"][1])
        await asyncio.sleep(QUIET_S)
        assert there.news == []

    watched(scenario)
