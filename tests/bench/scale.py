"""Load, resolve, diff, plan and write, for fleets of growing size.

Run as a module, this is the measured process: `python -m tests.bench.scale SPEC STORE` prints JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.bench import measure
from tests.bench.report import Table

if TYPE_CHECKING:
    from reconciler.model.desired import Fleet
    from reconciler.model.observed import Observation
    from reconciler.model.plan import Plan
    from reconciler.model.records import NodeRecord
    from reconciler.planner.node.kept_plans import KeptPlans
    from tests.bench.store import Stored

T = TypeVar("T")
Planner = Callable[..., "Plan"]  # of an observation, the ledger's records, and plans that are kept, if any are

TARGET_S, TARGET_MIB = 15.0, 1536
SAMPLE = 300  # nodes for slow peers, whose figures are scaled up
EVERY = 100  # one of so many nodes has drifted
WRITTEN = 10_000  # nodes; larger plans for all nodes at once, half a gigabyte, are not written

IMPORT = "import"
LOAD = "load + resolve, nodes in CSV"
COLD = "diff + plan, cold: an empty ledger, every node behind"
CHANGED = "diff + plan, 1% of nodes changed"
CLEAN = "diff + plan, all clean"
KEPT_FIRST = "a leader's first pass, all clean: it keeps what it plans"
KEPT_CLEAN = "its later pass, the same readings: clean"
KEPT_AGAIN = "its later pass, all nodes read again: clean"
KEPT_CHANGED = "its later pass, the same readings: 1% changed"
BEHIND = "diff + plan, a new image for every node"
WRITE = "write the plan (1% changed) as JSON"
FLOOR_CSV = "floor: csv.DictReader + dataclasses"
PEER_YAML = "peer: the same as YAML, ruamel.yaml alone"
FLOOR_DIFF = "floor: the same values compared by hand"
PEER_DIFF = "peer: DeepDiff of every node"
FLOOR_JSON = "floor: json.dumps of the plan's values"
TOTAL_COLD = "loaded, resolved, diffed, planned: cold"
TOTAL_CHANGED = "loaded, resolved, diffed, planned: 1% changed"
PEAK_CHANGED = "at the peak of planning, 1% changed"
PEAK_KEPT = "at the peak of a later pass of a leader, 1% changed"
PEAK_COLD = "at the peak of planning, cold"
PEAK_BEHIND = "at the peak of planning, a new image for every node"
_ROWS = (
    (IMPORT, None), (LOAD, None), (FLOOR_CSV, LOAD), (PEER_YAML, LOAD), (COLD, None), (CHANGED, None),
    (FLOOR_DIFF, CHANGED), (PEER_DIFF, CHANGED), (CLEAN, None),
    (KEPT_FIRST, CLEAN), (KEPT_CLEAN, CLEAN), (KEPT_AGAIN, CLEAN), (KEPT_CHANGED, CHANGED),
    (BEHIND, None), (WRITE, None), (FLOOR_JSON, WRITE),
    (TOTAL_COLD, None), (TOTAL_CHANGED, None),
)  # fmt: skip


def section(sizes: Sequence[int]) -> list[Table]:
    found = [_of_size(size) for size in sizes]
    columns = ("nodes", *(f"{size:,}" for size in sizes))
    seconds = [_row(name, beside, [one["seconds"] for one in found]) for name, beside in _ROWS]
    growth = [
        (
            f"  {name}, ms a node",
            *(1e3 * one["seconds"][name] / size for one, size in zip(found, sizes, strict=True)),
            None,
        )
        for name in (TOTAL_COLD, TOTAL_CHANGED)
    ]
    return [
        Table(
            "Scale: seconds of CPU (one core; nothing here waits)",
            (*columns, "ours/this"),
            [*seconds, *growth],
            (
                f"target: {TARGET_S:g} s in total for 100,000 nodes",
                "the observation and the ledger's records are in memory; reading them: see `documents` and `wire`",
                "rows of a leader's passes: how many times as fast they are as the whole planning above",
                f"slow peers are tried on {SAMPLE} nodes and scaled up; every figure is the best of some runs",
            ),
        ),
        Table(
            "Scale: MiB that a fresh process holds",
            columns,
            [(name, *(one["mib"].get(name) for one in found)) for name in found[0]["mib"]],
            (
                f"target: {TARGET_MIB} MiB at the peak of planning 100,000 nodes",
                "no two nodes share a serial, MAC address, UUID, pod, instant or measurement",
            ),
        ),
    ]


def _row(name: str, beside: str | None, found: Sequence[Mapping[str, float]]) -> tuple[str | float | None, ...]:
    """Make a row. `beside`: figure that this is a floor or peer of. The ratio is of the largest measured fleet."""
    ratios = [one[beside] / one[name] for one in found if beside is not None and name in one]
    return f"  {name}" if beside else name, *(one.get(name) for one in found), ratios[-1] if ratios else None


def _of_size(nodes: int) -> Any:
    with stored_fleet(nodes) as (spec, store):
        return measure.in_fresh_process("tests.bench.scale", str(spec), str(store))


@contextmanager
def stored_fleet(nodes: int) -> Iterator[tuple[Path, Path]]:
    """Yield the paths of its spec and of its stored observation."""
    from reconciler.spec import load_spec
    from tests.bench.fleets import fleet_template, write_spec

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        spec = write_spec(directory / "fleet-spec", nodes)
        fleet = load_spec(spec, directory="fleet-spec")
        fleet_template(directory / "machines", fleet, EVERY).save(directory / "store")
        yield spec, directory / "store"


# --- in the measured process -------------------------------------------------------------------------------


def planner(fleet: Fleet, stored: Stored) -> Planner:
    from reconciler.app.runtime import paused_garbage_collection
    from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
    from reconciler.planner.fleet.planner import plan_fleet

    images = [node.profile.image for node in fleet.nodes.values() if node.profile.image]
    request = PlanRequest("plan", dict.fromkeys(((image.name, image.version) for image in images), True))

    def plan(observation: Observation, records: Mapping[str, NodeRecord], kept: KeptPlans | None = None) -> Plan:
        with paused_garbage_collection():
            now = stored.head.finished_at + timedelta(minutes=10)
            return plan_fleet(fleet, observation, LedgerSnapshot("bench", records), now, request, kept)

    return plan


def measured(spec: Path, store: Path) -> dict[str, Any]:
    """Measure memory first, because it hardly shrinks. Imports are measured too, so they are where a run has them."""
    mib = {"bare Python": measure.rss_mib()}
    with measure.spending() as spent:
        from reconciler.app.runtime import paused_garbage_collection
        from reconciler.cli.main import COLLECT
        from reconciler.model import documents  # noqa: F401
        from reconciler.planner.fleet.planner import plan_fleet  # noqa: F401
        from reconciler.spec import load_spec
    gc.set_threshold(*COLLECT)
    seconds = {IMPORT: spent.cpu}
    mib["imported"] = measure.rss_mib()

    def loaded() -> Fleet:
        with paused_garbage_collection():  # like the commands
            return load_spec(spec, directory="fleet-spec")

    fleet = loaded()
    mib["loaded and resolved"] = measure.rss_mib()
    seconds[LOAD] = _best(loaded)

    from tests.bench.store import restore

    stored = restore(store)
    mib["with observation and ledger records"] = measure.rss_mib()
    plan = planner(fleet, stored)
    _changed(plan, stored, len(fleet.nodes), seconds, mib)
    seconds |= _peers(spec, fleet, stored.some_drifted())
    _cold(plan, stored, len(fleet.nodes), seconds, mib)
    _behind(plan, stored, len(fleet.nodes), seconds, mib)
    totals = {TOTAL_COLD: seconds[LOAD] + seconds[COLD], TOTAL_CHANGED: seconds[LOAD] + seconds[CHANGED]}
    return {"seconds": seconds | totals, "mib": mib}


def _changed(plan: Planner, stored: Stored, nodes: int, seconds: dict[str, float], mib: dict[str, float]) -> None:
    from reconciler.model.documents import dump

    some, clean = stored.some_drifted(), stored.all_clean()
    measure.forget_peak()
    seconds[CHANGED], planned = _once(lambda: plan(some, stored.records))
    assert planned.totals.nodes_with_changes == len(stored.drifted), planned.totals
    mib[PEAK_CHANGED] = measure.peak_mib()
    seconds[WRITE], document = _once(lambda: dump(planned))
    mib["the plan (1% changed) as JSON"] = len(document.encode()) / 2**20
    mib["at the peak of writing it"] = measure.peak_mib()
    if nodes <= WRITTEN:
        seconds[FLOOR_JSON] = _floor_json(planned)
        seconds[WRITE] = _best(lambda: dump(planned), seconds[WRITE])
    seconds[CHANGED] = _best(lambda: plan(some, stored.records), seconds[CHANGED])
    seconds[CLEAN], untouched = _once(lambda: plan(clean, stored.records))
    assert not untouched.changes
    seconds[CLEAN] = _best(lambda: plan(clean, stored.records), seconds[CLEAN])
    _kept(plan, stored, seconds, mib)


def _kept(plan: Planner, stored: Stored, seconds: dict[str, float], mib: dict[str, float]) -> None:
    """Measure the passes of one leader. Between two of them nothing has changed, or 1% of the nodes."""
    from reconciler.planner.node.kept_plans import KeptPlans

    some, clean, kept = stored.some_drifted(), stored.all_clean(), KeptPlans()
    seconds[KEPT_FIRST] = _once(lambda: plan(clean, stored.records, kept))[0]
    seconds[KEPT_CLEAN] = _best(lambda: plan(clean, stored.records, kept))
    assert kept.served == len(stored.clean)
    found = []
    measure.forget_peak()
    for _ in range(3):
        spent, planned = _once(lambda: plan(some, stored.records, kept))
        assert planned.totals.nodes_with_changes == kept.made == len(stored.drifted)
        found.append(spent)
        plan(clean, stored.records, kept)
    seconds[KEPT_CHANGED], mib[PEAK_KEPT] = min(found), measure.peak_mib()
    again = [stored.read_again(at) for at in range(2)]
    seconds[KEPT_AGAIN] = min(_once(partial(plan, seen, stored.records, kept))[0] for seen in again)
    assert kept.served == len(stored.clean)


def _cold(plan: Planner, stored: Stored, nodes: int, seconds: dict[str, float], mib: dict[str, float]) -> None:
    behind = stored.all_behind()
    measure.forget_peak()
    seconds[COLD], planned = _once(lambda: plan(behind, {}))
    assert planned.totals.nodes_with_changes == nodes, planned.totals
    mib[PEAK_COLD] = measure.peak_mib()
    seconds[COLD] = _best(lambda: plan(behind, {}), seconds[COLD])


def _behind(plan: Planner, stored: Stored, nodes: int, seconds: dict[str, float], mib: dict[str, float]) -> None:
    """Measure after `_cold`, in which every node has an older image."""
    from reconciler.model.documents import dump

    behind = stored.all_clean()
    measure.forget_peak()
    seconds[BEHIND], planned = _once(lambda: plan(behind, stored.records))
    mib[PEAK_BEHIND] = measure.peak_mib()
    seconds[BEHIND] = _best(lambda: plan(behind, stored.records), seconds[BEHIND])
    if nodes <= WRITTEN:
        mib["the plan for a new image as JSON"] = len(dump(planned).encode()) / 2**20
        mib["at the peak of writing that one"] = measure.peak_mib()


def _floor_json(plan: Plan) -> float:
    from reconciler.model.documents import adapter
    from reconciler.model.plan import Plan
    from tests.bench import peers

    values = adapter(Plan).dump_python(plan, mode="json")
    return _best(lambda: peers.write_json(values))


def _peers(spec: Path, fleet: Fleet, observation: Observation) -> dict[str, float]:
    from tests.bench import peers

    text = peers.as_yaml(spec, SAMPLE)
    few = dict(islice(observation.nodes.items(), SAMPLE))
    scaled = len(fleet.nodes) / len(few)
    return {
        FLOOR_CSV: _best(lambda: peers.read_csv(spec, fleet)),
        PEER_YAML: scaled * _best(lambda: peers.read_yaml(text)),
        FLOOR_DIFF: _best(lambda: peers.compare_by_hand(fleet, observation.nodes)),
        PEER_DIFF: scaled * _best(lambda: peers.deep_diff(fleet, few)),
    }


def _once(work: Callable[[], T]) -> tuple[float, T]:
    with measure.spending() as spent:
        result = work()
    return spent.cpu, result


def _best(work: Callable[[], object], *found_before: float) -> float:
    """Return the CPU seconds of the best of five runs, or of as many as fit into two seconds."""
    found = list(found_before)
    while not found or (len(found) < 5 and sum(found) < 2):
        found.append(_once(work)[0])
    return min(found)


if __name__ == "__main__":
    json.dump(measured(Path(sys.argv[1]), Path(sys.argv[2])), sys.stdout)
