"""Figures of detection for each row of the table: on recordings of real tools, and on machines of the lab.

A lab has a machine for each scene of reconciler/lab/signal_scenes.py and as many healthy ones. What a scene shows
beside its own signal is in docs/reference/signal-matrix.json, reviewed; anything else, and any signal of a healthy
machine, is wrong. Signals that one look can't tell (counters, silences) have their figures in that matrix alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from reconciler.converge.observe import observe
from reconciler.health.signals import signals
from reconciler.health.table import health_table
from reconciler.lab.fleet import build_lab
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.scenario import Scenario
from reconciler.lab.signal_scenes import SCENES
from reconciler.model.observed import Observation
from tests.conftest import ROOT
from tests.converge.world import desired_node, fleet_of
from tests.faults.signal_matrix import profile_of

SEEDS: Final = range(10)
_SILENCES: Final = ("bmc_silent", "host_silent", "kubelet_not_ready")
HEALTHY: Final = "well"


def at_one_look(name: str) -> bool:
    return name not in _SILENCES and health_table().rule_of(name).row.counters is None


def in_lab() -> dict[str, dict[str, int]]:
    """Return for each row: machines that should show it, those that do, and those that do and should not."""
    page = json.loads((ROOT / "docs/reference/signal-matrix.json").read_text())
    wanted = {
        name: {path.removeprefix("health.") for path in next(iter(cells.values()))["shown"]}
        for name, cells in page.items()
    }
    names = [name for name in SCENES if at_one_look(name)]
    due, told, wrong = Counter[str](), Counter[str](), Counter[str]()
    for seed in SEEDS:
        for scene, shown in _shown(names, seed).items():
            expected = wanted.get(scene, set())
            due.update({row for one in expected if (row := _row(one)) in names})
            told.update({_row(one) for one in shown & expected})
            wrong.update({_row(one) for one in shown - expected})
    return {name: {"due": due[name], "told": told[name], "wrong": wrong[name]} for name in names}


def _row(signal: str) -> str:
    """Return the name of the row of a signal: its own, or the longest that it begins with."""
    rules = health_table().rules
    begins = [name for name in rules if name.endswith("_") and signal.startswith(name)]
    return signal if signal in rules else max(begins, key=len, default=signal)


def _shown(names: list[str], seed: int) -> Mapping[str, set[str]]:
    """Return the signals of each machine, by its scene; of healthy ones by HEALTHY and a number."""
    nodes = {}
    for at, name in enumerate(names):
        nodes[name] = desired_node(f"n{at}", at, profile=profile_of(SCENES[name]))
        well = f"{HEALTHY}{at}"
        nodes[well] = desired_node(f"w{at}", 1000 + at, profile=profile_of(SCENES[name]))
    fleet = fleet_of(list(nodes.values()))
    clock = VirtualClock()
    lab = build_lab(fleet, Scenario.model_validate({"nodes": {}}), clock.seconds, seed=seed)
    clock.elapsed = 3600.0
    for name in names:
        machine, scene = lab.machines[nodes[name].node], SCENES[name]
        if scene.prepare is not None:
            scene.prepare(machine)
        if scene.fault:
            machine.inject(scene.fault, **scene.given)
        assert lab.cluster is not None
        lab.cluster.sync(nodes[name].node)
    fabric = LabFabric(lab, clock)
    seen: Observation = run_virtual(observe(fleet, list(fleet.nodes), fabric, clock, fresh_inventory=True), clock)
    return {
        name: {signal.name for signal in signals(desired.profile, seen.nodes[desired.node])}
        for name, desired in nodes.items()
    }


def figures(recorded: Any) -> dict[str, dict[str, Any]]:
    """Return the recordings that show each row, and of how many it is told, rightly or not, and missed."""
    found: dict[str, dict[str, Any]] = {}
    for path, wanted, shown, _ in recorded:
        for signal in wanted | shown:
            row = found.setdefault(_row(signal), {"recordings": [], "told": 0, "wrong": 0, "missed": 0})
            if signal in wanted:
                row["recordings"].append(path)
            row["told" if signal in wanted & shown else "missed" if signal in wanted else "wrong"] += 1
    return {name: {**row, "recordings": sorted({*row["recordings"]})} for name, row in found.items()}
