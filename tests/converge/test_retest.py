"""What was done decides what is tested: whole runs, and nodes that are tested again while nobody needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reconciler.converge.run import Ended
from reconciler.model.desired import Acceptance, BudgetLimit, GatePhase, GateTest, Profile, Revalidation, Threshold
from reconciler.model.drift import DriftClass
from tests import builders as b
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
DAY = 86400.0
TESTS = tuple(
    GateTest(name, tool, args, (), 600.0)
    for name, tool, args in (
        ("dcgm", "dcgmi-diag", {"level": 2}),
        ("nccl", "nccl-tests", {}),
        ("link", "perftest", {"rails": "mlx5_0"}),
    )
)
ACCEPTANCE = Acceptance("deep", (GatePhase("all", TESTS),), 90 * DAY)
ONE = {"budgets": (BudgetLimit("fleet", "1"),)}


def of(**changes: Any) -> Profile:
    return replace(PROFILE, digest=repr(changes), acceptance=replace(ACCEPTANCE, **changes))


def later(here: World, seconds: float) -> None:
    here.clock.elapsed += seconds


def certify(here: World, *, idle: bool = False) -> None:
    """Let each node have passed all tests as it is. `idle`: no job runs on any."""
    seen = here.observe()
    for name, node in here.fleet.nodes.items():
        here.ledger.save_certificate(replace(b.certificate(node, seen.nodes[name]), issued_at=here.clock.now()))
    cluster = here.lab.cluster
    assert cluster is not None
    for pod in [pod for pod in cluster.pods() if pod.evictable] if idle else ():
        cluster._forget(pod)  # it ended, and nobody wants another one


def ran(here: World) -> list[tuple[str, ...]]:
    return [names for _, names in here.gate.tested]


def test_new_firmware_of_a_nic_costs_the_tests_of_its_links(world: Worlds) -> None:
    here = world(nodes=1, profile=of(), drift={"n0": [{"old_firmware": {"component": "nic0"}}]})
    certify(here)
    plan = here.plan().nodes["n0"]
    [gate] = [action for action in plan.actions if action.name == "run_gate"]
    assert gate.because == ("firmware nic0 changes: link",)
    assert here.apply().results["n0"].state is Ended.DONE
    assert ran(here) == [("link",)]
    certificate = here.ledger.node("n0").certificate
    assert certificate is not None
    assert [result.test for result in certificate.measured] == ["link"]
    assert {name for proof in certificate.earlier for name in proof.tests} == {"dcgm", "nccl"}
    assert here.serves("n0")
    assert here.plan().nodes["n0"].actions == ()


def test_a_gate_keeps_what_the_node_measured_first(world: Worlds) -> None:
    """Gray decline: the lab's machine measures 2.0 from now on, where its first gate had found 2.2."""
    bar = Threshold("busbw_peak", min=1.0)
    tests = (TESTS[0], replace(TESTS[1], thresholds=(bar,)), TESTS[2])
    profile = of(phases=(GatePhase("all", tests),), validity_s=20 * DAY)
    here = world(nodes=1, profile=profile)
    made = b.certificate(here.fleet.nodes["n0"], here.observe().nodes["n0"], busbw_peak=2.2)
    here.ledger.save_certificate(replace(made, issued_at=here.clock.now()))
    assert here.plan().nodes["n0"].drift == ()
    for _ in range(2):
        later(here, 30 * DAY)
        assert here.apply().results["n0"].state is Ended.DONE
    assert len(ran(here)) == 2
    [item] = here.plan().nodes["n0"].drift
    assert (item.kind, item.path) == (DriftClass.REPORTED, "health.gray_decline_nccl.busbw_peak")
    assert item.observed == "2 GB/s, 9.1% less than the 2.2 GB/s when it first passed"
    assert here.serves("n0"), "it is reported, and no more"


def test_an_exchanged_drive_costs_the_tests_of_drives(world: Worlds) -> None:
    """A person pulled one and put another in: nothing of ours did it, and its serial number tells."""
    tests = (*TESTS, GateTest("drives", "fio", {}, (), 600.0))
    here = world(nodes=1, profile=of(phases=(GatePhase("all", tests),)))
    certify(here)
    assert here.plan().nodes["n0"].actions == ()
    drive = here.lab.machines["n0"].state.drives[-1]
    drive.serial = "EXCHANGED"
    [item] = here.plan().nodes["n0"].drift
    assert (item.kind, item.observed) == (DriftClass.RENEWAL, "a drive was exchanged: drives")
    assert here.apply().results["n0"].state is Ended.DONE
    assert ran(here) == [("drives",)]
    certificate = here.ledger.node("n0").certificate
    assert certificate is not None
    assert {name for proof in certificate.earlier for name in proof.tests} == {"dcgm", "nccl", "link"}
    assert here.serves("n0")
    assert here.plan().nodes["n0"].actions == ()


def test_a_sysctl_costs_no_test(world: Worlds) -> None:
    here = world(nodes=1, profile=of(), drift={"n0": ["sysctl_off"]})
    certify(here)
    here.apply()
    assert ran(here) == []
    assert "configure_host" in here.did("n0")


