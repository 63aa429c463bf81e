"""Logs of BMCs between two inventories, and those that are flooded: what is new is read, and nobody is harmed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.converge.observe import IN_DOUBT_S
from reconciler.lab.hardware.parts import MAX_RECORDS
from reconciler.model.observed import Answered
from tests.converge.test_isolation import adopted as adopted  # a fixture
from tests.converge.test_isolation import attempts, fall_ill
from tests.converge.test_loop import HOUR
from tests.converge.test_observe import Worlds
from tests.converge.world import World


def flood(here: World, node: str) -> None:
    for number in range(MAX_RECORDS):
        here.machine(node)._log("Warning", f"Chassis intrusion {number}")


def test_a_node_whose_log_was_not_read_whole_serves_on_and_is_not_newly_admitted(
    adopted: Callable[..., World],
) -> None:
    here = adopted()
    for name in ("n1", "n2"):
        flood(here, name)
    fall_ill(here, "n1")
    for _ in range(3):
        report = here.apply(wait_s=0.0)
        here.clock.elapsed += IN_DOUBT_S
    assert "power_cycle" in attempts(here, "n1"), "what was ill is treated"
    assert here.serves("n2"), "an unknown takes no node out"
    assert not here.serves("n1")
    assert "the log was not read whole: it is full with 512 entries" in report.results["n1"].detail
    (told,) = [item for item in report.plan.nodes["n2"].drift if item.path == "health.facts_silent"]
    assert "is full with 512 entries" in str(told)
    here.machine("n1").state.events.clear()  # by a person, who has saved it
    here.clock.elapsed += HOUR
    here.apply()
    assert here.serves("n1")


@pytest.mark.parametrize(
    ("severity", "message", "due"), [("Critical", "Uncorrectable ECC @ DIMM7", True), ("OK", "Login", False)]
)
def test_a_sign_in_the_log_of_a_bmc_that_pushes_nothing_is_read_within_a_quarter_of_an_hour(
    world: Worlds, severity: str, message: str, due: bool
) -> None:
    """A broken module waited for the next day's inventory; a login is none, and BMCs log each (A12)."""
    here = world(nodes=1)
    first = here.observe()
    machine = here.machine("n0")
    etag = machine.state.etag
    machine._log(severity, message)
    machine.state.etag = etag
    here.clock.elapsed += 60
    soon = here.observe(previous=first)
    assert soon.nodes["n0"].inventory is first.nodes["n0"].inventory
    here.clock.elapsed += IN_DOUBT_S
    later = here.observe(previous=soon).nodes["n0"].inventory
    assert isinstance(later, Answered)
    assert (later.at > first.finished_at) is due
