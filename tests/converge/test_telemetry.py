"""Treatment of what a host's own programs tell: repaired, or only reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.converge.run import Ended
from reconciler.model.desired import Rung
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
POLICY = replace(PROFILE.remediation, ladder=(Rung("soft_restart", 1), Rung("power_cycle", 1)))
POLICED = replace(PROFILE, digest="policed", remediation=POLICY)


def treated(here: World, node: str = "n0") -> list[str]:
    rungs = {rung.action for rung in POLICY.ladder}
    return [one.action for one in here.ledger.node(node).attempts if one.action in rungs and one.outcome == "done"]


def test_what_dcgm_judges_as_failed_is_treated_and_comes_back_after_a_gate(world: Worlds) -> None:
    here = world(nodes=2, profile=POLICED, faults={"n0": {"dcgm": {"gpu": 1}}})
    here.adopt()
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE
    assert treated(here) == ["soft_restart"]
    assert here.gate.runs == ["n0"]
    assert here.serves("n0")
    assert treated(here, "n1") == []


def test_a_failure_that_returns_after_each_boot_takes_the_node_out_of_service(world: Worlds) -> None:
    here = world(nodes=1, profile=POLICED, faults={"n0": {"dcgm": {"gpu": 1, "persistent": True}}})
    here.adopt()
    here.apply()
    assert treated(here) == ["soft_restart", "power_cycle"]
    assert not here.serves("n0")


@pytest.mark.parametrize(
    ("fault", "signal"),
    [
        ({"dcgm": {"gpu": 1, "health": "Warning"}}, "dcgm_warning"),
        ({"dcgm": {"gpu": 1, "system": "Thermal system"}}, "dcgm_warning"),
        ({"clock": {"seconds": -90.0}}, "clock_off"),
        ({"clock": {"seconds": 0.0}}, "clock_free"),
    ],
)
def test_what_hurts_no_result_is_reported_and_the_node_goes_on(world: Worlds, fault: object, signal: str) -> None:
    here = world(nodes=1, profile=POLICED, faults={"n0": fault})
    here.adopt()
    here.apply()
    assert [item.path for item in here.plan().nodes["n0"].drift] == [f"health.{signal}"]
    assert treated(here) == []
    assert here.serves("n0")
