"""Make a fleet of N nodes: its spec on disk with CSV inventories, and its observation.

A few lab machines, two per persona and drift, are observed in process. Every node of the fleet is a copy of one of them
with its own names, serials and all other values that differ between the two.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from reconciler.converge.observe import observe
from reconciler.gate.asked import kept_values
from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.lab.fleet import build_lab
from reconciler.lab.generate import Addresses, generate_spec
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.pki import ImageKey, SshAuthority, TlsAuthority
from reconciler.lab.scenario import Scenario
from reconciler.model.desired import Acceptance, Desired, Fleet
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.observed import Observation
from reconciler.model.records import Applied, NodeRecord
from reconciler.spec import load_spec
from tests.bench.store import DIGITS, FleetTemplate, PersonaTemplates, Template
from tests.builders import carried_by

POOL = 500  # nodes per pool, a quarter of them for inference
RACK = 16
_FIRST = 90_000  # number of the first machine that is copied
COLUMNS = ("name", "bmc", "host", "serial", "uuid", "hostname", "domains.rack")
DRIFTS: tuple[Any, ...] = (
    "old_image",
    "bios_off",
    {"old_firmware": {"component": "nic0"}},
    {"old_firmware": {"component": "bios"}},
    "wrong_mig",
    "powered_off",
    "missing_label",
    "sysctl_off",
    "service_stopped",
    "wrong_boot_order",
)
_PERSONAS = ("training", "inference")
_IMAGE = {"name": "ubuntu-gpu", "version": "2026.11.1"}  # as in lab.generate


# --- the spec ------------------------------------------------------------------------------------------------------


def write_spec(directory: Path, nodes: int, key: ImageKey | None = None) -> Path:
    """Write common files like `lab up`, and pools with nodes in CSV files. `key`: the key of the image."""
    _write_common(directory, key or ImageKey())
    for number, start in enumerate(range(0, nodes, POOL), start=1):
        rows = [row(at) for at in range(start, min(start + POOL, nodes))]
        split = len(rows) - len(rows) // 4
        for persona, members in zip(_PERSONAS, (rows[:split], rows[split:]), strict=True):
            _write_inventory(directory, f"{persona}-{number}", persona, members)
    return directory


def _write_inventory(directory: Path, name: str, persona: str, rows: Iterable[tuple[str, ...]]) -> None:
    with (directory / "pools" / f"{name}.csv").open("w", encoding="utf-8", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(rows)
    write_pool(directory, name, persona, inventory=f"pools/{name}.csv")


def _write_common(directory: Path, key: ImageKey) -> None:
    no_nodes = Addresses([], 8089, 8090)
    tls, ssh = TlsAuthority().pem, SshAuthority().public_key
    generate_spec(directory, no_nodes, tls_ca=tls, ssh_ca=ssh, image_key=key)
    (directory / "pools").mkdir()


def write_pool(directory: Path, name: str, persona: str, **nodes: Any) -> None:
    spec = {"image": dict(_IMAGE), "hardware": "hgx-h100", "persona": persona, **nodes}
    document = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
    with (directory / "pools" / f"{name}.yaml").open("w", encoding="utf-8") as out:
        YAML(typ="rt", pure=True).dump(document, out)


def row(at: int) -> tuple[str, ...]:
    name = f"gpu-{at:0{DIGITS}d}"
    high, low = at >> 16, f"{at >> 8 & 255}.{at & 255}"
    return (
        name,
        f"https://10.{20 + high}.{low}",
        f"10.{60 + high}.{low}",
        f"S{at:08d}",
        f"4c4c4544-0000-4000-8000-{at:012d}",
        name,
        f"r{at // RACK:04d}",
    )


# --- the observation ---------------------------------------------------------------------------------------------


def fleet_template(directory: Path, fleet: Fleet, every: int) -> FleetTemplate:
    """Observe `fleet`. Each `every`th node has drifted, by the drift kinds in turn."""
    ways: list[Any] = [*DRIFTS, None]  # None: a clean machine
    machines = [(persona, drift) for persona in _PERSONAS for drift in ways for _ in range(2)]
    machine_fleet, observation = _observe_machines(directory, machines)
    templates = {}
    for at, persona in enumerate(_PERSONAS):
        first = 2 * at * len(ways)
        found = [_template(first + 2 * way, observation.nodes.__getitem__) for way in range(len(ways))]
        record = _template(first + 2 * len(DRIFTS), lambda name: _record(machine_fleet.nodes[name], observation))
        profile = machine_fleet.nodes[row(_FIRST + first)[0]].profile
        applied = {
            path: Applied(value, profile.digest, "c0ffee", observation.finished_at)
            for path, value in kept_values(profile).items()
        }
        templates[persona] = PersonaTemplates(found[-1], tuple(found[:-1]), record, applied)
    personas = tuple(fleet.nodes[name].persona for name in sorted(fleet.nodes))  # by number
    return FleetTemplate(replace(observation, nodes={}), templates, personas, every)


def _template(at: int, value_of: Callable[[str], Any]) -> Template:
    number = _FIRST + at
    return Template.of(value_of(row(number)[0]), value_of(row(number + 1)[0]), number)


def _observe_machines(directory: Path, machines: Sequence[tuple[str, Any]]) -> tuple[Fleet, Observation]:
    """Observe lab machines of these personas and drifts, numbered from _FIRST on."""
    _write_common(directory, ImageKey())
    rows = [row(_FIRST + at) for at in range(len(machines))]
    for persona in _PERSONAS:
        members = [mine for mine, (owner, _) in zip(rows, machines, strict=True) if owner == persona]
        _write_inventory(directory, persona, persona, members)
    fleet = load_spec(directory, directory=str(directory))
    clock = VirtualClock()
    nodes = {mine[0]: {"drift": [drift] if drift else []} for mine, (_, drift) in zip(rows, machines, strict=True)}
    lab = build_lab(fleet, Scenario.model_validate({"nodes": nodes}), clock.seconds)
    return fleet, run_virtual(observe(fleet, list(fleet.nodes), LabFabric(lab, clock), clock), clock)


def _record(desired: Desired, observation: Observation) -> NodeRecord:
    """Return the ledger's record of a node that was converged once and passed its gate."""
    acceptance = desired.profile.acceptance
    assert acceptance is not None
    now = observation.finished_at
    binding = binding_of(desired, observation.nodes[desired.node], tests_digest(acceptance))
    assert isinstance(binding, Binding), binding
    certificate = Certificate("1.0", desired.node, now, binding, _results(acceptance, desired, binding))
    return NodeRecord(desired.node, serial=desired.serial, uuid=desired.uuid, certificate=certificate)


def _results(acceptance: Acceptance, desired: Desired, binding: Binding) -> tuple[TestResult, ...]:
    """Return test results a little above the thresholds, different for each machine."""
    tests = [test for phase in acceptance.phases for test in phase.tests]
    own = int(desired.node[-DIGITS:]) / 10**DIGITS
    return tuple(
        TestResult(
            test.name,
            test.tool,
            Verdict.PASS,
            (),
            carried_by(test, binding) | {bar.metric: (bar.min or 1.0) + own for bar in test.thresholds},
        )
        for test in tests
    )
