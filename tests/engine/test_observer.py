"""The leader's side without an engine: whatever is missing, its nodes are not read, and nothing else ends."""

from __future__ import annotations

import asyncio
import pickle
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.clocks import RealClock
from reconciler.converge.observer import shards_of
from reconciler.drivers.engine import client as module
from reconciler.drivers.engine import observer as observer_module
from reconciler.drivers.engine.access import EngineAccess, EngineError, label, release
from reconciler.drivers.engine.answers import NO_DIGESTS, unpacked
from reconciler.drivers.engine.client import EngineClient
from reconciler.drivers.engine.observer import EngineObserver
from reconciler.drivers.engine.plans import packed_plans
from reconciler.drivers.engine.worker import ShardTask, SitePlugin, observe_shard
from reconciler.model.crash import Crash, told_to
from reconciler.model.observed import Answered, Silent
from reconciler.model.observer_port import ObserveShard, Readings, ShardSeen
from reconciler.model.vocab import UnknownReason
from tests import builders as b
from tests.cli.shell import until
from tests.converge.test_observer import fleet_at

NOWHERE = EngineAccess("tls://127.0.0.1:1", Path("/nonexistent"))


def shards(*sites: str) -> Sequence[ObserveShard]:
    fleet = fleet_at(sites)
    return shards_of(fleet, list(fleet.nodes), {}, RealClock(), 0.0)


class Told:
    """A client of a scheduler that knows one worker, and does with tasks what a test says."""

    status = "running"

    def __init__(self, result: Any) -> None:
        self._result = result
        self.scheduler = self
        self.submitted: list[str] = []

    async def identity(self) -> Any:
        return {"workers": {"tls://a": {"name": "a", "last_seen": 1.0, "resources": {label("fra"): 8}}}}

    def submit(self, _function: Any, _release: str, _data: bytes, **options: Any) -> Any:
        self.submitted.append(options["workers"][0])
        return self

    async def result(self) -> Any:
        return await self._result()

    def release(self) -> None:
        return None


def read(observer: EngineObserver, *sites: str) -> list[str]:
    async def seen() -> list[str]:
        found = []
        async with aclosing(observer.observe(shards(*sites))) as parts:
            async for part in parts:
                for readings in part.nodes.values():
                    assert isinstance(readings.host, Silent)
                    assert readings.host.reason is UnknownReason.NOT_READ
                    found.append(readings.host.detail)
        return found

    return asyncio.run(seen())


def observer_with(result: Any) -> tuple[EngineObserver, Told]:
    observer, client = EngineObserver(NOWHERE, RealClock(), tuple), Told(result)
    observer.client._client = client
    return observer, client


def test_an_answer_that_never_comes_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", -1e6)  # the deadline is over at the first look
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    observer, client = observer_with(asyncio.Event().wait)
    [told] = read(observer, "fra")
    assert told.startswith("worker a gave no answer within")
    assert client.submitted == ["tls://a"]


def test_an_answer_that_is_none_costs_its_nodes_alone() -> None:
    async def nonsense() -> bytes:
        return b"nonsense"

    told = read(observer_with(nonsense)[0], "fra", "ams")
    assert sorted(one.partition(":")[0] for one in told) == [
        "no worker of site ams works for tls",
        "worker a gives an answer that can't be read",
    ]


def test_others_have_their_turn_between_answers_that_came_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty workers' first answers took longer to unpack than a scheduler may take to answer: it was given up."""
    monkeypatch.setattr(module, "SHARDS_OF_A_WORKER", 8)
    unpacking: list[str] = []

    def unpack(_data: bytes) -> Any:
        unpacking.append("answer")
        raise ValueError("no matter")

    async def turns() -> None:
        while True:
            unpacking.append("turn")
            await asyncio.sleep(0)

    async def seen() -> None:
        all_there = asyncio.Event()

        async def answer() -> bytes:
            if len(client.submitted) == 8:
                all_there.set()
            await all_there.wait()
            return b""

        observer, client = observer_with(answer)
        [shard] = shards("fra")
        async with aclosing(observer.observe([replace(shard, key=f"fra#{at}") for at in range(8)])) as parts:
            others = asyncio.create_task(turns())
            assert len([part async for part in parts]) == 8
            others.cancel()

    monkeypatch.setattr(observer_module, "unpacked", unpack)
    asyncio.run(seen())
    assert unpacking.count("answer") == 8
    assert ("answer", "answer") not in pairwise(unpacking)


