"""The leader: `python -m tests.bench.engine_passes DIR [URL TLS SCHEDULER WORKER...]` prints JSON, times in seconds.

DIR is the directory of a running lab; SCHEDULER and WORKER are processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.observer import InProcessObserver, shards_of
from reconciler.drivers.endpoints import load_endpoints
from reconciler.drivers.engine.access import EngineAccess, EngineError
from reconciler.drivers.secrets import SecretStore
from reconciler.model.observed import Observed, Silent
from reconciler.model.observer_port import Observer
from reconciler.model.vocab import UnknownReason
from reconciler.spec import load_spec
from tests.bench import measure

HOT_PASSES = 2
_TICK = os.sysconf("SC_CLK_TCK")


async def _measured(directory: Path, engine: Sequence[str]) -> dict[str, Any]:
    spec, clock = directory / "fleet-spec", RealClock()
    fleet = load_spec(spec, directory=str(spec))
    fabric = WireFabric(fleet, clock, SecretStore.load(), load_endpoints(directory / "endpoints.json"))
    observer: Observer = InProcessObserver(fabric, clock)
    client = None
    if engine:
        from reconciler.drivers.engine.observer import EngineObserver

        observer = workers = EngineObserver(EngineAccess(engine[0], Path(engine[1])), clock, tuple)
        client = workers.client
        with suppress(EngineError):  # a busy machine takes longer for the first connection than a pass waits
            await client.workers()
        await client.workers()
    processes = [int(pid) for pid in engine[2:]]
    before: dict[str, Observed] = {}
    unread: list[str] = []
    names = list(fleet.nodes)

    async def look() -> int:
        shards = shards_of(fleet, names, before, clock, 0.0)
        async with aclosing(observer.observe(shards)) as parts:
            async for seen in parts:
                for name, own in seen.nodes.items():
                    unread.extend(one.detail for one in own if isinstance(one, Silent))
                    apart = Silent(clock.now(), UnknownReason.NOT_ASKED, "the cluster is not read")
                    before[name] = Observed(name, *own, apart)
        return len(shards)

    def spent() -> list[float]:
        others = list(map(cpu_of, processes))
        travelled = 0 if client is None else client.sent + client.received
        return [time.perf_counter(), time.process_time(), sum(others[1:]), sum(others[:1]), travelled]

    found: dict[str, Any] = {}
    for one, passes in (("first", 1), ("hot", HOT_PASSES)):
        began, before_it = spent(), len(unread)
        for _ in range(passes):
            found["shards"] = await look()
        used = [(now - then) / passes for now, then in zip(spent(), began, strict=True)]
        found[one] = dict(zip(("wall", "leader", "workers", "scheduler", "bytes"), used, strict=True))
        found[one]["unread"] = len(unread) - before_it
        found[one]["mib"] = measure.peak_mib()
        found[one]["workers_mib"] = sum(map(measure.peak_mib_of, processes[1:]))
    for why, number in Counter(unread).most_common(3):
        print(f"{number} readings are missing: {why}", file=sys.stderr)
    await observer.close()
    await fabric.close()
    return found


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process with its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


if __name__ == "__main__":
    json.dump(asyncio.run(_measured(Path(sys.argv[1]), sys.argv[2:])), sys.stdout)
