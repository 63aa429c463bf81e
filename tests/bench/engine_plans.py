"""Planning by workers of an engine: a large fleet whose readings lie on them, beside planning it in this process.

Workers, scheduler and leader are processes of one machine. Workers answer from stored readings, so that nothing but the
engine is measured: `python -m tests.bench.engine_plans worker URL TLS SITE STORE`. `leader SPEC STORE URL TLS PID...`
prints JSON, times in seconds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import measure
from tests.bench.engine_passes import cpu_of
from tests.bench.report import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.drivers.engine.observer import EngineObserver
    from reconciler.model.desired import Fleet
    from reconciler.model.observed import Observation, Observed
    from reconciler.model.observer_port import ObserveShard, ShardSeen
    from tests.bench.store import Stored

SITES = ("fra", "ams")
_WHO = ("leader", "workers", "scheduler")
_PHASES = ("first", "hot", "ahead", "plan", "whole")
_WORDS = {
    "first": "first pass: all readings travel",
    "hot": "later pass: what changed travels",
    "ahead": "workers plan what they have read",
    "plan": "the leader plans the rest, and the fleet",
    "whole": "without workers: the leader's first pass",
}


def section(nodes: int, workers: int) -> list[Table]:
    from tests.bench.scale import stored_fleet
    from tests.engine.world import Engine, make_certificates

    with stored_fleet(nodes) as (spec, store), tempfile.TemporaryDirectory() as scratch, ExitStack() as closing:
        engine = Engine(make_certificates(Path(scratch) / "tls"), Path(scratch), Path(scratch))
        closing.callback(engine.close)
        engine.start_scheduler()
        for at in range(workers):
            site = SITES[at % len(SITES)]
            words = (sys.executable, "-m", "tests.bench.engine_plans", "worker", engine.url, engine.tls, site, store)
            engine.start(f"w{at}", "listens on", *map(str, words))
        pids = [str(process.pid) for process in engine.processes.values()]
        found = measure.in_fresh_process(
            "tests.bench.engine_plans", "leader", str(spec), str(store), engine.url, str(engine.tls), *pids
        )
    shards, peaks = found["shards"], ", ".join(f"{one:,.0f}" for one in found["workers_mib"])
    rows = [
        (_WORDS[phase], one["wall"], *(one[who] for who in _WHO), 1e3 * one["leader"] / shards,
         *(one[way] / nodes for way in ("received", "sent")), one["mib"])
        for phase in _PHASES
        if (one := found[phase])
    ]  # fmt: skip
    columns = ("", "seconds", *(f"{who} CPU" for who in _WHO), "leader ms/shard", "bytes/node in", "out", "leader MiB")
    return [
        Table(
            f"{nodes:,} nodes read and planned by {workers} workers of two sites, {shards:,} shards",
            columns,
            rows,
            (
                f"{found['ahead']['plans']:,} plans came from workers; the plan is the same one, field for field",
                f"MiB at the peak: leader {found['mib']:,.0f} (before it reads a node: {found['spec']:,.0f}), "
                f"scheduler {found['scheduler_mib']:,.0f}, workers {peaks}",
                "workers answer from memory: what BMCs and hosts cost is in `engine` and `wire`",
            ),
        )
    ]


# --- a worker --------------------------------------------------------------------------------------------------------


class StoredReader:
    """A SiteReader whose nodes answer from a stored observation, which goes on by a minute in each pass."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._passes: dict[str, int] = {}
        self._first: dict[str, Observed] = {}

    async def observer(self, _shard: ObserveShard, _revoked: Sequence[str]) -> StoredReader:
        return self

    async def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        from reconciler.model.observer_port import Readings, ShardSeen
        from tests.bench.store import read_again

        for shard in shards:
            number = self._passes[shard.key] = self._passes.get(shard.key, -1) + 1
            if not number:
                self._first |= self._restored(list(shard.nodes))
            seen = {name: read_again(self._first[name], timedelta(minutes=number)) for name in shard.nodes}
            await asyncio.sleep(0)  # a worker that reads machines lets others have their turn, too
            yield ShardSeen(shard.key, {name: Readings(one.hot, one.inventory, one.host) for name, one in seen.items()})

    def _restored(self, names: Sequence[str]) -> Mapping[str, Observed]:
        from reconciler.model.interning import share
        from tests.bench.store import restore_some

        return {name: without_member(share(node)) for name, node in restore_some(self._store, names).items()}

    def insecure_logins(self, _shard: ObserveShard) -> tuple[str, ...]:
        return ()

    def conceal(self, text: str) -> str:
        return text

    async def close(self) -> None:
        return None


def without_member(node: Observed) -> Observed:
    from reconciler.model.observed import Silent
    from reconciler.model.vocab import UnknownReason

    return replace(node, member=Silent(node.hot.at, UnknownReason.NOT_ASKED, "the leader reads the cluster"))


