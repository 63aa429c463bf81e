"""A raised bar or a changed test, carried out wave by wave like a new image, and refused by what was measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.ports import Partners, SoakRun
from reconciler.converge.run import Ended
from reconciler.model.desired import Acceptance, GatePhase, GateTest, RolloutPolicy, Threshold
from reconciler.model.drift import DriftClass
from reconciler.model.errors import Position
from reconciler.model.gate import Certificate
from reconciler.model.limits import Guards
from reconciler.model.observed import Observed
from reconciler.model.plan import BlockCode, Plan
from reconciler.model.ports import Clock, Host
from tests import builders as b
from tests.converge.test_rollouts import BOTH, NEW, done, with_profile
from tests.converge.world import PROFILE, QuickGate, World

POLICY = RolloutPolicy(("1", "50%", "100%"), bake_s=600.0)
BAR = Position("acceptance.yaml", 12, 9)


def asking(bar: float, *more: GateTest, **changes: Any) -> Acceptance:
    fields: dict[str, Any] = {
        "name": "nccl", "tool": "nccl-tests", "args": {"size": "8G"}, "thresholds": (Threshold("busbw_peak", min=bar),),
        "timeout_s": 600.0,
    }  # fmt: skip
    return Acceptance("standard", (GatePhase("burn", (GateTest(**(fields | changes)), *more)),), None)


class MeasuringGate(QuickGate):
    """A gate that measures on each node what `speeds` says of it."""

    def __init__(self) -> None:
        super().__init__()
        self.speeds: dict[str, float] = {}

    async def run(
        self,
        desired: Any,
        host: Host,
        observed: Observed,
        clock: Clock,
        left_out: Collection[str] = (),
        soak: SoakRun | None = None,
        partners: Partners | None = None,  # noqa: ARG002 - the port's signature
    ) -> Certificate:
        found = await super().run(desired, host, observed, clock, left_out, soak)
        speed = {"busbw_peak": self.speeds[desired.node]}
        return replace(found, results=tuple(replace(r, metrics={**r.metrics, **speed}) for r in found.results))


@dataclass
class Measured(World):
    """A fleet in service whose certificates say what each node was measured at."""

    speeds: dict[str, float] = field(default_factory=dict)
    gate: MeasuringGate = field(default_factory=MeasuringGate)

    def __post_init__(self) -> None:
        self.profile = replace(PROFILE, digest="440", acceptance=asking(440))
        super().__post_init__()
        self.signatures = BOTH
        self.speeds = dict.fromkeys(self.fleet.nodes, 450.0) | self.speeds
        self.gate.speeds = dict(self.speeds)
        self.fleet = replace(self.fleet, rollouts={"train": POLICY})
        seen = self.observe()
        for name, node in self.fleet.nodes.items():
            self.ledger.save_certificate(
                replace(b.certificate(node, seen.nodes[name], busbw_peak=self.speeds[name]), issued_at=self.clock.now())
            )
        first = self.go()
        assert {end.state for end in first.results.values()} == {Ended.CONVERGED}, first.results

    def ask(self, acceptance: Acceptance, **profile: Any) -> None:
        places: Mapping[str, Position] = {"acceptance.phases.0.tests.0.thresholds.0": BAR}
        changed = replace(PROFILE, digest=repr((acceptance, profile)), acceptance=acceptance, provenance=places)
        self.fleet = with_profile(self.fleet, replace(changed, **profile))

    def guarded(self, **limits: str) -> None:
        guards = Guards("100%", "100%", "100%", **limits)
        self.fleet = replace(self.fleet, settings=replace(self.fleet.settings, guards=guards))

    def go(self, **changes: Any) -> ApplyReport:
        return self.apply(**({"wait_s": 0.0} | changes))

    def drained(self) -> list[str]:
        return sorted(n for n in self.fleet.nodes if any(a.action == "drain" for a in self.ledger.node(n).attempts))


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Measured]:
    return lambda **differences: Measured(tmp_path, **differences)


def gate_drift(plan: Plan, node: str) -> list[tuple[DriftClass, str]]:
    return [(item.kind, item.path) for item in plan.nodes[node].drift if item.path.startswith("gate.")]


def test_a_raised_bar_goes_in_waves(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=4)
    world.guarded(fail_gate="100%")
    world.ask(asking(490))
    world.gate.speeds |= dict.fromkeys(world.fleet.nodes, 495.0)  # a better cable, say: measured again, they pass
    plan = world.plan()
    assert gate_drift(plan, "n0") == [(DriftClass.PENDING, "gate.tests.nccl")]
    [rollout] = plan.rollouts
    assert [len(wave.nodes) for wave in rollout.waves] == [1, 1, 2]
    assert done(world.go()) == ["n0"]
    assert world.drained() == ["n0"], "the canary alone"
    world.clock.elapsed += 700
    assert done(world.go()) == ["n1"]
    world.clock.elapsed += 700
    world.go()
    assert world.drained() == ["n0", "n1", "n2", "n3"]
    assert not world.plan().rollouts


def test_a_canary_that_fails_the_new_bar_halts_it(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=4)
    world.guarded(fail_gate="100%")
    world.ask(asking(490))
    assert [end.node for end in world.go().of(Ended.FAILED)] == ["n0"]
    world.clock.elapsed += 3600
    world.go()
    assert world.drained() == ["n0"]
    plan = world.plan()
    [rollout] = plan.rollouts
    assert "busbw_peak 450 < 490" in rollout.halted
    blocked = plan.nodes["n1"].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.HALTED
    world.ask(asking(440))  # back: what was measured suffices again, and nothing is run
    world.clock.elapsed += 3600
    world.gate.runs.clear()
    world.go()
    assert not world.gate.runs
    assert all(plan.in_service for plan in world.plan().nodes.values())


def test_stored_metrics_refuse_it_beforehand(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=4, speeds={"n2": 441.0, "n3": 500.0})
    world.guarded()
    world.ask(asking(490))
    [refusal] = world.plan().refused
    assert refusal.startswith("it would test and fail 3 of 4 nodes, and 5% of 4 = 1 is the most at once (n0, n1, n2); ")
    assert "the worst is n2: nccl: busbw_peak 441 misses 490 by 10.0% (acceptance.yaml:12:9)" in refusal
    assert refusal.endswith("raise guards.failGate of the Fleet")
    world.guarded(fail_gate="3")
    assert not world.plan().refused


def test_nodes_without_metrics_are_said_to_be_unknown(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=4)
    world.guarded()
    world.ask(asking(440, args={"size": "16G"}))
    plan = world.plan()
    assert not plan.refused
    [note] = [note for note in plan.notes if "metrics" in note]
    assert "are stored for 4 of 4 nodes in service (n0, n1, n2, n3): whether they pass it is not known" in note
    assert [len(wave.nodes) for wave in plan.rollouts[0].waves] == [1, 1, 2]


def test_nodes_that_clear_the_new_bar_are_left_alone(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=4, speeds={"n0": 500.0, "n1": 500.0, "n2": 500.0})
    world.guarded()
    world.ask(asking(490))
    plan = world.plan()
    assert not plan.refused
    assert [n for n in plan.nodes if plan.nodes[n].actions] == ["n3"]


def test_a_lower_bar_drains_nobody(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=2)
    world.ask(asking(400))
    world.go()
    assert world.drained() == world.gate.runs == []


def test_a_test_that_is_taken_away_drains_nobody(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=2)
    world.guarded(fail_gate="100%")
    second = replace(asking(440).phases[0].tests[0], name="second")
    world.ask(asking(440, second))
    world.go(wait_s=36000.0)
    assert world.drained() == ["n0", "n1"], "an added test is a change"
    world.gate.runs.clear()
    world.ask(asking(440))
    world.go(wait_s=36000.0)
    assert not world.gate.runs


def test_bar_and_image_in_one_commit_take_one_drain(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=3)
    world.guarded(fail_gate="100%")
    world.gate.speeds |= dict.fromkeys(world.fleet.nodes, 495.0)
    world.ask(asking(490), image=NEW)
    report = world.go(wait_s=7200.0)
    assert len(done(report)) == 3, report.results
    for name in world.fleet.nodes:
        assert [a.action for a in world.ledger.node(name).attempts].count("drain") == 1
        assert world.machine(name).disk().version == NEW.version


def test_a_repair_before_its_wave_passes_the_new_tests_in_the_same_drain(measured: Callable[..., Measured]) -> None:
    world = measured(nodes=3)
    world.guarded(fail_gate="100%")
    world.gate.speeds |= dict.fromkeys(world.fleet.nodes, 495.0)
    world.machine("n2").state.boot_order = ["Pxe", "Hdd"]
    world.ask(asking(490))
    world.go()
    attempts = [a.action for a in world.ledger.node("n2").attempts]
    assert [attempts.count(name) for name in ("drain", "set_boot", "run_gate")] == [1, 1, 1]
    assert world.drained() == ["n0", "n2"], "the canary, and the node that is repaired"
