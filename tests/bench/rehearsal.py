"""`rehearse`: a new image for every node, in waves, on machines in virtual time.

Run as a module, this is the measured process: `python -m tests.bench.rehearsal NODES` prints JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import measure
from tests.bench.report import Table

if TYPE_CHECKING:
    from reconciler.app.rehearsal.inputs import RehearsalInput

TARGET_S = 60.0
_PAUSE_S = 60.0
_OLD = "old_image"


def section(sizes: Sequence[int]) -> list[Table]:
    found = [measure.in_fresh_process("tests.bench.rehearsal", str(size)) for size in sizes]
    last = found[-1]
    floor = "floor: BMC and host read before each action, and a wait: no planner, executor or ledger"
    return [
        Table(
            "Rehearsal: a new image for every node",
            ("nodes", *(f"{size:,}" for size in sizes), "ours/this"),
            [
                ("seconds of CPU", *(one["cpu"] for one in found), None),
                ("  ms a node", *(1e3 * one["cpu"] / size for one, size in zip(found, sizes, strict=True)), None),
                (f"  {floor}", *(one["floor"] for one in found), last["cpu"] / last["floor"]),
                ("seconds on the wall", *(one["wall"] for one in found), None),
                ("hours of the fleet", *(one["hours"] for one in found), None),
                ("actions", *(one["actions"] for one in found), None),
                ("two runs in two processes, times as fast", *(one["twice"] for one in found), None),
                ("MiB at the peak", *(one["mib"] for one in found), None),
            ],
            (f"target: {TARGET_S:g} s for 5,000 nodes, on a machine that does nothing else",),
        )
    ]


# --- in the measured process -------------------------------------------------------------------------------


def script(spec: Path, nodes: int) -> RehearsalInput:
    """Prepare a fleet that is converged to an older image and certified."""
    from reconciler.app.rehearsal.inputs import RehearsalInput
    from reconciler.converge.gate import AcceptanceGate
    from reconciler.converge.observe import observe
    from reconciler.gate.certificate import binding_of, tests_digest
    from reconciler.lab.fleet import build_lab
    from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
    from reconciler.lab.pki import ImageKey
    from reconciler.lab.scenario import Scenario
    from reconciler.model.gate import Binding, Certificate
    from reconciler.model.observed import Answered
    from reconciler.model.plan import Scope
    from reconciler.model.records import Applied, NodeRecord
    from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
    from reconciler.planner.fleet.planner import plan_fleet
    from reconciler.planner.node.estimates import Estimates
    from reconciler.spec import load_spec
    from tests.bench.fleets import write_spec

    key = ImageKey()
    fleet = load_spec(write_spec(spec, nodes, key), directory="fleet-spec")
    clock = VirtualClock(datetime.now(UTC))
    lab = build_lab(fleet, Scenario.model_validate({"nodes": {"*": {"drift": [_OLD]}}}), clock.seconds, seed=1)
    seen = run_virtual(observe(fleet, list(fleet.nodes), LabFabric(lab, clock), clock), clock)
    gate, now = AcceptanceGate({"release": key.public_text}.get), clock.now()
    images = {image.version: image for node in fleet.nodes.values() if (image := node.profile.image) is not None}
    signatures = {(image.name, image.version): gate.verified(image) for image in images.values()}
    records = {}
    for name, desired in fleet.nodes.items():
        acceptance, found = desired.profile.acceptance, seen.nodes[name]
        assert acceptance is not None
        assert isinstance(found.host, Answered)
        installed = found.host.value.image
        assert installed is not None
        binding = binding_of(desired, found, tests_digest(acceptance))
        assert isinstance(binding, Binding)
        older = {"version": installed.version, "sha256": installed.sha256, "driver": found.host.value.driver}
        records[name] = NodeRecord(
            name, serial=desired.serial, uuid=desired.uuid,
            applied={f"image.{part}": Applied(value, "", "", now) for part, value in older.items()},
            certificate=Certificate("1.0", name, now, binding, (), adopted=True),
        )  # fmt: skip
    plan = plan_fleet(fleet, seen, LedgerSnapshot("bench", records), now, PlanRequest("plan", signatures))
    assert plan.totals.nodes_with_changes == nodes, plan.totals
    assert plan.rollouts
    return RehearsalInput(
        fleet, seen, "", plan, None, None, Scope((), (), nodes, nodes), "bench", records, (), {}, Estimates(), (),
        signatures, gate, now, {},
    )  # fmt: skip


def measured(nodes: int) -> dict[str, Any]:
    from reconciler.app.rehearsal.simulation import rehearse
    from reconciler.cli.main import COLLECT

    gc.set_threshold(*COLLECT)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        made = script(Path(name) / "fleet-spec", nodes)
    measure.forget_peak()
    with measure.spending() as spent:
        found = rehearse(made, [0], lambda _: None)
    [run] = found.runs
    assert (run.converged, found.broken) == (nodes, ()), found
    mib = measure.peak_mib()
    return {
        "twice": _twice(made),
        "cpu": spent.cpu, "wall": spent.wall, "mib": mib, "hours": run.seconds / 3600, "actions": run.actions,
        "floor": _floor(made, run.actions // nodes),
    }  # fmt: skip


def _twice(made: RehearsalInput) -> float:
    """Return how many times as fast two runs are in two processes as one after the other, where two cores are free.

    By CPU, as others may use the cores, too: of this process, and of one of two that have as much to do.
    """
    from reconciler.app.rehearsal.simulation import rehearse

    spent = []
    for jobs in (1, 2):
        with measure.spending() as one:
            rehearse(made, [0, 1], lambda _: None, jobs)
            for child in multiprocessing.active_children():  # the pool does not wait for them
                child.join()
        spent.append(one.cpu + one.children / jobs)
    return spent[0] / spent[1]


def _floor(made: RehearsalInput, actions: int) -> float:
    """Return the CPU seconds of so many actions per node."""
    from reconciler.lab.fleet import build_lab
    from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
    from reconciler.lab.scenario import Scenario
    from reconciler.model.desired import Desired

    clock = VirtualClock(made.starts_at)
    lab = build_lab(made.fleet, Scenario.model_validate({"nodes": {}}), clock.seconds, seed=1)
    fabric = LabFabric(lab, clock, epoch=made.starts_at, latency=False)

    async def act(node: Desired) -> None:
        bmc, host, wanted = fabric.bmc(node), fabric.host(node), node.profile.host
        assert bmc is not None
        assert host is not None
        for _ in range(actions):
            await bmc.hot()
            await host.facts(tuple(wanted.sysctls), tuple(wanted.services))
            await clock.sleep(_PAUSE_S)

    async def all_of_them() -> None:
        await asyncio.gather(*map(act, made.fleet.nodes.values()))

    with measure.spending() as spent:
        run_virtual(all_of_them(), clock)
    return spent.cpu


if __name__ == "__main__":
    json.dump(measured(int(sys.argv[1])), sys.stdout)
