"""Reading by workers of an engine: what it costs beside reading in this process, and how it grows with workers.

Scheduler, workers, lab and leader are processes of one machine, so that the CPU of each is measured apart.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.bench import measure, wire
from tests.bench.report import Table
from tests.engine.world import Engine, make_certificates, running_engine

GOAL_OVERHEAD = 0.10
GOAL_SHARD_MS = 20
_WHO = ("leader", "workers", "scheduler", "all")


def section(nodes: int, workers: tuple[int, ...]) -> list[Table]:
    with wire.running_lab(nodes) as (directory, _), tempfile.TemporaryDirectory() as scratch:
        for pool in (directory / "fleet-spec/pools").glob("*.yaml"):
            pool.write_text(pool.read_text().replace("spec:\n", "spec:\n  domains: {site: here}\n", 1))
        tls = make_certificates(Path(scratch) / "tls")
        here = _measured(directory, None, ())
        rows = [("in process", *_row(here, nodes, one)) for one in ("first", "hot")]
        for many in workers:
            names = {f"w{at}": "here" for at in range(many)}
            with running_engine(Path(scratch) / f"engine-{many}", tls, directory / "endpoints.json", **names) as engine:
                found = _measured(directory, engine, tuple(names))
            rows += [(f"{many} workers", *_row(found, nodes, one)) for one in ("first", "hot")]
    return [
        Table(
            f"Reading {nodes} nodes on loopback in process, and by workers of an engine",
            ("by", "pass", "seconds", "nodes/s", "leader ms/shard", *(f"{who} ms/node" for who in _WHO)),
            rows,
            (
                f"goals: all {GOAL_OVERHEAD:.0%} over in process at most; leader {GOAL_SHARD_MS} ms a shard at most",
                "hot: the mean of two passes. The cluster is not read: the leader does that in both cases",
                "the lab and all others share the cores of this machine: more workers read no faster where it has few",
            ),
        )
    ]  # fmt: skip


def _row(found: dict[str, Any], nodes: int, one: str) -> tuple[str | float, ...]:
    spent = found[one]
    parts = [1000 * spent[part] / nodes for part in _WHO[:-1]]
    return one, spent["wall"], nodes / spent["wall"], 1000 * spent["leader"] / found["shards"], *parts, sum(parts)


def _measured(directory: Path, engine: Engine | None, workers: tuple[str, ...]) -> dict[str, Any]:
    words = [str(directory)]
    if engine is not None:
        processes = [engine.processes[name].pid for name in ("scheduler", *workers)]
        words += [engine.url, str(engine.tls), *map(str, processes)]
    found: dict[str, Any] = measure.in_fresh_process("tests.bench.engine_passes", *words)
    return found
