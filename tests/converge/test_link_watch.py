"""A watch of links for half a day after the exchange of a NIC: a soak that reads them between its loads."""

from __future__ import annotations

import re

import pytest

from reconciler.converge import lease
from reconciler.converge.run import Ended
from reconciler.model import soak
from reconciler.model.desired import GateTest, Threshold
from tests.converge.test_soak_run import HOUR, RealGate, Worlds, deep
from tests.converge.world import World

RAILS = "mlx5_0, mlx5_1"
LINKS = GateTest("links", "mlxlink", {"rails": RAILS}, (Threshold("link_downs", max=0.0),), 60.0)
TRAFFIC = GateTest("traffic", "perftest", {"rails": RAILS, "seconds": 600}, (Threshold("gbps", min=360.0),), 1500.0)


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "TTL_REAL_S", 3 * HOUR)


def watching(world: Worlds) -> World:
    watch = soak.phase(12 * HOUR, 2.0, (LINKS, TRAFFIC))
    return world(nodes=1, profile=deep(watch), gate=RealGate())


def test_a_link_that_is_lost_once_in_five_hours_ends_the_watch_and_is_named(world: Worlds) -> None:
    here = watching(world)
    here.machine("n0").inject("flap", port=1, every_s=5 * HOUR)
    report = here.apply(wait_s=48 * HOUR)
    result = report.results["n0"]
    assert result.state is Ended.FAILED
    assert re.search(r"after [45]h.*: links: link_downs 1 > 0 \(link_downs\.mlx5_1\)", result.detail), result.detail
    assert not here.serves("n0")


def test_links_that_stay_up_for_half_a_day_pass_it(world: Worlds) -> None:
    here = watching(world)
    before = here.clock.elapsed
    report = here.apply(wait_s=48 * HOUR)
    assert report.results["n0"].state is Ended.DONE, report.results["n0"].detail
    assert here.clock.elapsed - before >= 12 * HOUR
    assert here.serves("n0")
