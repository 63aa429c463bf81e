"""Spares at the real pace: from the sign of a fault until a spare serves in place of the node that failed.

The reserve comes about as in a fleet: nobody is taken out of service for it, so the first nodes that fail become the
spares when they are repaired. Then as many others fail at once. The sign, the mark and when a spare serves are the
lab's; who goes in whose place, and when a node that failed is a spare itself, are the ledger's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.records import IN_PLACE_OF
from reconciler.spec import load_spec
from tests.bench import measure
from tests.bench.latency import edit, percentiles, reconciler, under_load
from tests.bench.report import Table
from tests.bench.reset import LADDER, PATIENCE_S, READY, inject, marks
from tests.bench.wire import running_lab

PERSONA = "training"
MARKED, BACK, REPAIRED = "sign -> cordon", "sign -> a spare serves: capacity is back", "sign -> repaired: a spare again"
GOALS = {MARKED: "p99 < 1", BACK: "< 90", REPAIRED: ""}
_LOOK_S = 1.0


def section(nodes: int, faults: int, *, scale: float = 1.0) -> list[Table]:
    """Let so many nodes of a persona with as many spares log an Xid at once, and return what each phase took."""
    with running_lab(nodes, time_scale=scale) as (directory, lab):
        edit(directory / "fleet-spec" / "fleet.yaml", "Fleet", spares={PERSONA: faults})
        with reconciler(directory, ladder=LADDER, acceptance=READY) as process:
            names = _of_persona(directory, 2 * faults)
            first, second = names[::2], names[1::2]
            _fail(directory, first)
            _wait_until_kept(directory, first)
            with under_load(lab, process) as load:
                began = _fail(directory, second)
                _wait_until_kept(directory, second)
        phases = [_phases(directory, name, at, first) for name, at in began.items()]
        told = _report(directory)
    rows = [
        (phase, *(f"{seconds:.2f}" for seconds in percentiles([one[phase] for one in phases])), goal)
        for phase, goal in GOALS.items()
    ]
    return [
        Table(
            f"{faults} of {nodes} nodes fail at once, with {faults} spares; seconds, at {scale:g} times the real pace",
            ("phase", "p50", "p99", "max", "goal"),
            rows,
            (
                *told,
                f"cores used: {load.cores()}; {os.cpu_count()} are there; load average {load.average:.1f}",
            ),
        )
    ]


def _of_persona(directory: Path, count: int) -> list[str]:
    """Return nodes of the persona, spread over its pools and racks."""
    nodes = load_spec(directory / "fleet-spec", directory="").nodes.values()
    names = [node.node for node in nodes if node.persona == PERSONA]
    return [names[int(at * len(names) / count)] for at in range(count)]


def _fail(directory: Path, names: Collection[str]) -> dict[str, tuple[float, float]]:
    """Let nodes log an Xid, and return when each did: by the lab's clock, and by that of the ledger."""
    return {name: (inject(directory, name), time.time()) for name in names}


def _wait_until_kept(directory: Path, names: Collection[str]) -> None:
    """Wait until nodes that fail have been repaired, and are kept as spares."""
    ends = time.monotonic() + PATIENCE_S
    while waiting := [name for name in names if not _times(directory, name, "reserve")]:
        if time.monotonic() > ends:
            raise RuntimeError(f"no spares within {PATIENCE_S:g} s: {', '.join(waiting)}; see {directory}/run.log")
        time.sleep(_LOOK_S)


def _times(directory: Path, name: str, action: str) -> dict[str, float]:
    """Return when attempts at an action ended that did what they were for, by their cause."""
    ledger = SqlLedger(directory / "ledger.db")
    try:
        attempts = ledger.node(name).attempts
    finally:
        ledger.close()
    return {
        one.cause: one.ended_at.timestamp()
        for one in attempts
        if one.action == action and one.outcome == "done" and one.ended_at is not None
    }


def _phases(directory: Path, failed: str, began: tuple[float, float], spares: Collection[str]) -> Mapping[str, float]:
    """Return the seconds of each phase of one node that failed."""
    since, since_wall = began
    marked = next(at for at, is_marked in marks(directory, failed) if is_marked and at >= since)
    spare = next(name for name in spares if IN_PLACE_OF + failed in _times(directory, name, "admit"))
    serves = next(at for at, is_marked in marks(directory, spare) if not is_marked and at >= since)
    repaired = max(_times(directory, failed, "reserve").values())
    return {MARKED: marked - since, BACK: serves - since, REPAIRED: repaired - since_wall}


def _report(directory: Path) -> list[str]:
    """Return what `report` tells of both: replacement and repair apart."""
    command = [sys.executable, "-m", "reconciler", "report", str(directory / "fleet-spec"), "--since", "1h"]
    command += ["--ledger", str(directory / "ledger.db")]
    made = subprocess.run(command, cwd=measure.ROOT, capture_output=True, text=True, check=True)
    lines = map(str.strip, made.stdout.splitlines())
    return [f"report: {line}" for line in lines if line.startswith(("Capacity back", "Back in service"))]
