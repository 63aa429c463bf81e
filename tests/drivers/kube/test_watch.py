"""The watch of nodes: what it tells, what it keeps to itself, and what it survives."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.kube import NodeWatch
from reconciler.drivers.kube import watch as watching
from reconciler.model.observed import Member
from reconciler.model.own_writes import OwnWrites
from tests.drivers.kube.bench import Bench
from tests.drivers.kube.test_cluster import MARK
from tests.drivers.kube.test_faults import config

pytestmark = [pytest.mark.wire, pytest.mark.tool]


def watch(bench: Bench, **more: Any) -> NodeWatch:
    settings = {"kubeconfig": bench.kubeconfig, "context": None, "kubectl": bench.program, "timeout_s": 10} | more
    return NodeWatch(**settings)


class Listener:
    """Hears the changes as a task, while the test does things."""

    def __init__(self, watch: NodeWatch) -> None:
        self._watch = watch
        self.heard: list[str] = []
        self.told: list[str] = []
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async with aclosing(self._watch.changes(self.told.append)) as changes:
            async for name in changes:
                self.heard.append(name)

    async def until(self, wanted: Callable[[], bool], seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not wanted():  # noqa: ASYNC110 -- the wanted may be anything
                await asyncio.sleep(0.02)

    async def hears(self, *names: str) -> None:
        """Each of these, and nothing else: some of them twice, as when a controller answers a cordon with a taint."""
        try:
            await self.until(lambda: set(names) <= set(self.heard))
        except TimeoutError:
            pytest.fail(f"heard {self.heard}, wanted {names}, told {self.told}")
        assert set(self.heard) == set(names)


def listening(bench: Bench, test: Callable[[Listener], Awaitable[None]], **more: Any) -> Listener:
    """Run the test once the watch has begun; the listener when it has ended."""

    async def run() -> Listener:
        listener = Listener(watch(bench, **more))
        try:
            if not more:
                await listener.until(lambda: bool(kubectls(bench, "watch=1")))
            await test(listener)
        finally:
            listener.task.cancel()
            await asyncio.wait([listener.task])
        return listener

    listener = asyncio.run(run())
    assert kubectls(bench) == [], "nothing of it is left"
    return listener


def kubectls(bench: Bench, word: str = "") -> list[str]:
    """Process ids, states and command lines of kubectls that talk to this cluster; for no word, zombies of ours too."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        zombie = not word and (state, parent) == ("Z", str(os.getpid()))
        if (str(bench.home) in line and "--raw" in line and word in line) or zombie:
            found.append(f"{place.name} {state} {line}")
    return found


async def by(bench: Bench, work: Callable[[], Any]) -> None:
    await asyncio.to_thread(bench.on_loop, work)


def test_what_others_do_to_nodes_is_heard(bench: Bench) -> None:
    async def test(listener: Listener) -> None:
        await asyncio.to_thread(bench.ok, "cordon", "gpu-001")
        await listener.hears("gpu-001")
        await asyncio.to_thread(bench.ok, "label", "node", "gpu-002", "tier=gold")
        await listener.hears("gpu-001", "gpu-002")
        await asyncio.to_thread(bench.ok, "taint", "node", "gpu-003", "x=y:NoSchedule")
        await listener.hears("gpu-001", "gpu-002", "gpu-003")
        listener.heard.clear()
        await asyncio.to_thread(bench.ok, "delete", "node", "gpu-003")
        await listener.hears("gpu-003")

    assert listening(bench, test).told == []


def test_a_kubelet_that_falls_silent_is_heard(bench: Bench) -> None:
    machine = bench.truth.machines["gpu-002"]

    async def test(listener: Listener) -> None:
        def stop() -> None:
            assert machine.state.os is not None
            machine.state.os.services_active["kubelet"] = False
            bench.seconds += 600
            bench.truth.sync("gpu-002")  # a hand on its state stirs nobody

        await asyncio.to_thread(bench.ok, "cordon", "gpu-001")  # heard: the watch is connected before time leaps
        await listener.hears("gpu-001")
        await by(bench, stop)
        await listener.hears("gpu-001", "gpu-002")

    listening(bench, test)


def test_annotations_are_no_news(bench: Bench) -> None:
    async def test(listener: Listener) -> None:
        await asyncio.to_thread(bench.ok, "annotate", "node", "gpu-001", "note=1")
        await asyncio.to_thread(bench.ok, "cordon", "gpu-002")
        await listener.hears("gpu-002")

    listening(bench, test)


def test_a_watch_is_renewed_and_loses_nothing_in_between(bench: Bench) -> None:
    async def test(listener: Listener) -> None:
        await listener.until(lambda: bool(kubectls(bench, "watch=1")))
        first = kubectls(bench, "watch=1")
        await listener.until(lambda: not set(first) & set(kubectls(bench)))
        await by(bench, lambda: bench.truth.update_node("gpu-001", labels={"between": "watches"}))
        await listener.hears("gpu-001")

    assert listening(bench, test, renew_s=1).told == []


