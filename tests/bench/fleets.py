"""A fleet of N nodes: its spec on disk, with CSV inventories, and what was observed of it.

A few lab machines, one per persona and drift, are observed in process; every node of the fleet then is a copy of one of
them with names and serials of its own.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from reconciler.converge.observe import observe
from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.lab.fleet import build_lab
from reconciler.lab.generate import Addresses, generate_spec
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.pki import ImageKey, SshAuthority, TlsAuthority
from reconciler.lab.scenario import Scenario
from reconciler.model.desired import Acceptance, Desired, Fleet
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.records import NodeRecord
from reconciler.spec import load_spec
from tests.bench.store import Truth

POOL = 500  # nodes, a quarter of them for inference
RACK = 16
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
_IMAGE = {"name": "ubuntu-gpu", "version": "2026.11.1"}  # what lab.generate writes


# --- the spec ------------------------------------------------------------------------------------------------------


def write_spec(directory: Path, nodes: int) -> Path:
    """Common files as `lab up` writes them; pools whose nodes stand in CSV files."""
    _write_common(directory)
    for number, start in enumerate(range(0, nodes, POOL), start=1):
        rows = [row(at) for at in range(start, min(start + POOL, nodes))]
        split = len(rows) - len(rows) // 4
        for persona, members in zip(_PERSONAS, (rows[:split], rows[split:]), strict=True):
            name = f"{persona}-{number}"
            with (directory / "pools" / f"{name}.csv").open("w", encoding="utf-8", newline="") as out:
                table = csv.writer(out, lineterminator="\n")
                table.writerow(COLUMNS)
                table.writerows(members)
            write_pool(directory, name, persona, inventory=f"pools/{name}.csv")
    return directory


def _write_common(directory: Path) -> None:
    no_nodes = Addresses([], 8089, 8090)
    tls, ssh = TlsAuthority().pem, SshAuthority().public_key
    generate_spec(directory, no_nodes, tls_ca=tls, ssh_ca=ssh, image_key=ImageKey())
    (directory / "pools").mkdir()


def write_pool(directory: Path, name: str, persona: str, **nodes: Any) -> None:
    spec = {"image": dict(_IMAGE), "hardware": "hgx-h100", "persona": persona, **nodes}
    document = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
    with (directory / "pools" / f"{name}.yaml").open("w", encoding="utf-8") as out:
        YAML(typ="rt", pure=True).dump(document, out)


def row(at: int) -> tuple[str, ...]:
    name = f"gpu-{at:05d}"
    low = f"{at >> 8}.{at & 255}"
    return (
        name,
        f"https://10.20.{low}",
        f"10.60.{low}",
        f"S{at:08d}",
        f"4c4c4544-0000-4000-8000-{at:012x}",
        name,
        f"r{at // RACK:04d}",
    )


# --- what was observed ---------------------------------------------------------------------------------------------


def observe_templates(directory: Path) -> Observation:
    """One lab machine per persona for each drift, and a clean one each."""
    _write_common(directory)
    nodes: dict[str, Any] = {}
    for persona in _PERSONAS:
        names = [f"{persona}-{at:02d}" for at in range(len(DRIFTS) + 1)]
        base = 1 + len(nodes)
        write_pool(
            directory,
            persona,
            persona,
            domains={"rack": "r1"},
            nodes=[
                {"name": name, "bmc": f"https://10.0.0.{base + at}", "host": f"10.1.0.{base + at}"}
                for at, name in enumerate(names)
            ],
        )
        drifts: list[Any] = [*DRIFTS, None]  # the last one is clean
        nodes |= {name: {"drift": [drift] if drift else []} for name, drift in zip(names, drifts, strict=True)}
    fleet = load_spec(directory, directory=str(directory))
    clock = VirtualClock()
    lab = build_lab(fleet, Scenario.model_validate({"nodes": nodes}), clock.seconds)
    return run_virtual(observe(fleet, list(fleet.nodes), LabFabric(lab, clock), clock), clock)


def truths(fleet: Fleet, templates: Observation, every: int) -> Iterator[Truth]:
    """One per node of `fleet`; each `every`th drifts, each in the next of the ways."""
    ways = len(DRIFTS)
    for at, desired in enumerate(fleet.nodes.values()):
        persona = desired.pool.rpartition("-")[0]
        clean = _own(templates.nodes[f"{persona}-{ways:02d}"], desired)
        drifted = None
        if at % every == every // 2:
            drifted = _own(templates.nodes[f"{persona}-{at // every % ways:02d}"], desired)
        yield Truth(clean, drifted, _record(desired, clean, templates))


def _own(template: Observed, desired: Desired) -> Observed:
    """A copy with this node's own name, serials and UUIDs."""
    sources: dict[str, Any] = {}
    for source in ("hot", "host", "member"):
        reading = getattr(template, source)
        if isinstance(reading, Answered) and reading.value is not None:
            value = replace(reading.value, **_identity(source, reading.value, desired))
            sources[source] = replace(reading, value=value)
    return replace(template, node=desired.node, **sources)


def _identity(source: str, value: Any, desired: Desired) -> Mapping[str, Any]:
    if source == "member":
        return {"name": desired.node, "uid": f"n-{desired.node}"}
    identity = {"serial": desired.serial, "uuid": desired.uuid}
    if source == "hot":
        return identity
    hostname = {"hostname": desired.node} if value.hostname is not None else {}
    gpus = [replace(gpu, serial=f"{desired.serial}-{gpu.index}", uuid=f"GPU-{desired.node}") for gpu in value.gpus]
    return {**identity, **hostname, "gpus": tuple(gpus)}


def _record(desired: Desired, clean: Observed, templates: Observation) -> NodeRecord:
    acceptance = desired.profile.acceptance
    assert acceptance is not None
    binding = binding_of(desired, clean, tests_digest(acceptance))
    assert isinstance(binding, Binding), binding
    certificate = Certificate("1.0", desired.node, templates.finished_at, binding, _results(acceptance))
    return NodeRecord(desired.node, serial=desired.serial, uuid=desired.uuid, certificate=certificate)


def _results(acceptance: Acceptance) -> tuple[TestResult, ...]:
    tests = [test for phase in acceptance.phases for test in phase.tests]
    return tuple(
        TestResult(test.name, test.tool, Verdict.PASS, (), {bar.metric: bar.min or 1.0 for bar in test.thresholds})
        for test in tests
    )
