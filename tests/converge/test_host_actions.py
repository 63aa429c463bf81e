"""Configuration, MIG, trust and gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.actions.host import SYSCTL_FILE
from reconciler.model.desired import DesiredGpu, DesiredHost, IgnoreRule
from reconciler.model.gate import Verdict
from reconciler.model.outcome import Done, Outcome, Permanent, Transient
from reconciler.model.records import REFUTED
from tests import builders as b
from tests.converge.world import IMAGE, PROFILE, QuickGate, World

Worlds = Callable[..., World]


def test_configuration_holds_now_and_after_a_boot(world: Worlds) -> None:
    drift = ["sysctl_off", "wrong_hostname", {"service_stopped": {"name": "containerd"}}]
    here = world(nodes=1, drift={"n0": drift})
    assert isinstance(here.act("configure_host"), Done)

    def as_wanted() -> bool:
        system = here.machine("n0").system()
        return (system.sysctls["vm.swappiness"], system.hostname, system.services_active["containerd"]) == (
            "1", "n0", True,
        )  # fmt: skip

    assert as_wanted()
    here.act("soft_restart")
    assert as_wanted()
    assert here.act("configure_host") == Done("nothing to configure", changed=False)


def test_what_an_ignore_rule_covers_is_not_written(world: Worlds) -> None:
    host = DesiredHost({"vm.swappiness": "1", "kernel.numa_balancing": "0"}, {})
    rule = IgnoreRule("host.sysctls.vm.swappiness", "a vendor's tool sets it")
    here = world(nodes=1, profile=replace(PROFILE, digest="two", host=host), settings={"ignore": (rule,)})
    machine = here.machine("n0")
    machine.write_file(SYSCTL_FILE, "")
    machine.sysctl_write("vm.swappiness", "60")
    machine.sysctl_write("kernel.numa_balancing", "1")
    assert isinstance(here.act("configure_host"), Done)
    assert machine.system().sysctls["vm.swappiness"] == "60"
    assert machine.system().sysctls["kernel.numa_balancing"] == "0"
    assert "vm.swappiness" not in machine.disk().files[SYSCTL_FILE]
    assert "kernel.numa_balancing = 0" in machine.disk().files[SYSCTL_FILE]


def test_a_service_that_is_not_there_is_named(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": [{"service_stopped": {"name": "containerd"}}]})
    del here.machine("n0").disk().services["containerd"]
    outcome = here.act("configure_host")
    assert isinstance(outcome, Permanent)
    assert "containerd.service does not exist" in outcome.detail


@pytest.mark.parametrize("action", ["configure_host", "run_gate", "set_gpu_mode"])
@pytest.mark.parametrize("fault", ["ssh_refused", "ssh_hang"])
def test_a_host_that_does_not_answer_is_a_passing_failure(world: Worlds, action: str, fault: str) -> None:
    here = world(nodes=1, drift={"n0": ["wrong_hostname"]})
    context: dict[str, Any] = {"observed": here.observe().nodes["n0"], "drift": here.plan().nodes["n0"].drift}
    here.machine("n0").inject(fault)
    assert isinstance(here.act(action, **context), Transient)


# --- MIG -------------------------------------------------------------------------------------------------------------

MIG = replace(PROFILE, digest="mig", gpu=DesiredGpu({"3g.40gb": 1, "1g.10gb": 2}))


def layout(here: World) -> list[list[str]]:
    return [sorted(name for name, _ in gpu.mig_instances) for gpu in here.machine("n0").state.gpus]


@pytest.fixture
def quiet(world: Worlds) -> Callable[..., World]:
    """Nothing holds the GPUs, as after a drain."""

    def build(**differences: Any) -> World:
        here = world(nodes=1, **differences)
        here.act("mark")
        here.act("drain")
        return here

    return build


def test_mig_off_and_on_again(quiet: Worlds) -> None:
    here = quiet(profile=MIG)
    wanted = [["1g.10gb", "1g.10gb", "3g.40gb"]] * 4
    assert layout(here) == wanted
    assert here.act("set_gpu_mode") == Done("the layout is there already", changed=False)
    assert here.act("set_gpu_mode", target="off") == Done("MIG is off")
    assert not any(gpu.mig_enabled for gpu in here.machine("n0").state.gpus)
    assert here.act("set_gpu_mode", target="off") == Done("MIG is off already", changed=False)
    assert isinstance(here.act("set_gpu_mode"), Done)
    assert layout(here) == wanted


def test_another_layout_is_replaced(quiet: Worlds) -> None:
    here = quiet(profile=MIG, drift={"n0": ["wrong_mig"]})
    assert isinstance(here.act("set_gpu_mode"), Done)
    assert layout(here) == [["1g.10gb", "1g.10gb", "3g.40gb"]] * 4


def test_a_mode_that_waits_for_a_restart_gets_one(quiet: Worlds) -> None:
    """K4: before Hopper."""
    inventory = replace(PROFILE.inventory, gpu_model="NVIDIA A100-SXM4-80GB")
    here = quiet(profile=replace(PROFILE, digest="a100", inventory=inventory, gpu=DesiredGpu({"3g.40gb": 2})))
    before = here.machine("n0").system().boot_id
    assert isinstance(here.act("set_gpu_mode", target="off"), Done)
    assert here.machine("n0").system().boot_id != before
    assert not any(gpu.mig_enabled for gpu in here.machine("n0").state.gpus)


def test_a_profile_that_the_gpu_does_not_have_is_named(quiet: Worlds) -> None:
    here = quiet()
    wrong = replace(here.fleet.nodes["n0"], profile=replace(PROFILE, digest="x", gpu=DesiredGpu({"9g.99gb": 1})))
    outcome = here.act("set_gpu_mode", desired=wrong)
    assert isinstance(outcome, Permanent)
    assert "9g.99gb" in outcome.detail


# --- proof -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "ends"),
    [(Verdict.PASS, Done), (Verdict.FAIL, Permanent), (Verdict.UNJUDGED, Transient), (Verdict.ERROR, Transient)],
)
def test_the_gate_s_verdict_decides_and_its_measurements_are_kept(
    world: Worlds, verdict: Verdict, ends: type[Outcome]
) -> None:
    here = world(nodes=1, gate=QuickGate(n0=verdict))
    assert isinstance(here.act("run_gate"), ends)
    certificate = here.ledger.node("n0").certificate
    assert certificate is not None
    assert certificate.results[0].verdict is verdict


def test_trust_is_asked_of_the_gate(world: Worlds) -> None:
    here = world(nodes=2)
    assert isinstance(here.act("check_trust"), Done)
    other = here.observe().nodes["n1"]
    assert isinstance(here.act("check_trust", observed=other), Permanent)


MEASURED = replace(
    PROFILE, digest="measured", image=replace(IMAGE, measurements=b.MEASURED.measurements), measurements=b.PLATFORM
)


def test_a_measured_boot_must_be_proved_by_the_node_s_own_tpm(world: Worlds) -> None:
    here = world(nodes=2, profile=MEASURED)
    assert isinstance(here.act("check_trust"), Done)
    record = here.ledger.node("n0")
    assert record.endorsement == "n0"
    assert record.attestation is not None
    assert record.attestation.boot_id == here.machine("n0").system().boot_id
    here.gate.tpms["n1"] = "n0"
    other = here.act("check_trust", "n1")
    assert isinstance(other, Permanent)
    assert "its TPM is that of node n0" in other.detail
    here.gate.tpms["n0"] = "a new one"
    changed = here.act("check_trust")
    assert isinstance(changed, Permanent)
    assert "another one than at its first enrolment" in changed.detail
    assert here.ledger.node("n1").attestation is None


def test_a_node_that_does_not_prove_its_boot_is_not_admitted(world: Worlds) -> None:
    here = world(nodes=2, profile=MEASURED, drift={"*": ["bios_off"]})
    here.adopt()
    here.gate.boots["n1"] = Verdict.FAIL
    here.apply()
    assert here.did("n0")[-1] == "admit"
    assert here.gate.attested.count("n0") == 1
    assert "admit" not in here.did("n1")
    assert here.did("n1")[-1] == "check_trust!permanent"


def test_a_quote_takes_a_node_out_only_where_it_is_of_the_boot_that_was_seen(world: Worlds) -> None:
    here = world(nodes=1, profile=MEASURED)
    here.gate.boots["n0"] = Verdict.FAIL
    booted_since = here.act("check_trust", resumed={"boot_id": "another"})
    assert isinstance(booted_since, Permanent)
    assert not booted_since.detail.startswith(REFUTED)
    seen = here.act("check_trust")
    assert isinstance(seen, Permanent)
    assert seen.detail.startswith(REFUTED)


def test_a_boot_of_a_node_in_service_is_proved_without_disturbing_it(world: Worlds) -> None:
    here = world(nodes=1, profile=MEASURED)
    here.adopt()
    here.apply()
    assert here.did("n0") == ["check_trust"]
    assert here.apply().plan.nodes["n0"].actions == ()
    here.act("soft_restart")
    here.apply()
    assert here.gate.attested == ["n0", "n0"]


def test_a_kubelet_that_was_stopped_is_started_before_it_has_to_end_pods(world: Worlds) -> None:
    here = world(nodes=1)
    here.machine("n0").service_set("kubelet", active=False, enabled=False)
    here.apply()  # no certificate: it is drained for its gate
    assert here.did("n0") == ["mark", "configure_host", "drain", "run_gate", "admit"]
    assert here.serves("n0")
