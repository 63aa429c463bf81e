"""Profile loading and planning: functions by their own time.

Run as a module, this is the profiled process: `python -m tests.bench.hot_spots SPEC STORE` prints JSON.
"""

from __future__ import annotations

import cProfile
import gc
import json
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import measure
from tests.bench.report import Table

ROWS = 15
_COLUMNS = ("function", "calls", "own s", "own %", "with callees s")


def section(nodes: int) -> list[Table]:
    from tests.bench.scale import stored_fleet

    with stored_fleet(nodes) as (spec, store):
        found = measure.in_fresh_process("tests.bench.hot_spots", str(spec), str(store))
    notes = ("under cProfile, which makes calls dear: shares tell more than seconds",)
    return [
        Table(f"Hot spots: {work}, {nodes:,} nodes", _COLUMNS, [tuple(row) for row in rows], notes)
        for work, rows in found.items()
    ]


# --- in the measured process -------------------------------------------------------------------------------


def profiled(spec: Path, store: Path) -> dict[str, list[list[Any]]]:
    from reconciler.cli.main import COLLECT
    from reconciler.spec import load_spec
    from tests.bench.scale import planner
    from tests.bench.store import restore

    gc.set_threshold(*COLLECT)
    fleet = load_spec(spec, directory="fleet-spec")
    stored = restore(store)
    plan, some = planner(fleet, stored), stored.some_drifted()
    found = {
        "load + resolve": _hot_spots(lambda: load_spec(spec, directory="fleet-spec")),
        "diff + plan, 1% changed": _hot_spots(lambda: plan(some, stored.records)),
    }
    behind = stored.all_behind()
    return found | {"diff + plan, cold": _hot_spots(lambda: plan(behind, {}))}


def _hot_spots(work: Callable[[], object]) -> list[list[Any]]:
    profile = cProfile.Profile(time.process_time)
    profile.runcall(work)
    stats: Any = pstats.Stats(profile)  # its fields are untyped
    rows = sorted(stats.stats.items(), key=lambda row: -row[1][2])[:ROWS]
    return [[_name(*place), calls, own, 100 * own / stats.total_tt, whole] for place, (_, calls, own, whole, _) in rows]


def _name(file: str, line: int, function: str) -> str:
    path = Path(file)
    if path.is_relative_to(measure.ROOT / "reconciler"):
        return f"{path.relative_to(measure.ROOT / 'reconciler')}:{line} {function}"
    return function if file == "~" else f"{path.name}:{line} {function}"


if __name__ == "__main__":
    json.dump(profiled(Path(sys.argv[1]), Path(sys.argv[2])), sys.stdout)