def test_a_client_that_was_lost_meanwhile_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    observer, client = observer_with(asyncio.Event().wait)

    async def lost() -> Any:
        observer.client._client = None
        return await Told.identity(client)

    monkeypatch.setattr(client, "identity", lost)
    assert read(observer, "fra") == ["scheduler tls://127.0.0.1:1 does not answer: the connection was lost"]
    assert client.submitted == []


def test_a_worker_is_sent_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits at its worker takes a place that shards are read in."""
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    at_once = most = packed = done = 0

    async def played() -> bytes:
        nonlocal at_once, most, done
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once, done = at_once - 1, done + 1
        return b"played"

    def pack() -> bytes:
        nonlocal packed
        packed += 1
        assert packed == done + 1, "a run is packed at its turn"
        return b"run"

    client = EngineClient(NOWHERE)
    client._client = Told(played)

    async def all_runs() -> list[bytes]:
        async with client.working():
            return await asyncio.gather(*(client.call_any(observe_shard, pack, 60.0) for _ in range(9)))

    assert asyncio.run(all_runs()) == [b"played"] * 9
    assert most == 1


@pytest.mark.parametrize(
    "asked",
    [
        lambda client: client.workers(),
        lambda client: client.call(observe_shard, "fra", "fra#0", lambda: b"", 0.1),
        lambda client: client.call_any(observe_shard, lambda: b"", 6 * 3600.0),
    ],
    ids=["workers", "a shard", "a run"],
)
def test_nobody_waits_without_end_for_a_look_that_can_not_be_stopped(
    monkeypatch: pytest.MonkeyPatch, asked: Callable[[EngineClient], Awaitable[Any]]
) -> None:
    """A look has a limit of its own, which only asks what hangs to end."""
    for limit in ("CONNECT_S", "GRACE_S"):
        monkeypatch.setattr(module, limit, 0.1)
    ends = asyncio.Event()

    async def deaf() -> Any:
        while not ends.is_set():
            with suppress(asyncio.CancelledError):
                await ends.wait()
        raise OSError("it ended")

    async def ask() -> None:
        client = EngineClient(NOWHERE)
        monkeypatch.setattr(client, "_identity", deaf)
        async with asyncio.timeout(20), client.working():
            with pytest.raises(EngineError, match=r"scheduler tls://127.0.0.1:1 does not answer"):
                await asked(client)
        ends.set()
        await asyncio.sleep(0.05)  # what was deaf ends

    asyncio.run(ask())


def plans_of(
    observer: EngineObserver, monkeypatch: pytest.MonkeyPatch, *keys: str, made: Callable[[], object] = lambda: None
) -> tuple[Any, list[Crash]]:
    """Have workers plan shards of one node each, and return the plans and what crashed. `made`: a task is made."""
    monkeypatch.setattr(observer, "_known", {key: SimpleNamespace(digests=NO_DIGESTS) for key in keys})
    monkeypatch.setattr(observer, "_is_known", lambda _name, _seen: True)

    def task(_shard: Any, _digests: Any) -> Any:
        made()
        return SimpleNamespace(packed=lambda: b"task")

    monkeypatch.setattr(observer_module, "PlanTask", SimpleNamespace(of=task))
    asked: Any = [SimpleNamespace(site="fra", key=key, seen={key: None}) for key in keys]
    crashes: list[Crash] = []
    with told_to(crashes.append):
        return asyncio.run(observer.plan(asked)), crashes


@pytest.mark.parametrize(
    "answer", [b"nonsense", zlib.compress(b"nonsense"), zlib.compress(pickle.dumps(((), [(1, 2, 3)])))]
)
def test_plans_that_are_none_are_told_and_made_by_the_leader(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def damaged() -> bytes:
        return answer

    plans, crashes = plans_of(observer_with(damaged)[0], monkeypatch, "fra#0")
    assert plans == {}
    assert [(one.node, one.doing) for one in crashes] == [("fra#0", "having a worker plan it")]


def test_nobody_waits_for_plans_shard_by_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that beats and answers nothing has two shards at once; the others wait here, but no longer."""
    monkeypatch.setattr(observer_module, "PLAN_S", 0.2)
    monkeypatch.setattr(observer_module, "GRACE_S", 0.1)
    began = time.monotonic()
    keys = [f"fra#{number}" for number in range(10)]
    assert plans_of(observer_with(asyncio.Event().wait)[0], monkeypatch, *keys) == ({}, [])
    assert time.monotonic() - began < 3


