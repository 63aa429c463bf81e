"""The loop at rest: `python -m tests.bench.loop_passes NODES PASSES` prints JSON: memory and CPU of pass after pass.

One process runs the loop and, in it, the lab's machines and cluster; time between passes is skipped. No fault happens,
so that whatever grows is a leak, of the loop or of the lab.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.converge.leader_term import LoopDeps
from reconciler.converge.loop import Loop
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.status import FleetStatus, NodeStatus
from tests.bench import measure
from tests.bench.report import Table
from tests.converge.test_loop import Looped, Seen

INTERVAL_S = 60.0
SHARES = (0.01, 0.1, 0.5, 1.0)  # of the passes, after which memory is told
_GREW = 12  # lines told by `--trace`


def section(nodes: int, passes: int) -> list[Table]:
    found = measure.in_fresh_process("tests.bench.loop_passes", str(nodes), str(passes))
    rows = [(f"memory after pass {number}, KiB", round(1024 * mib)) for number, mib in found["mib"].items()]
    rows += [(f"CPU of a pass, the {which} tenth of them, ms", found[f"{which}_ms"]) for which in ("first", "last")]
    rows.append(("from pass to pass, s of the lab's time", found["apart_s"]))
    rows.append(("share of a core at rest, %", 100 * found["last_ms"] / (1000 * found["apart_s"])))
    return [
        Table(
            f"A loop at rest and its lab in one process: {nodes} nodes, {passes} passes, --interval {INTERVAL_S:g}s",
            ("", "figure"),
            rows,
            (
                "goals: memory stays as it is, at rest under 2 % of a core",
                "the lab hands facts over as values: what reading them over the wire costs comes on top (hosts, wire)",
            ),
        )
    ]


class Watch(Seen):
    """Metrics that note the memory and CPU of the process after each pass. `ended`: after so many."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self._wanted = passes
        self.cpu: list[float] = []
        self.mib: dict[int, float] = {}
        self.first: tracemalloc.Snapshot | None = None

    def passed(self, fleet: FleetStatus) -> None:
        super().passed(fleet)
        self.cpu.append(time.process_time())
        if self.passes in {max(1, round(share * self._wanted)) for share in SHARES}:
            self.mib[self.passes] = measure.rss_mib()
        if self.first is None and tracemalloc.is_tracing() and self.passes >= self._wanted / 10:
            self.first = tracemalloc.take_snapshot()

    @property
    def ended(self) -> bool:
        return self.passes >= self._wanted


class Resting(Looped):
    def loop(self, holder: str = "a", ledger: SqlLedger | None = None, seen: Seen | None = None) -> Loop:
        deps = LoopDeps(
            begin=lambda _: holder, ledger=ledger or self.ledger, clock=self.clock, gate=self.gate,
            metrics=seen or self.seen, progress=lambda _: None, signatures=lambda _: self.signatures,
            interval_s=INTERVAL_S,
        )  # fmt: skip
        return Loop(deps, self.feed, lambda _: self.fabric, holder=holder, pull_s=INTERVAL_S)


def measured(nodes: int, passes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as where:
        here = Resting(Path(where), nodes=nodes, racks=max(2, nodes // 16))
        here.seen = watch = Watch(passes)

        began = here.clock.elapsed

        async def meanwhile() -> None:
            while not watch.ended:
                await here.clock.sleep(INTERVAL_S)

        here.go(None, meanwhile)
        here.ledger.close()
    assert here.statuses() == {NodeStatus.CONVERGED}, "work was left to do: this was no loop at rest"
    each = [now - then for then, now in zip(watch.cpu, watch.cpu[1:], strict=False)]
    tenth = max(1, len(each) // 10)
    for line in _grown(watch):
        print(line, file=sys.stderr)
    return {
        "mib": watch.mib,
        "first_ms": 1000 * sum(each[:tenth]) / tenth,
        "last_ms": 1000 * sum(each[-tenth:]) / tenth,
        "apart_s": (here.clock.elapsed - began) / watch.passes,
    }


def _grown(watch: Watch) -> Iterator[str]:
    """Say which lines hold more memory than after a tenth of the passes, where it was traced."""
    if watch.first is not None:
        for one in tracemalloc.take_snapshot().compare_to(watch.first, "lineno")[:_GREW]:
            yield str(one)


if __name__ == "__main__":
    if "--trace" in sys.argv:
        tracemalloc.start()
    json.dump(measured(int(sys.argv[1]), int(sys.argv[2])), sys.stdout)
