"""Apply brings every node of a built-in scenario to its declared end, and a second run does nothing."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport, ApplyRequest, apply
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.run import Ended
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.generate import Addresses, generate_spec
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.keys import known_keys
from reconciler.lab.pki import ImageKey, SshAuthority, TlsAuthority
from reconciler.lab.scenario import End, load_scenario
from reconciler.model.desired import Fleet
from reconciler.model.records import MARK_TAINT
from reconciler.model.vocab import Provision
from reconciler.spec import load_spec
from tests.lab.machines import example_fleet

DAYS = 2 * 86400.0


@dataclass
class ScenarioRun:
    """Runs of the reconciler on a lab under a scenario, in virtual time."""

    lab: Lab
    clock: VirtualClock
    ledger: SqlLedger
    runs: int = 0

    def apply(self) -> ApplyReport:
        fabric = LabFabric(self.lab, self.clock)
        gate = AcceptanceGate(fabric.public_key)
        images = [node.profile.image for node in self.lab.fleet.nodes.values() if node.profile.image is not None]
        self.runs += 1
        request = ApplyRequest(
            fleet=self.lab.fleet,
            run=f"run-{self.runs}",
            plan_id=f"plan-{self.runs}",
            holder="test",
            signatures={(image.name, image.version): gate.verified(image) for image in images},
            wait_s=DAYS,
        )
        work = apply(request, fabric=fabric, ledger=self.ledger, clock=self.clock, gate=gate)
        return run_virtual(work, self.clock)

    def counters(self) -> dict[str, Any]:
        return {name: node["counters"] for name, node in self.lab.dump()["nodes"].items()}

    def ends(self) -> dict[str, End]:
        """Return the end of each node by the state of the lab."""
        assert self.lab.cluster is not None
        found = {}
        for node in self.lab.cluster.nodes():
            if node.name not in self.lab.machines:
                continue
            marked = any(taint.key == MARK_TAINT for taint in node.taints)
            cordoned = End.ISOLATED if marked else End.CORDONED
            found[node.name] = cordoned if node.unschedulable else End.CONVERGED
        return found


def run_scenario(tmp_path: Path, fleet: Fleet, scenario: str, seed: int, keys: dict[str, str]) -> ScenarioRun:
    clock = VirtualClock()
    lab = build_lab(fleet, load_scenario(scenario), clock.seconds, seed=seed, public_keys=keys)
    clock.elapsed = 3600.0
    run = ScenarioRun(lab, clock, SqlLedger(tmp_path / "ledger.sqlite"))
    weakref.finalize(run, run.ledger.close)
    return run


def check(run: ScenarioRun) -> None:
    first = run.apply()
    declared = {name: run.lab.scenario.expect(name) for name in run.lab.machines}
    in_service = {name: End.CONVERGED if end is End.LEFT_ALONE else end for name, end in declared.items()}
    assert run.ends() == in_service
    done = {name for name, end in declared.items() if end in (End.CONVERGED, End.CORDONED)}
    assert {n for n, result in first.results.items() if result.state in (Ended.DONE, Ended.CONVERGED)} == done
    counters = run.counters()
    assert {
        name for name, counted in counters.items() if counted["killed_work"] or counted["overwritten_drives"]
    } == set()
    second = run.apply()
    assert {name for name, result in second.results.items() if result.state is Ended.CONVERGED} == done
    assert run.counters() == counters


@pytest.mark.parametrize(("scenario", "seed"), [("demo", 0), ("drifted", 1), ("blank", 0)])
def test_the_worked_example_ends_as_declared(tmp_path: Path, scenario: str, seed: int) -> None:
    fleet = example_fleet()
    if scenario == "blank":  # the consent to wipe machines that never answered
        consenting = {name: replace(node, provision=Provision.BLANK) for name, node in fleet.nodes.items()}
        fleet = replace(fleet, nodes=consenting)
    check(run_scenario(tmp_path, fleet, scenario, seed, known_keys(fleet)))


def test_a_generated_fleet_ends_as_declared(tmp_path: Path) -> None:
    key, nodes = ImageKey(), [(20000 + 2 * at, 20001 + 2 * at) for at in range(8)]
    spec = tmp_path / "fleet-spec"
    ssh_ca = SshAuthority().public_key
    generate_spec(spec, Addresses(nodes, 1, 2), tls_ca=TlsAuthority().pem, ssh_ca=ssh_ca, image_key=key)
    fleet = load_spec(spec, directory="fleet-spec")
    check(run_scenario(tmp_path, fleet, "drifted", 7, known_keys(fleet, key.public_text)))
