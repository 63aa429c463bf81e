"""The statuses that apply and the loop record are what happened to the nodes, as far as anybody looked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from reconciler.model.period_report import Hours
from reconciler.model.status import NodeStatus
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.period_report import hours, quarantines, recoveries
from tests.converge.test_loop import HOUR, MINUTE, Looped, disable, looped
from tests.converge.world import World

__all__ = ["looped"]


class Truth:
    """Node-hours that a node did not serve, whoever noticed."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.out_h = 0.0

    async def watch(self) -> None:
        while True:
            await self.here.clock.sleep(1.0)
            self.out_h += sum(not self.here.serves(name) for name in self.here.fleet.nodes) / 3600


def known(here: World, since: datetime) -> Hours:
    now = here.clock.now()
    return hours(here.ledger.past(since, now), since, now, here.fleet.nodes)


def test_apply_records_each_minute_that_it_kept_a_node_out(tmp_path: Path) -> None:
    here = World(tmp_path, drift={"n*": ["bios_off"]})
    here.adopt()
    since, truth = here.clock.now(), Truth(here)

    async def work() -> None:
        watching = asyncio.create_task(truth.watch())
        await here.applying()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    here.run(work())
    found = known(here, since)
    assert found.out == pytest.approx(truth.out_h, rel=0.05)
    assert found.out > 0.1
    assert found.unobserved < 0.1
    past = here.ledger.past(since, here.clock.now())
    nodes = here.fleet.nodes
    assert {one.node for one in recoveries(past.status_intervals, since, nodes) if one.until is not None} == set(nodes)
    here.ledger.close()


def test_the_loop_records_outages_to_within_a_pass(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=3)
    since, truth = here.clock.now(), Truth(here)

    async def drifts() -> None:
        watching = asyncio.create_task(truth.watch())
        for name in ("n0", "n1", "n2"):
            disable(here.machine(name))
            await here.clock.sleep(30 * MINUTE)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    here.go(1.6 * HOUR, drifts)
    found = known(here, since)
    assert truth.out_h > 0.1
    assert found.out == pytest.approx(truth.out_h, rel=0.1)
    assert found.unobserved < 3 * 2.5 / 60, "the time since the last pass"
    assert found.total == pytest.approx(3 * (here.clock.now() - since) / timedelta(hours=1), abs=0.05)


def test_a_day_in_which_nobody_ran_is_not_observed(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2)
    since = here.clock.now()
    here.go(20 * MINUTE)
    here.run(here.clock.sleep(24 * HOUR))
    here.go(20 * MINUTE)
    found = known(here, since)
    assert found.out == 0
    assert found.in_service < 2 * 0.7
    assert found.unobserved > 2 * 23.9


def test_a_pass_in_an_observer_outage_counts_as_no_look(looped: Callable[..., Looped]) -> None:
    """The network of this machine is down: the nodes may be well, and nobody knows."""
    here = looped(nodes=3)
    since = here.clock.now()

    async def goes_dark() -> None:
        await here.clock.sleep(20 * MINUTE)
        for machine in here.lab.machines.values():
            machine.inject("bmc_unreachable")
            machine.inject("ssh_refused")

    here.go(2 * HOUR, goes_dark)
    found = known(here, since)
    assert found.in_service < 3 * 0.5
    assert found.unobserved > 3 * 1.4


def test_a_node_that_the_spec_sets_aside_is_recorded_with_its_reason(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2, node={"state": NodeState.QUARANTINED})
    since = here.clock.now()
    here.go(20 * MINUTE)
    past = here.ledger.past(since, here.clock.now())
    assert {spell.status for spell in past.status_intervals} == {NodeStatus.SET_ASIDE}
    assert [(one.node, one.why, one.until) for one in quarantines(past.status_intervals, here.fleet.nodes)] == [
        (name, "quarantined in the spec: not acted upon", None) for name in ("n0", "n1")
    ]
