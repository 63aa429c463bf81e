"""Changes of the spec, wave by wave, as apply carries them out over hours; only the ledger lives between runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.actions.host import SYSCTL_FILE
from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.desired import Fleet, RolloutPolicy
from reconciler.model.gate import Verdict
from reconciler.model.plan import BlockCode, WaveState
from tests.converge.world import FIRMWARE, IMAGE, PROFILE, SIGNATURES, World

NEW = replace(IMAGE, version="2026.11.2", sha256="e" * 64)
BOTH = {**SIGNATURES, (NEW.name, NEW.version): True}
POLICY = RolloutPolicy(("1", "50%", "100%"), bake_s=600.0)


class Rolled(World):
    """Converged once, and remembered so; `bump` changes what the spec wants of all of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.signatures = BOTH
        self.adopt()
        self.fleet = replace(self.fleet, rollouts={"pool": POLICY, "train": POLICY, "a": POLICY})
        first = self.apply()
        assert {end.state for end in first.results.values()} == {Ended.CONVERGED}, first.results

    def bump(self, **profile: Any) -> None:
        changed = replace(PROFILE, digest=repr(sorted(profile.items())), **profile)
        self.fleet = with_profile(self.fleet, changed)

    def go(self, **changes: Any) -> ApplyReport:
        return self.apply(**({"wait_s": 0.0} | changes))

    def look(self) -> Any:
        [rollout] = self.plan().rollouts
        return rollout


def with_profile(fleet: Fleet, profile: Any) -> Fleet:
    return replace(fleet, nodes={name: replace(node, profile=profile) for name, node in fleet.nodes.items()})


@pytest.fixture
def rolled(tmp_path: Path) -> Callable[..., Rolled]:
    return lambda **differences: Rolled(tmp_path, **differences)


def done(report: ApplyReport) -> list[str]:
    return sorted(end.node for end in report.of(Ended.DONE))


def test_waves_go_one_after_the_other_and_bake(rolled: Callable[..., Rolled]) -> None:
    here = rolled(nodes=6)
    here.bump(image=NEW)
    waves = [wave.nodes for wave in here.look().waves]
    assert [len(wave) for wave in waves] == [1, 2, 3]
    assert done(here.go()) == sorted(waves[0])
    baking = here.look()
    assert [wave.state for wave in baking.waves] == [WaveState.BAKING, WaveState.WAITING, WaveState.WAITING]
    assert here.go().executed == (), "it bakes"
    here.clock.elapsed += 700
    assert done(here.go()) == sorted(waves[1])
    here.clock.elapsed += 700
    assert done(here.go()) == sorted(waves[2])
    assert here.plan().rollouts == ()


def test_one_long_run_waits_for_what_bakes(rolled: Callable[..., Rolled]) -> None:
    here = rolled(nodes=6)
    here.bump(image=NEW)
    report = here.go(wait_s=7200.0)
    assert len(done(report)) == 6


def test_a_failed_canary_halts_and_a_hold_goes_on(rolled: Callable[..., Rolled]) -> None:
    here = rolled(nodes=6)
    here.bump(image=NEW)
    [canary] = here.look().waves[0].nodes
    here.gate.verdicts[canary] = Verdict.FAIL
    report = here.go(wait_s=7200.0)
    assert {end.state for name, end in report.results.items() if name != canary} == {Ended.NOT_STARTED}
    assert report.results[canary].state is Ended.FAILED
    [halted] = report.plan.rollouts
    assert canary in halted.halted
    assert all(wave.state is WaveState.HALTED for wave in halted.waves[1:])
    again = here.go(wait_s=7200.0)
    assert again.executed == ()
    assert all("rollout of pool" in end.detail for name, end in again.results.items() if name != canary)
    here.ledger.hold(canary, "for repair", "ops", None, here.clock.now())
    resumed = here.go(wait_s=7200.0)
    assert len(done(resumed)) == 5


def test_drift_is_repaired_while_a_wave_waits(rolled: Callable[..., Rolled]) -> None:
    here = rolled(nodes=6)
    here.bump(image=NEW)
    last = here.look().waves[-1].nodes[0]
    here.machine(last).state.bios["SriovGlobalEnable"] = "Disabled"
    report = here.go()
    assert here.serves(last)
    did = [one.action for one in report.executed if one.node == last]
    assert "soft_restart" in did
    assert "reimage" not in did
    assert here.plan().nodes[last].blocked.code is BlockCode.ROLLOUT  # type: ignore[union-attr]


@pytest.mark.parametrize("managed", [True, False], ids=["changed", "newly managed"])
def test_a_repair_sets_nothing_that_waits_for_its_wave(rolled: Callable[..., Rolled], *, managed: bool) -> None:
    """One action sets all of a concern: what drifted, and not what the spec has changed beside it."""
    before = {"vm.swappiness": "1", **({"kernel.numa_balancing": "1"} if managed else {})}
    here = rolled(nodes=6, profile=replace(PROFILE, host=replace(PROFILE.host, sysctls=before)))
    here.bump(host=replace(PROFILE.host, sysctls={**before, "kernel.numa_balancing": "0"}))
    last = here.look().waves[-1].nodes[0]
    here.machine(last).sysctl_write("vm.swappiness", "60")
    here.go()
    found, kept = here.machine(last).system().sysctls, here.machine(last).disk().files[SYSCTL_FILE]
    assert here.did(last) == ["configure_host"]
    assert (found["vm.swappiness"], found["kernel.numa_balancing"]) == ("1", "1")
    assert "vm.swappiness = 1\n" in kept
    assert ("kernel.numa_balancing = 1\n" in kept) == managed
    assert "kernel.numa_balancing = 0" not in kept, "the next boot would set it"


def test_what_the_spec_newly_manages_goes_in_waves_too(rolled: Callable[..., Rolled]) -> None:
    here = rolled(nodes=6)
    here.bump(host=replace(PROFILE.host, sysctls={**PROFILE.host.sysctls, "kernel.numa_balancing": "0"}))
    assert len(done(here.go())) == 1


def test_a_node_that_was_off_overtakes_no_wave_when_it_comes_back(rolled: Callable[..., Rolled]) -> None:
    """The versions of its devices can't be read while it has no power, so it is in no wave when the rollout begins."""
    here = rolled(nodes=4)
    here.machine("n3").power("force_off")
    here.clock.elapsed += 60
    nic = replace(FIRMWARE[2], version="2.1", url="https://fw/nic0-2.1")
    for machine in here.lab.machines.values():
        machine.firmware_images = {**machine.firmware_images, str(nic.url): {"NIC0": "2.1"}}
    here.bump(firmware=(*FIRMWARE[:2], nic))
    here.go()
    assert here.serves("n3")
    assert here.machine("n3").state.firmware["NIC0"].version == "2.0"
    assert here.machine("n0").state.firmware["NIC0"].version == "2.1"
    [first, *_] = here.look().waves
    assert "n3" not in first.nodes