def test_an_image_costs_all_tests(world: Worlds) -> None:
    here = world(nodes=1, profile=of(), drift={"n0": ["old_image"]})
    certify(here)
    here.apply()
    assert ran(here) == [("dcgm", "nccl", "link")]


def test_an_idle_node_is_tested_before_its_results_expire(world: Worlds) -> None:
    """Within the budget, one after the other, and only those tests whose results end soon."""
    tests = (*TESTS[:2], replace(TESTS[2], validity_s=20 * DAY))
    profile = of(revalidate=Revalidation(7 * DAY), phases=(GatePhase("all", tests),))
    here = world(nodes=2, profile=profile, settings=ONE)
    certify(here, idle=True)
    assert [plan.actions for plan in here.plan().nodes.values()] == [(), ()]
    later(here, 14 * DAY)
    plan = here.plan().nodes["n0"]
    assert [(item.kind, item.observed) for item in plan.drift] == [(DriftClass.RENEWAL, "expires on 2027-01-21: link")]
    here.apply()
    assert here.gate.tested == [("n0", ("link",)), ("n1", ("link",))]
    assert here.serves("n0")
    assert here.serves("n1")
    here.apply()
    assert len(here.gate.tested) == 2, "it is over"


def test_a_node_with_work_is_not_drained_before_its_results_expire(world: Worlds) -> None:
    wish = Revalidation(7 * DAY)
    here = world(nodes=1, profile=of(revalidate=wish), settings=ONE)
    certify(here)
    later(here, 88 * DAY)
    assert here.plan().nodes["n0"].actions == ()
    node = replace(here.fleet.nodes["n0"], profile=of(revalidate=replace(wish, drain=True)))
    here.fleet = replace(here.fleet, nodes={"n0": node})
    assert "drain" in [action.name for action in here.plan().nodes["n0"].actions]


def test_a_node_without_work_for_a_month_is_tested_again(world: Worlds) -> None:
    """Nobody renews results before they expire here. One node after the other, within the budget, and once."""
    here = world(nodes=2, profile=of(), settings=ONE)
    certify(here, idle=True)
    here.apply()
    assert here.ledger.node("n0").idle_since is not None
    later(here, 29 * DAY)
    assert here.plan().nodes["n0"].actions == ()
    later(here, 5 * DAY)
    [item] = here.plan().nodes["n0"].drift
    assert item.kind is DriftClass.RENEWAL
    assert str(item.observed).startswith("no work and no gate since ")
    here.apply()
    assert here.gate.tested == [("n0", ("dcgm", "nccl", "link")), ("n1", ("dcgm", "nccl", "link"))]
    assert here.serves("n0")
    assert here.serves("n1")
    here.apply()
    assert len(here.gate.tested) == 2, "it is over"


def test_a_node_with_work_is_not_tested_for_the_month_before(world: Worlds) -> None:
    here = world(nodes=1, profile=of(), settings=ONE)
    certify(here)
    here.apply()
    assert here.ledger.node("n0").idle_since is None
    later(here, 60 * DAY)
    here.apply()
    assert here.gate.tested == []


def relabel(here: World) -> None:
    """Let all failure domains of the node have other names in the spec."""
    node = here.fleet.nodes["n0"]
    moved = replace(node, domains={label: f"{name}-new" for label, name in node.domains.items()})
    here.fleet = replace(here.fleet, nodes={"n0": moved})


def test_another_leaf_in_the_spec_costs_the_pairs(world: Worlds) -> None:
    here = world(nodes=1, profile=of(after={"fabric_changed": ("link",)}))
    certify(here, idle=True)
    relabel(here)
    [item] = here.plan().nodes["n0"].drift
    assert item.kind is DriftClass.RENEWAL
    assert str(item.observed).startswith("its place in the fabric changed since: ")
    here.apply()
    assert ran(here) == [("link",)]
    assert here.serves("n0")


def test_another_name_of_its_rack_drains_no_node_with_work(world: Worlds) -> None:
    """Nothing may have been moved, and no wave or guard holds back a renewal. What takes it out has it tested, too."""
    here = world(nodes=1, profile=of(after={"fabric_changed": ("link",)}, revalidate=Revalidation(DAY, drain=True)))
    certify(here)
    relabel(here)
    assert (here.plan().nodes["n0"].drift, here.plan().nodes["n0"].actions) == ((), ())
    here.apply()
    assert here.gate.tested == []
    node = here.fleet.nodes["n0"]
    other = replace(ACCEPTANCE, phases=(GatePhase("all", (replace(TESTS[0], args={"level": 3}), *TESTS[1:])),))
    profile = replace(node.profile, acceptance=replace(other, after={"fabric_changed": ("link",)}))
    here.fleet = replace(here.fleet, nodes={"n0": replace(node, profile=profile)})
    here.apply()
    assert ran(here) == [("dcgm", "link")]
    assert here.serves("n0")