def test_workers_have_as_long_for_all_plans_as_the_leader_would_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand shards take longer than one may, and each is packed at its turn: they are a whole fleet in memory."""
    monkeypatch.setattr(observer_module, "PLAN_S", 0.05)
    monkeypatch.setattr(observer_module, "GRACE_S", 0.05)
    monkeypatch.setattr(observer_module, "SHARD_S", 2.0)  # on a busy machine
    monkeypatch.setattr(module, "GRACE_S", 60.0)
    made, answered = Counter[str](), Counter[str]()

    async def slowly() -> bytes:
        assert made["tasks"] - answered["tasks"] <= module.SHARDS_OF_A_WORKER
        await asyncio.sleep(0.02)
        answered["tasks"] += 1
        return packed_plans({})

    keys = [f"fra#{number}" for number in range(30)]
    plans_of(observer_with(slowly)[0], monkeypatch, *keys, made=lambda: made.update(["tasks"]))
    assert answered["tasks"] == len(keys)


def _long(_data: bytes) -> bytes:
    time.sleep(300)
    return b""


def _failing(_data: bytes) -> bytes:
    raise ValueError("no such node")


def plugin_that(play: Callable[[bytes], bytes]) -> SitePlugin:
    return SitePlugin("fra", Site({}), RealClock(), lambda _: None, play)


def test_a_worker_that_ends_ends_the_run_that_it_plays() -> None:
    """Python joins the processes of a pool at its exit: a worker without a scheduler would seem to live for an hour."""

    async def lost() -> Any:
        plugin: Any = plugin_that(_long)
        run = asyncio.create_task(plugin.run(release(), b""))
        await asyncio.sleep(0)  # it begins
        [child] = plugin._process._processes.values()
        await plugin.teardown(None)
        with pytest.raises(EngineError):
            await run
        return child

    child = asyncio.run(lost())
    until(lambda: not Path(f"/proc/{child.pid}").exists(), seconds=60)  # the pool's thread may have reaped it


def test_a_run_that_fails_leaves_the_process_to_the_others() -> None:
    async def twice() -> None:
        plugin: Any = plugin_that(_failing)
        kept = []
        for _ in range(2):
            with pytest.raises(EngineError, match="ValueError: no such node"):
                await plugin.run(release(), b"")
            kept.append(plugin._process)
        assert kept[0] is kept[1] is not None
        await plugin.teardown(None)

    asyncio.run(twice())


def test_a_worker_takes_no_shard_of_another_version_or_site() -> None:
    plugin = SitePlugin("fra", None, RealClock(), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="install the same version"):
        asyncio.run(plugin.answer("0.0.1 (abc)", b""))
    task = ShardTask(shards("ams")[0], {}, ()).packed()
    with pytest.raises(EngineError, match="it is a worker of site fra, and was asked for nodes of ams"):
        asyncio.run(plugin.answer(release(), task))


class Site:
    """The drivers of a site whose BMCs answer as a test says."""

    def __init__(self, readings: dict[str, Readings]) -> None:
        self._readings = readings

    async def observer(self, _shard: ObserveShard, _revoked: Sequence[str]) -> Site:
        return self

    async def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        yield ShardSeen(shards[0].key, self._readings)

    def insecure_logins(self, _shard: ObserveShard) -> tuple[str, ...]:
        return ()

    def conceal(self, text: str) -> str:
        return text

    async def close(self) -> None:
        return None


def test_half_a_character_costs_its_own_node() -> None:
    """json.loads takes a lone surrogate of a BMC, and JSON can't be written with it (invariant 22)."""
    seen = b.observed()
    assert isinstance(seen.hot, Answered)
    good = Readings(seen.hot, seen.inventory, seen.host)
    model = good._replace(hot=replace(seen.hot, value=replace(seen.hot.value, model="R\ud800")))
    detail = good._replace(host=replace(b.silent(), detail="no \ud800"))
    site: Any = Site({"n0": good, "n1": model, "n2": detail})
    plugin = SitePlugin("fra", site, RealClock(), lambda _: None)
    [shard] = shards("fra", "fra", "fra")
    for _ in range(2):
        answer = unpacked(asyncio.run(plugin.answer(release(), ShardTask(shard, {}, ()).packed())))
        assert [one.reason for one in answer.nodes["n0"]] == [None] * 3
        for name in ("n1", "n2"):
            assert {one.reason for one in answer.nodes[name]} == {UnknownReason.CRASHED}
            assert "while sending its readings" in answer.nodes[name][0].detail
