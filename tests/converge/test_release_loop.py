"""Helm releases under the loop: installed, changed with the spec, taken up where a runner died, and left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.model.operands import GPU_RESOURCE, VALIDATOR
from reconciler.model.releases import JOURNAL, DesiredRelease, ReleaseStatus
from reconciler.model.vocab import DriftMode
from tests.converge.test_loop import HOUR, MINUTE, Looped
from tests.converge.test_operators import waiting
from tests.converge.test_release_work import GPU, NETWORK, deployed, left, release, site

Worlds = Callable[..., Looped]
ORDER = [("install", GPU), ("install", NETWORK)]


@pytest.fixture
def looped(tmp_path: Path) -> Worlds:
    def build(**differences: Any) -> Looped:
        given = {"releases": (release(GPU), release(NETWORK)), **differences.pop("settings", {})}
        return Looped(tmp_path, settings=given, **differences)

    return build


def put_releases(here: Looped, *releases: DesiredRelease) -> None:
    here.put(replace(here.fleet, settings=replace(here.fleet.settings, releases=releases)))


def test_they_are_installed_in_their_order_and_then_left_alone(looped: Worlds) -> None:
    here = looped()
    here.go(HOUR)
    assert site(here).log == ORDER
    assert deployed(here) == {GPU: f"{GPU}-v1", NETWORK: f"{NETWORK}-v1"}
    assert left(here) == []
    assert f"release {NETWORK}: {NETWORK}-v1 is deployed" in here.said("release")


def test_a_new_spec_upgrades_them_while_the_loop_runs(looped: Worlds) -> None:
    here = looped()

    async def change() -> None:
        await here.clock.sleep(20 * MINUTE)
        put_releases(here, release(GPU, "v2"), release(NETWORK))

    here.go(HOUR, change)
    assert site(here).log == [*ORDER, ("install", GPU)]
    assert deployed(here) == {GPU: f"{GPU}-v2", NETWORK: f"{NETWORK}-v1"}


@pytest.mark.parametrize("seconds", [10.0, 59.0, 90.0, 119.0])
def test_a_runner_that_ends_in_the_midst_of_an_install_is_followed_by_one_that_ends_it(
    looped: Worlds, seconds: float
) -> None:
    here = looped()

    async def end() -> None:
        while not site(here).log:
            await here.clock.sleep(1.0)
        await asyncio.sleep(seconds)
        raise TimeoutError

    here.go(HOUR, end)
    pending = [one for one in site(here).releases.values() if one.status.is_pending]
    assert pending or seconds >= 60.0
    here.go(HOUR, holder="b")
    assert deployed(here) == {GPU: f"{GPU}-v1", NETWORK: f"{NETWORK}-v1"}
    assert left(here) == []


def test_in_mode_observe_nothing_is_installed(looped: Worlds) -> None:
    here = looped(settings={"drift_mode": DriftMode.OBSERVE})
    here.go(HOUR)
    assert site(here).log == []
    assert not [node for _, node, *_ in here.ledger.unfinished() if node.startswith(JOURNAL)]


def test_what_does_not_become_ready_is_tried_again_and_costs_no_node(looped: Worlds) -> None:
    here = looped(drift={"n0": ["bios_off"]})
    site(here).failing.add(GPU)

    async def mend() -> None:
        await here.clock.sleep(HOUR)
        site(here).failing.clear()

    here.go(4 * HOUR, mend)
    assert all(here.serves(name) for name in here.fleet.nodes)
    assert deployed(here) == {GPU: f"{GPU}-v1", NETWORK: f"{NETWORK}-v1"}
    assert {one.status for one in site(here).releases.values()} == {ReleaseStatus.DEPLOYED}


def test_a_node_that_waits_for_the_operator_is_admitted_by_the_loop(looped: Worlds) -> None:
    here = looped(profile=waiting({GPU_RESOURCE: 4}), drift={"n0": ["bios_off"]})
    assert here.lab.cluster is not None
    site(here).failing.add(GPU)

    async def mend() -> None:
        await here.clock.sleep(2 * HOUR)
        assert not here.serves("n0"), "its operator is not there"
        site(here).failing.clear()

    here.go(8 * HOUR, mend)
    assert here.serves("n0")
    phases = {pod.owner_name: pod.phase for pod in here.lab.cluster.pods("n0")}
    assert phases[VALIDATOR] == "Running"
