"""A BMC that floods its log: a node that serves goes on, and one that is out waits until its log was read whole."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.converge.observe import IN_DOUBT_S
from reconciler.lab.hardware.parts import MAX_RECORDS
from tests.converge.test_isolation import adopted as adopted  # a fixture
from tests.converge.test_isolation import attempts, fall_ill
from tests.converge.test_loop import HOUR
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
