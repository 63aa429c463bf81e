"""What runs on a lab leave in the ledger tells which rung healed what, how long it took, and which node is a lemon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from reconciler.model.desired import Rung
from reconciler.planner.fleet.reliability import Period, reliability
from tests.converge.test_loop import HOUR, MINUTE
from tests.converge.world import PROFILE, World

assert PROFILE.remediation is not None
RATED = replace(
    PROFILE, digest="rated", inventory=replace(PROFILE.inventory, rdma_ports=4, rdma_rate_gbps=400),
    remediation=replace(PROFILE.remediation, ladder=(Rung("soft_restart", 1), Rung("power_cycle", 1))),
)  # fmt: skip


def test_the_rung_that_healed_is_told_from_the_one_that_did_not(world: Callable[..., World]) -> None:
    here = world(profile=RATED, nodes=3)
    here.adopt()
    here.apply()
    here.clock.elapsed += 2 * HOUR
    here.machine("n0").inject("port", port=1, gbps=100.0, persistent=False)
    begin = here.clock.now()
    for _ in range(3):
        here.apply()
        here.clock.elapsed += MINUTE
    assert here.serves("n0")
    past = here.ledger.past(begin - timedelta(hours=1), here.clock.now())
    done = [attempt.action for attempt in past.attempts["n0"] if attempt.outcome == "done"]
    assert done == ["mark", "drain", "soft_restart", "power_cycle", "run_gate"]
    made = reliability(Period(here.fleet, past, begin, here.clock.now(), past))
    tallies = {one.rung: (one.attempts, one.healed) for one in made.rungs if one.signal == "health.port_slow"}
    assert tallies == {"soft_restart": (1, 0), "power_cycle": (1, 1)}
    (signal,) = (one for one in made.signals if one.signal == "health.port_slow")
    assert signal.failures == 1
    assert signal.repair.mean_s is not None
    assert signal.repair.mean_s > 60
    assert signal.detect.count == 1
    (lemon,) = made.lemons
    assert (lemon.node, lemon.repairs, lemon.isolations) == ("n0", 2, 0)
