"""A leaf that slows the ports of a rack: one incident of the rack, no node drained; the last one ill has its ladder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit
from reconciler.model.limits import Brake
from reconciler.model.plan import BlockCode
from tests.converge.test_loop import HOUR, MINUTE
from tests.converge.world import PROFILE, World

RATED = replace(
    PROFILE, digest="rated", inventory=replace(PROFILE.inventory, rdma_ports=4, rdma_rate_gbps=400)
)  # fmt: skip
RACK: dict[str, Any] = {
    "profile": RATED, "nodes": 8, "racks": 1,
    "settings": {"budgets": (BudgetLimit("fleet", "100%"),), "brake": Brake("100%", "100%")},
}  # fmt: skip
BEHIND = ("n0", "n1", "n2")


def done(here: World, name: str) -> list[str]:
    return [attempt.action for attempt in here.ledger.node(name).attempts if attempt.outcome == "done"]


def test_a_slow_leaf_is_the_rack_s_and_a_slow_port_that_is_left_the_node_s(world: Callable[..., World]) -> None:
    here = world(**RACK)
    here.adopt()
    assert {end.state for end in here.apply().results.values()} == {Ended.CONVERGED}
    here.clock.elapsed += 2 * HOUR
    for name in BEHIND:
        here.machine(name).inject("port", port=1, gbps=100.0, persistent=True)
    here.clock.elapsed += MINUTE
    plan = here.plan()
    assert [(one.cause, one.scope, one.nodes) for one in plan.incidents] == [("fabric", "rack r0", BEHIND)]
    report = here.apply(wait_s=0.0)
    assert all(done(here, name) == [] and here.serves(name) for name in BEHIND), "nobody is drained for a leaf"
    assert {report.results[name].state for name in BEHIND} != {Ended.DONE}
    for name in BEHIND[1:]:
        here.machine(name).clear("port")
    here.clock.elapsed += MINUTE
    here.apply(wait_s=0.0)
    again = here.plan().nodes["n0"]
    assert again.blocked is not None
    assert again.blocked.code is BlockCode.DOMAIN, "the rack is only just well"
    assert done(here, "n0") == []
    here.clock.elapsed += 11 * MINUTE
    here.machine("n0").clear("port")
    here.machine("n0").inject("port", port=1, gbps=100.0, persistent=False)
    here.apply()
    assert "power_cycle" in done(here, "n0"), "its own port: its own ladder"
    assert here.serves("n0")