def work(url: str, tls: str, site: str, store: str) -> None:
    from reconciler.app.clocks import RealClock
    from reconciler.app.runtime import run_async
    from reconciler.cli.main import COLLECT
    from reconciler.drivers.engine.access import EngineAccess
    from reconciler.drivers.engine.worker import SitePlugin, serve

    gc.set_threshold(*COLLECT)

    def told(text: str) -> None:
        print(text, flush=True)

    reader: Any = StoredReader(Path(store))
    run_async(serve(EngineAccess(url, Path(tls)), SitePlugin(site, reader, RealClock(), told), site, None, told))


# --- the leader ------------------------------------------------------------------------------------------------------


def lead(spec: Path, store: Path, url: str, tls: str, pids: Sequence[int]) -> dict[str, Any]:
    from reconciler.cli.main import COLLECT
    from reconciler.drivers.engine import client, observer, workers
    from reconciler.spec import load_spec
    from tests.bench.store import restore

    limits = ((observer, "SHARD_S"), (observer, "PLAN_S"), (workers, "HUNG_S"), (client, "CONNECT_S"))
    for module, limit in limits:
        setattr(module, limit, 300.0)  # CPU is measured, however busy the machine is
    gc.set_threshold(*COLLECT)
    fleet = load_spec(spec, directory="fleet-spec")
    nodes = {
        name: replace(node, domains={**node.domains, "site": SITES[at // 100 % len(SITES)]})
        for at, (name, node) in enumerate(fleet.nodes.items())
    }
    stored = restore(store, unread=True)
    stored.drifted.clear()
    gc.collect()
    mib = measure.rss_mib()
    measure.forget_peak()
    found = asyncio.run(_led(replace(fleet, nodes=nodes), stored, url, tls, pids))
    peaks = list(map(measure.peak_mib_of, pids))
    return found | {"spec": mib, "mib": measure.peak_mib(), "scheduler_mib": peaks[0], "workers_mib": peaks[1:]}


async def _led(fleet: Fleet, stored: Stored, url: str, tls: str, pids: Sequence[int]) -> dict[str, Any]:
    from reconciler.app.clocks import RealClock
    from reconciler.converge.observer import places_of
    from reconciler.drivers.engine.access import EngineAccess, EngineError
    from reconciler.drivers.engine.observer import EngineObserver
    from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
    from reconciler.planner.fleet.planner import plan_ahead
    from reconciler.planner.node.kept_plans import KeptPlans
    from tests.bench.scale import planner

    observer = EngineObserver(EngineAccess(url, Path(tls)), RealClock(), tuple)
    found: dict[str, Any] = {}

    @contextmanager
    def spending(phase: str) -> Iterator[dict[str, Any]]:
        def spent() -> list[float]:
            workers = list(map(cpu_of, pids))
            travelled = (observer.client.received, observer.client.sent)
            return [time.perf_counter(), time.process_time(), sum(workers[1:]), workers[0], *travelled]

        began, one = spent(), dict[str, Any]()
        yield one
        names = ("wall", "leader", "workers", "scheduler", "received", "sent")
        one |= dict(zip(names, (now - then for now, then in zip(spent(), began, strict=True)), strict=True))
        one["mib"] = measure.rss_mib()
        found[phase] = one

    with suppress(EngineError):  # a busy machine takes longer for the first connection than a pass waits
        await observer.client.workers()
    await observer.client.workers()
    seen: dict[str, Observed] = {}
    for phase in ("first", "hot"):
        with spending(phase):
            found["shards"] = await _look(fleet, observer, seen, stored)
    observation: Observation = replace(stored.head, nodes=seen)
    kept, plan = KeptPlans(), planner(fleet, stored)
    images = [node.profile.image for node in fleet.nodes.values() if node.profile.image]
    request = PlanRequest("ahead", dict.fromkeys(((image.name, image.version) for image in images), True))
    snapshot, now = LedgerSnapshot("bench", stored.records), stored.head.finished_at + timedelta(minutes=10)
    with spending("ahead") as ahead:
        await plan_ahead(fleet, observation, snapshot, now, request, kept, places_of(fleet), observer)
    with spending("plan"):
        by_workers = plan(observation, stored.records, kept)
    ahead["plans"] = kept.served
    with spending("whole"):
        whole = plan(observation, stored.records, KeptPlans())
    assert by_workers == whole
    assert kept.served + kept.made == len(fleet.nodes)
    await observer.close()
    return found


async def _look(fleet: Fleet, observer: EngineObserver, seen: dict[str, Observed], stored: Stored) -> int:
    from reconciler.app.clocks import RealClock
    from reconciler.converge.observer import shards_of
    from reconciler.model.observed import Observed, Silent

    shards = shards_of(fleet, list(fleet.nodes), seen, RealClock(), 0.0)
    async with aclosing(observer.observe(shards)) as parts:
        async for part in parts:
            for name, own in part.nodes.items():
                if isinstance(own.hot, Silent):
                    raise SystemExit(f"{name} was not read: {own.hot.detail}")
                seen[name] = Observed(name, *own, stored.clean[name].member)
    return len(shards)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(*sys.argv[2:])
    else:
        spec, store, url, tls, *pids = sys.argv[2:]
        json.dump(lead(Path(spec), Path(store), url, tls, list(map(int, pids))), sys.stdout)
