"""Load, resolve, diff, plan and write, for fleets of growing size.

Run as a module it is the process that is measured: `python -m tests.bench.scale SPEC STORE` prints JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from tests.bench import measure
from tests.bench.report import Table

TARGET_S, TARGET_MIB = 3.0, 400
SAMPLE = 300  # nodes that a slow peer is tried on; its figure is scaled up
EVERY = 100  # one node in so many has drifted

IMPORT = "import"
LOAD = "load + resolve, nodes in CSV"
DRIFTED = "diff + plan, 1% of nodes drifted"
CLEAN = "diff + plan, all clean"
BEHIND = "diff + plan, a new image for every node"
WRITE = "write the plan (1% drifted) as JSON"
FLOOR_CSV = "floor: csv.DictReader + dataclasses"
PEER_YAML = "peer: the same as YAML, ruamel.yaml alone"
PEER_DIFF = "peer: DeepDiff of every node"
FLOOR_JSON = "floor: json.dumps of the plan's values"
TOTAL = "loaded, resolved, diffed, planned (1%)"
_ROWS = (
    (IMPORT, None), (LOAD, None), (FLOOR_CSV, LOAD), (PEER_YAML, LOAD), (CLEAN, None), (DRIFTED, None),
    (PEER_DIFF, DRIFTED), (BEHIND, None), (WRITE, None), (FLOOR_JSON, WRITE), (TOTAL, None),
)  # fmt: skip


def section(sizes: Sequence[int]) -> list[Table]:
    found = [_of_size(size) for size in sizes]
    columns = ("nodes", *(f"{size:,}" for size in sizes))
    largest = found[-1]["seconds"]
    seconds = [
        (
            f"  {name}" if beside else name,
            *(one["seconds"][name] for one in found),
            largest[beside] / largest[name] if beside else None,
        )
        for name, beside in _ROWS
    ]
    return [
        Table(
            "Scale: seconds of CPU (one core; nothing here waits)",
            (*columns, "ours/this"),
            seconds,
            (
                f"target: {TARGET_S:g} s in total for 10,000 nodes",
                f"slow peers are tried on {SAMPLE} nodes and scaled up; every figure is the best of some runs",
            ),
        ),
        Table(
            "Scale: MiB that a fresh process holds",
            columns,
            [(name, *(one["mib"][name] for one in found)) for name in found[0]["mib"]],
            (f"target: {TARGET_MIB} MiB at the peak of planning 10,000 nodes",),
        ),
    ]


def _of_size(nodes: int) -> Any:
    from reconciler.spec import load_spec
    from tests.bench.fleets import observe_templates, truths, write_spec
    from tests.bench.store import save

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        templates = observe_templates(directory / "templates")
        spec = write_spec(directory / "fleet-spec", nodes)
        fleet = load_spec(spec, directory="fleet-spec")
        save(directory / "store", templates, truths(fleet, templates, EVERY))
        return measure.in_fresh_process("tests.bench.scale", str(spec), str(directory / "store"))


# --- in the process that is measured -------------------------------------------------------------------------------


def measured(spec: Path, store: Path) -> dict[str, Any]:
    """Memory first, for it can only grow. Imports stand where a run has them: they are part of what is measured."""
    mib = {"bare Python": measure.rss_mib()}
    with measure.spending() as spent:
        from reconciler.model.documents import adapter, dump
        from reconciler.model.plan import Plan
        from reconciler.planner.fleet import plan_fleet
        from reconciler.spec import load_spec
    seconds = {IMPORT: spent.cpu}
    mib["imported"] = measure.rss_mib()
    fleet = load_spec(spec, directory="fleet-spec")
    mib["loaded and resolved"] = measure.rss_mib()
    seconds[LOAD] = _best(lambda: load_spec(spec, directory="fleet-spec"))

    from tests.bench.store import restore

    stored = restore(store)
    mib["with observation and ledger records"] = measure.rss_mib()
    images = [node.profile.image for node in fleet.nodes.values() if node.profile.image]
    signatures = dict.fromkeys(((image.name, image.version) for image in images), True)

    def plan(observation: Any) -> Plan:
        return plan_fleet(
            fleet, observation, stored.records, now=stored.head.finished_at + timedelta(minutes=1), ledger="bench",
            plan_id="plan", signatures=signatures,
        )  # fmt: skip

    some, clean, behind = stored.some_drifted(), stored.all_clean(), stored.all_behind()
    planned = plan(some)
    assert planned.totals.nodes_with_changes == len(stored.drifted), planned.totals
    mib["at the peak of planning"] = measure.peak_mib()
    mib["the plan as JSON"] = len(dump(planned).encode()) / 2**20
    mib["at the peak of writing it"] = measure.peak_mib()
    values = adapter(Plan).dump_python(planned, mode="json")

    from tests.bench import peers

    text = peers.as_yaml(spec, SAMPLE)
    few = dict(islice(some.nodes.items(), SAMPLE))
    scaled = len(fleet.nodes) / len(few)
    seconds |= {
        FLOOR_CSV: _best(lambda: peers.read_csv(spec, fleet)),
        PEER_YAML: scaled * _best(lambda: peers.read_yaml(text)),
        CLEAN: _best(lambda: plan(clean)),
        DRIFTED: _best(lambda: plan(some)),
        PEER_DIFF: scaled * _best(lambda: peers.deep_diff(fleet, few)),
        BEHIND: _best(lambda: plan(behind)),
        WRITE: _best(lambda: dump(planned)),
        FLOOR_JSON: _best(lambda: peers.write_json(values)),
    }
    assert not plan(clean).changes
    mib["the plan for a new image as JSON"] = len(dump(plan(behind)).encode()) / 2**20
    mib["at the peak of writing that one"] = measure.peak_mib()
    return {"seconds": seconds | {TOTAL: seconds[LOAD] + seconds[DRIFTED]}, "mib": mib}


def _best(work: Callable[[], object]) -> float:
    """CPU seconds of the best of five runs, or of as many as fit into two seconds."""
    found: list[float] = []
    while not found or (len(found) < 5 and sum(found) < 2):
        with measure.spending() as spent:
            work()
        found.append(spent.cpu)
    return min(found)


if __name__ == "__main__":
    json.dump(measured(Path(sys.argv[1]), Path(sys.argv[2])), sys.stdout)
