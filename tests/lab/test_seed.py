"""A lab seeded from an observation has the state of the observed fleet: its plan is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.observe import observe
from reconciler.gate import certificate as proof
from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.keys import known_keys
from reconciler.lab.scenario import Scenario, load_scenario
from reconciler.lab.seed import seed_lab
from reconciler.model.desired import Fleet
from reconciler.model.gate import Binding, Certificate
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.records import Applied, NodeRecord
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from tests.lab.machines import HOUR, example_fleet

FLEET = example_fleet()


def observed(lab: Lab, clock: VirtualClock) -> Observation:
    epoch = clock.now() - timedelta(seconds=clock.seconds())
    return run_virtual(observe(lab.fleet, list(lab.fleet.nodes), LabFabric(lab, clock, epoch=epoch), clock), clock)


def planned(fleet: Fleet, seen: Observation, records: Mapping[str, NodeRecord]) -> Plan:
    gate = AcceptanceGate(known_keys(fleet).get)
    images = [node.profile.image for node in fleet.nodes.values() if node.profile.image is not None]
    request = PlanRequest("plan", {(image.name, image.version): gate.verified(image) for image in images})
    return plan_fleet(fleet, seen, LedgerSnapshot("ledger", records), seen.finished_at, request)


def steps(plan: Plan) -> Mapping[str, Any]:
    return {
        name: (node.goal, [action.id for action in node.actions], node.blocked and node.blocked.code, node.in_service)
        for name, node in plan.nodes.items()
    }


def differences(plan: Plan) -> Mapping[str, Any]:
    return {name: {(i.path, i.kind, str(i.observed)) for i in node.drift} for name, node in plan.nodes.items()}


def certified(fleet: Fleet, seen: Observation) -> dict[str, NodeRecord]:
    """Return records with certificates for the present state of all readable nodes."""
    found = {}
    for name, desired in fleet.nodes.items():
        assert desired.profile.acceptance is not None
        binding = proof.binding_of(desired, seen.nodes[name], proof.tests_digest(desired.profile.acceptance))
        certificate = None
        if isinstance(binding, Binding):
            certificate = Certificate("1.0", name, seen.finished_at, binding, (), adopted=True)
        found[name] = NodeRecord(name, serial=desired.serial, uuid=desired.uuid, certificate=certificate)
    return found


def seeded(fleet: Fleet, seen: Observation, records: Mapping[str, NodeRecord] | None = None) -> Observation:
    clock = VirtualClock(seen.finished_at)
    return observed(seed_lab(fleet, seen, clock.seconds, records=records), clock)


def scenario_with(faults: Mapping[str, Any]) -> Scenario:
    """Return a scenario with one fault per node."""
    plays = zip(FLEET.nodes, faults.items(), strict=False)
    return Scenario.model_validate({"nodes": {name: {"faults": {kind: given}} for name, (kind, given) in plays}})


FAULTS: Mapping[str, Mapping[str, Any]] = {
    "bmc_unreachable": {}, "bmc_wrong_password": {}, "bmc_garbage": {}, "wrong_machine": {}, "ssh_refused": {},
    "ssh_hang": {}, "host_hung": {}, "kubelet_not_ready": {}, "xid_79": {"gpu": 1}, "ecc_errors": {"gpu": 2},
    "nvlink_down": {"gpu": 0, "links": 3},
}  # fmt: skip


@pytest.mark.parametrize("certificates", [True, False])
@pytest.mark.parametrize(
    ("scenario", "seed"),
    [("clean", 0), ("drifted", 1), ("drifted", 2), ("drifted", 3), ("drifted", 4), ("demo", 0), ("blank", 0)],
)
def test_a_seeded_lab_needs_the_same_actions(scenario: str, seed: int, certificates: bool) -> None:
    clock = VirtualClock()
    lab = build_lab(FLEET, load_scenario(scenario), clock.seconds, seed=seed)
    clock.elapsed = HOUR
    seen = observed(lab, clock)
    records = certified(FLEET, seen) if certificates else {}
    truth, rehearsed = planned(FLEET, seen, records), planned(FLEET, seeded(FLEET, seen), records)
    assert steps(rehearsed) == steps(truth)
    assert differences(rehearsed) == differences(truth)
    assert any(plan.changes for plan in truth.nodes.values()) == (scenario != "clean" or not certificates)


@pytest.mark.parametrize("certificates", [True, False])
def test_what_is_broken_or_silent_is_so_in_the_seeded_lab(certificates: bool) -> None:
    kinds = list(FAULTS.items())
    for start in range(0, len(kinds), len(FLEET.nodes)):
        clock = VirtualClock()
        chosen = scenario_with(dict(kinds[start : start + len(FLEET.nodes)]))
        clean = observed(build_lab(FLEET, load_scenario("clean"), clock.seconds), clock)
        lab = build_lab(FLEET, chosen, clock.seconds)
        clock.elapsed = HOUR
        seen = observed(lab, clock)
        records = certified(FLEET, clean) if certificates else {}
        again = seeded(FLEET, seen)
        assert steps(planned(FLEET, again, records)) == steps(planned(FLEET, seen, records)), list(chosen.nodes)


def test_a_host_that_is_off_has_what_the_ledger_remembers_of_it() -> None:
    clock = VirtualClock()
    play = Scenario.model_validate({"nodes": {"gpu-a001": {"drift": ["powered_off"]}}})
    seen = observed(build_lab(FLEET, play, clock.seconds), clock)
    applied = {"image.version": Applied("2025.01.0", "", "", seen.finished_at)}
    for record, version in (
        (NodeRecord("gpu-a001"), "2026.11.1"),
        (NodeRecord("gpu-a001", applied=applied), "2025.01.0"),
    ):
        lab = seed_lab(FLEET, seen, lambda: 0.0, records={"gpu-a001": record})
        [disk] = lab.machines["gpu-a001"].state.disks.values()
        assert disk.version == version


def test_the_same_seed_builds_the_same_lab() -> None:
    clock = VirtualClock()
    seen = observed(build_lab(FLEET, load_scenario("drifted"), clock.seconds, seed=3), clock)
    one, same, other = (seed_lab(FLEET, seen, lambda: 0.0, seed=seed).dump() for seed in (5, 5, 6))
    assert one == same
    assert one != other


def test_nobody_is_contacted_of_whom_nothing_is_known() -> None:
    """A node of which only the membership was read keeps its place in the cluster."""
    clock = VirtualClock()
    lab = build_lab(FLEET, load_scenario("clean"), clock.seconds)
    chosen = list(FLEET.nodes)[:1]
    seen = run_virtual(observe(FLEET, chosen, LabFabric(lab, clock), clock), clock)
    again = seed_lab(FLEET, seen, VirtualClock(seen.finished_at).seconds)
    assert again.cluster is not None
    assert lab.cluster is not None
    labels = {node.name: node.labels for node in lab.cluster.nodes()}
    assert {node.name: node.labels for node in again.cluster.nodes() if not node.control_plane} == {
        name: given for name, given in labels.items() if name in FLEET.nodes
    }


def test_marks_cordons_and_holds_of_others_are_kept() -> None:
    clock = VirtualClock()
    play = Scenario.model_validate({"nodes": {"gpu-a002": {"drift": ["foreign_cordon"]}}})
    lab = build_lab(FLEET, play, clock.seconds)
    assert lab.cluster is not None
    lab.cluster.update_node("gpu-a003", annotations={"reconciler.dev/owner": '{"ledger": "other"}'})
    seen = observed(lab, clock)
    again = seed_lab(FLEET, seen, VirtualClock(seen.finished_at).seconds)
    assert again.cluster is not None
    assert again.cluster.node("gpu-a002").unschedulable
    assert again.cluster.node("gpu-a003").annotations == {"reconciler.dev/owner": '{"ledger": "other"}'}
    assert replace(seen.nodes["gpu-a002"]) == seen.nodes["gpu-a002"]
