"""The time of a gate: that of the tests that it runs, and of the soak that the spec declares."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from reconciler.app.rehearsal.gate import RehearsalGate
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.ports import SoakRun
from reconciler.lab.durations import ActionDuration, Durations
from reconciler.lab.failure_rates import FailureRates
from reconciler.model import desired as d
from reconciler.model import soak
from reconciler.model.observed import FirmwareItem
from reconciler.model.plan import PlannedAction
from reconciler.planner.node.estimates import Estimate, estimates
from reconciler.planner.node.workload import work
from tests import builders as b

HOUR = 3600.0
WHOLE = 1800.0  # of the catalogue, without a history
LOAD = d.GateTest("cpu", "stress-ng", {"seconds": 1800}, (d.Threshold("cpu.bogo_ops_s", 1.0),), 2400.0)


def one_test(name: str, timeout_s: float, tool: str = "dcgmi-diag", **args: Any) -> d.GateTest:
    return d.GateTest(name, tool, args, (), timeout_s)


SHORT, LONG, LOOK = one_test("short", 600, level=2), one_test("long", 1800, level=3), one_test("look", 600, "xid")
ACCEPTANCE = d.Acceptance("deep", (d.GatePhase("one", (LOOK, SHORT, LONG)), soak.phase(72 * HOUR, 2, (LOAD,))), None)
PARTS = 30 + 600 + 1800


def profile(acceptance: d.Acceptance = ACCEPTANCE, **changes: Any) -> d.Profile:
    return b.profile(acceptance=acceptance, **changes)


def gate(planner: Any = None, *, node: d.Desired | None = None, **record: Any) -> PlannedAction:
    wanted = node or b.node(profile=profile())
    known = b.record(wanted, **record)
    plan = (planner or b.planner()).plan(wanted, b.observed(), known)
    (found,) = [action for action in plan.actions if action.name == "run_gate"]
    assert isinstance(found, PlannedAction)
    return found


def test_a_gate_takes_as_long_as_its_soak_and_its_other_tests() -> None:
    assert gate(certificate=None).estimate_s == WHOLE + 72 * HOUR
    wanted = b.node(profile=profile(replace(ACCEPTANCE, phases=ACCEPTANCE.phases[:1])))
    assert gate(node=wanted, certificate=None).estimate_s == WHOLE


@pytest.mark.parametrize(
    ("lacks", "seconds"),
    [
        ({"short"}, WHOLE * (30 + 600) / PARTS),
        ({"long"}, WHOLE * (30 + 1800) / PARTS),
        ({"soak"}, WHOLE * 30 / PARTS + 72 * HOUR),
        ({"short", "long", "soak"}, WHOLE + 72 * HOUR),
    ],
)
def test_it_takes_less_where_results_stand(lacks: set[str], seconds: float) -> None:
    wanted = b.node(profile=profile())
    whole = b.certificate(wanted, b.observed(), hours=73.0)
    known = replace(whole, results=tuple(result for result in whole.results if result.test not in lacks))
    assert gate(certificate=known).estimate_s == pytest.approx(seconds, abs=0.1)


def test_two_nodes_that_lack_other_tests_have_each_its_own_time() -> None:
    """Nodes of one profile share a decision, which their certificates must tell apart."""
    wanted = b.node(profile=profile())
    whole, planner = b.certificate(wanted, b.observed(), hours=73.0), b.planner()
    found = {
        name: gate(planner, certificate=replace(whole, results=tuple(r for r in whole.results if r.test != name)))
        for name in ("short", "long", "soak")
    }
    assert found["short"].estimate_s < found["long"].estimate_s < WHOLE < found["soak"].estimate_s


def test_what_is_done_first_costs_its_tests() -> None:
    after = {"update_firmware": ("short",)}
    wanted = b.node(profile=profile(replace(ACCEPTANCE, after=after)))
    old = {item.inventory_id: FirmwareItem("1.0" if item.component == "nic0" else "2.0") for item in b.FIRMWARE}
    seen = b.observed(inventory=b.inventory(firmware=old))
    plan = b.planner().plan(wanted, seen, b.record(wanted, seen, certificate=b.certificate(wanted, seen, hours=73.0)))
    (found,) = [action for action in plan.actions if action.name == "run_gate"]
    assert found.estimate_s == pytest.approx(WHOLE * (30 + 600) / PARTS, abs=0.1)


def history(*seconds: float, acceptance: d.Acceptance = ACCEPTANCE) -> Any:
    nodes = {"n": b.node("n", profile=profile(acceptance))}
    fleet = d.Fleet(b.SETTINGS, d.SpecSource("spec"), nodes, "digest")
    return estimates(fleet, [("n", "run_gate", "", took) for took in seconds])


def test_the_history_of_gates_is_that_of_what_is_not_declared() -> None:
    soaked = 72 * HOUR
    found = history(soaked + 1200, soaked + 1260, 1230)
    assert found.of(b.PROFILE.inventory, "run_gate", "") == Estimate(1230.0, 1260.0, 3, same_hardware=True)
    planner = b.planner()
    planner.estimates = found
    told = gate(planner, certificate=None)
    assert (told.estimate_s, told.p90_s) == (1230.0 + soaked, 1260.0 + soaked)


def test_a_short_soak_counts_once() -> None:
    short = replace(ACCEPTANCE, phases=(*ACCEPTANCE.phases[:1], soak.phase(4 * HOUR, 2, (LOAD,))))
    planner = b.planner()
    planner.estimates = history(*[4 * HOUR + 1200] * 3, acceptance=short)
    assert gate(planner, node=b.node(profile=profile(short)), certificate=None).estimate_s == 4 * HOUR + 1200


def test_no_window_has_to_hold_the_soak() -> None:
    """MIG is set after the gate: what ends service must fit into a window, what brings a node back need not."""
    mig = b.node(profile=profile(gpu=d.DesiredGpu({"1g.10gb": 7})))
    seen = b.observed(member=b.member(pods=(b.pod(),)))
    plan = b.planner().plan(mig, seen, b.record(mig, seen, certificate=None))
    names = [action.name for action in plan.actions]
    assert names.index("drain") < names.index("run_gate") < len(names) - 1 - names[::-1].index("set_gpu_mode")
    assert work(plan.actions).need_s < 72 * HOUR < work(plan.actions).out_s


class Elapsed:
    """A clock whose waits are added up."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return b.NOW

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class AsObserved:
    async def facts(self, *_: Any) -> Any:
        return b.observed().host


def test_a_rehearsal_takes_the_time_of_the_tests_that_it_rehearses() -> None:
    """A gate has two parts, its tests and then its soak, and neither takes the time of the other."""
    durations = Durations(0, lambda _: lambda _action, _target: ActionDuration(WHOLE, WHOLE))
    gate = RehearsalGate(AcceptanceGate(lambda _: None), FailureRates({}, 0), durations)
    wanted, passed = b.node(profile=profile()), frozenset({"look", "short", "long"})

    def takes(left_out: frozenset[str] = frozenset(), run: SoakRun | None = None) -> float:
        clock = Elapsed()
        asyncio.run(gate.run(wanted, AsObserved(), b.observed(), clock, left_out, run))  # type: ignore[arg-type]
        return clock.seconds

    assert takes() == WHOLE
    assert takes(frozenset({"long"})) == pytest.approx(WHOLE * 630 / PARTS)
    assert takes(passed, SoakRun("a1", resumed=False, step=lambda _: None)) == 72 * HOUR