def test_a_revision_that_the_server_forgot_costs_a_list(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """410: what changed since is told all the same, and what did not is not."""

    async def test(listener: Listener) -> None:
        await listener.until(lambda: bool(kubectls(bench, "watch=1")))

        def lose() -> None:
            bench.truth.update_node("gpu-001", labels={"lost": "yes"})
            bench.truth.remove_node("gpu-002")
            bench.truth._history.clear()
            bench.truth.revision += 10

        await by(bench, lose)
        await listener.hears("gpu-001", "gpu-002")

    assert listening(bench, test, renew_s=30).told == []


def test_a_server_that_forgot_is_listed_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between attempts are for servers that do not answer."""

    async def test(listener: Listener) -> None:
        await listener.until(lambda: bool(kubectls(bench, "watch=1")))
        monkeypatch.setattr(watching, "_LEAST_PAUSE_S", 3600.0)

        def lose() -> None:
            bench.truth.update_node("gpu-001", labels={"lost": "yes"})
            bench.truth._history.clear()
            bench.truth.revision += 10

        await by(bench, lose)
        await listener.hears("gpu-001")

    listening(bench, test, renew_s=30)


def test_the_watch_is_deaf_for_seconds_once_the_server_is_back() -> None:
    pauses = list(itertools.islice(watching._pauses(), 12))
    assert max(pauses) <= 5.0
    assert pauses[0] <= 1.0 < pauses[-1]
    assert len(set(pauses)) > 6, "watchers that were cut off together do not come back together"


def present(member: Member | None) -> Member:
    assert member is not None
    return member


def test_our_own_writes_are_no_news(bench: Bench) -> None:
    """Nor is the taint that a controller adds to a node that we have cordoned."""
    own = OwnWrites()

    async def test(listener: Listener) -> None:
        await listener.until(lambda: bool(kubectls(bench, "watch=1")))
        for keep in (False, True):  # a kubectl for each write, and one that keeps running
            driver = bench.driver(own=own, keep=keep)
            await driver.mark(present(await driver.member("gpu-001")), MARK)
            await driver.unmark(present(await driver.member("gpu-001")), uncordon=True)
            await driver.close()
        await asyncio.to_thread(bench.ok, "cordon", "gpu-002")
        await listener.hears("gpu-002")
        await asyncio.to_thread(bench.ok, "taint", "node", "gpu-001", "theirs=1:NoSchedule")
        await listener.hears("gpu-001", "gpu-002")

    listening(bench, test, own=own)


def test_a_server_that_goes_away_is_told_once_and_comes_back(bench: Bench, tmp_path: Path) -> None:
    kubeconfig = config(bench, tmp_path / "moving", server="https://127.0.0.1:9")

    async def test(listener: Listener) -> None:
        await listener.until(lambda: bool(listener.told))
        await asyncio.sleep(2.5)  # tried again meanwhile
        assert len(listener.told) == 1
        assert "refused" in listener.told[0]
        kubeconfig.write_text(bench.kubeconfig.read_text())
        await listener.until(lambda: listener.told[1:] == [""])
        await asyncio.to_thread(bench.ok, "cordon", "gpu-001")
        await listener.hears("gpu-001")

    listening(bench, test, kubeconfig=kubeconfig)


def test_a_kubectl_that_was_killed_is_started_again(bench: Bench) -> None:
    async def test(listener: Listener) -> None:
        for pid in map(int, (line.split()[0] for line in kubectls(bench, "watch=1"))):
            os.kill(pid, 9)
        await listener.until(lambda: bool(listener.told))
        await asyncio.to_thread(bench.ok, "cordon", "gpu-001")
        await listener.hears("gpu-001")

    listening(bench, test)


def test_no_kubectl_is_told(bench: Bench) -> None:
    async def test(listener: Listener) -> None:
        await listener.until(lambda: bool(listener.told))
        assert "install kubectl" in listener.told[0]

    listening(bench, test, kubectl="/nonexistent/kubectl")


def test_cancelling_is_prompt(bench: Bench) -> None:
    async def test(listener: Listener) -> None:
        started = time.monotonic()
        listener.task.cancel()
        await asyncio.wait([listener.task])
        assert time.monotonic() - started < 1
        assert listener.task.cancelled()
        assert kubectls(bench) == []

    listening(bench, test)


def test_whoever_leaves_the_iterator_leaves_no_child(bench: Bench) -> None:
    async def leave() -> str:
        async with aclosing(watch(bench).changes()) as changes:
            task = asyncio.create_task(asyncio.to_thread(later))
            name = await anext(changes)
            await task
            return name

    def later() -> None:
        time.sleep(1.5)
        bench.ok("cordon", "gpu-003")

    assert asyncio.run(leave()) == "gpu-003"
    assert kubectls(bench) == []


def test_a_line_that_makes_no_sense_costs_a_list(bench: Bench, tmp_path: Path) -> None:
    """A kubectl that says nonsense once, as when a proxy answers."""
    program = tmp_path / "kubectl"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *watch=1*) if [ ! -e {tmp_path}/once ]; then touch {tmp_path}/once; '
        f'echo \'{{"type": 7}}\'; exit 0; fi;; esac\nexec {bench.program} "$@"\n'
    )
    program.chmod(0o755)

    async def test(listener: Listener) -> None:
        await listener.until(lambda: bool(listener.told))
        assert "not an answer of a Kubernetes API" in listener.told[0]
        await asyncio.to_thread(bench.ok, "cordon", "gpu-001")
        await listener.hears("gpu-001")
        assert listener.told[1:] == [""]

    listening(bench, test, kubectl=str(program))
