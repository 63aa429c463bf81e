"""Whole passes of a leader, beside reading: learn, plan, write the ledger, renew the dispatcher, publish the status.

Run as a module, this is the measured process: `python -m tests.bench.leader SPEC STORE` prints JSON. The ledger is on
SQLite, and has the certificates of all nodes; all else it learns in the first pass.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.bench import measure
from tests.bench.report import Table

if TYPE_CHECKING:
    from reconciler.model.desired import Fleet
    from reconciler.model.observed import Observation
    from tests.bench.store import Stored

PASSES = 3
FIRST = "the first pass, which writes all nodes to the ledger"
CLEAN = "a later pass, the same readings: clean"
CHANGED = "a later pass, the same readings: 1% changed"
AGAIN = "a later pass, all nodes read again: clean"
TARGETS_S = {FIRST: 20.0, CLEAN: 0.5, CHANGED: 1.5}  # of 100,000 nodes
TARGET_MIB = 1024


def section(sizes: Sequence[int]) -> list[Table]:
    from tests.bench.scale import stored_fleet

    found = []
    for size in sizes:
        with stored_fleet(size) as (spec, store):
            found.append(measure.in_fresh_process("tests.bench.leader", str(spec), str(store)))
    rows = [(name, *(one["seconds"][name] for one in found), TARGETS_S.get(name)) for name in found[0]["seconds"]]
    peaks = ("MiB at the peak", *(one["mib"] for one in found), TARGET_MIB)
    columns = ("", *(f"{size:,} nodes" for size in sizes), "target for 100,000")
    notes = (f"the best of {PASSES} passes, but for the first", "reading is not among it: see `wire` and `engine`")
    return [Table("A leader's passes: seconds of CPU (one core)", columns, [*rows, peaks], notes)]


# --- in the measured process -----------------------------------------------------------------------------------------


class _NoFabric:
    """A Fabric that reaches nothing: passes are given what was read."""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        return lambda *_: None

    def watches(self) -> dict[Any, Any]:
        return {}


class Leader:
    """A leader of a stored fleet. `passed` takes an observation as the loop does, once `begun` has taken the first."""

    def __init__(self, fleet: Fleet, stored: Stored, scratch: Path) -> None:
        from reconciler.drivers.ledger import SqlLedger
        from reconciler.drivers.ledger.rows import instant
        from reconciler.drivers.ledger.schema import certificates
        from reconciler.drivers.status.metrics import PrometheusMetrics
        from reconciler.lab.inprocess.virtual_time import VirtualClock
        from reconciler.model.documents import dump

        self.fleet = fleet
        self.clock = VirtualClock(stored.head.finished_at + timedelta(minutes=1))
        self.ledger = SqlLedger(scratch / "ledger.sqlite", fleet=fleet.settings.fleet)
        self.metrics = PrometheusMetrics()
        rows = [
            {"node": one.node, "issued_at": instant(one.issued_at), "document": dump(one)}
            for record in stored.records.values()
            if (one := record.certificate) is not None
        ]
        with self.ledger._database.write([certificates]) as connection:
            connection.execute(certificates.insert(), rows)

    async def lead(self, first: Observation, passes: Callable[[Leader], Any]) -> None:
        """Begin a term with this observation, and go on as `passes` says."""
        from reconciler.converge import leader_term
        from reconciler.converge.leader_term import LeaderTerm, LoopDeps
        from reconciler.converge.lease import held_lease

        images = [node.profile.image for node in self.fleet.nodes.values() if node.profile.image]
        signatures = dict.fromkeys(((image.name, image.version) for image in images), True)
        gate: Any = None
        deps = LoopDeps(
            begin=lambda _: "bench", ledger=self.ledger, clock=self.clock, gate=gate, metrics=self.metrics,
            progress=lambda _: None, signatures=lambda _: signatures, interval_s=60.0,
        )  # fmt: skip

        async def read(*_: Any, **__: Any) -> Observation:
            return first

        fabric: Any = _NoFabric()
        async with held_lease(self.ledger, self.fleet.settings.fleet, "bench", self.clock) as lease:
            with patch.object(leader_term, "_observe", read):
                self.term = await LeaderTerm.begin(deps, self.fleet, fabric, lease, lambda _: None)
            self.term._dispatcher.start = lambda: None  # type: ignore[method-assign]
            try:
                await passes(self)
            finally:
                self.term._listening.cancel()

    async def take(self, observation: Observation) -> None:
        self.clock.elapsed += 60.0
        now = self.clock.now()
        seen = replace(observation, started_at=now - timedelta(seconds=30), finished_at=now)
        await self.term._take(seen)


async def _measured(fleet: Fleet, stored: Stored, scratch: Path) -> dict[str, Any]:
    some, clean = stored.some_drifted(), stored.all_clean()
    seconds: dict[str, float] = {}
    leader = Leader(fleet, stored, scratch)
    stored.records.clear()
    measure.forget_peak()

    async def best(name: str, *observations: Observation) -> None:
        """Measure the first of these in each round; the others lead back to where it began."""
        found = []
        for _ in range(PASSES):
            with measure.spending() as spent:
                await leader.take(observations[0])
            found.append(spent.cpu)
            for other in observations[1:]:
                await leader.take(other)
        seconds[name] = min(found)

    async def passes(leader: Leader) -> None:
        seconds[FIRST] = time.process_time() - started
        await leader.take(clean)
        await best(CLEAN, clean)
        await best(CHANGED, some, clean)
        found = []
        for at in range(2):
            again = stored.read_again(at)
            with measure.spending() as spent:
                await leader.take(again)
            found.append(spent.cpu)
        seconds[AGAIN] = min(found)

    started = time.process_time()
    await leader.lead(clean, passes)
    leader.ledger.close()
    return {"seconds": seconds, "mib": measure.peak_mib()}


def measured(spec: Path, store: Path) -> dict[str, Any]:
    from reconciler.cli.main import COLLECT
    from reconciler.spec import load_spec
    from tests.bench.store import restore

    gc.set_threshold(*COLLECT)
    fleet, stored = load_spec(spec, directory="fleet-spec"), restore(store)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        return asyncio.run(_measured(fleet, stored, Path(scratch)))


if __name__ == "__main__":
    json.dump(measured(Path(sys.argv[1]), Path(sys.argv[2])), sys.stdout)
