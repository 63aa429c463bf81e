"""Helm releases under apply: installed in order, kept, approved, and taken up again where a run died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.events import LoopTold
from reconciler.converge.run import Ended
from reconciler.lab.hardware.helm_site import HelmSite, LabRelease
from reconciler.lab.inprocess.releases import INSTALL_S
from reconciler.model.errors import Position, StalePlan
from reconciler.model.plan import Plan
from reconciler.model.releases import (
    JOURNAL,
    Chart,
    CrdPolicy,
    DesiredRelease,
    OperatorKind,
    ReleaseAction,
    ReleaseStatus,
)
from tests.converge.world import World

Worlds = Callable[..., World]
GPU, NETWORK = "gpu-operator", "network-operator"


def release(name: str, version: str = "v1", values: str = "{}") -> DesiredRelease:
    chart = Chart("https://charts.example", name, version, "0" * 63 + version[-1])
    return DesiredRelease(
        name, name, OperatorKind(name), chart, values, CrdPolicy.CREATE, 300.0, Position("cluster.yaml", 7)
    )


def declare(here: World, *releases: DesiredRelease) -> None:
    here.fleet = replace(here.fleet, settings=replace(here.fleet.settings, releases=releases))


def site(here: World) -> HelmSite:
    assert here.lab.cluster is not None
    return here.lab.cluster.helm


@pytest.fixture
def here(world: Worlds) -> World:
    built = world(nodes=2)
    built.adopt()
    declare(built, release(GPU), release(NETWORK))
    return built


def ends(report: ApplyReport) -> dict[str, Ended]:
    return {name: one.state for name, one in report.releases.items()}


def deployed(here: World) -> dict[str, str]:
    return {name: one.chart for name, one in site(here).releases.items() if one.status is ReleaseStatus.DEPLOYED}


def left(here: World) -> list[str]:
    """Attempts at releases without an end in the journal."""
    return [name for _, node, _, name, _ in here.ledger.unfinished() if node.startswith(JOURNAL)]


def test_releases_are_installed_in_their_order_and_then_left_alone(here: World) -> None:
    plan = here.plan()
    assert [(one.name, one.action.value, one.waits) for one in plan.releases] == [
        (GPU, "install", ""), (NETWORK, "install", f"{GPU} comes first"),
    ]  # fmt: skip
    assert plan.changes
    report = here.apply()
    assert ends(report) == {GPU: Ended.DONE, NETWORK: Ended.DONE}
    assert site(here).log == [("install", GPU), ("install", NETWORK)]
    assert ends(here.apply()) == {GPU: Ended.CONVERGED, NETWORK: Ended.CONVERGED}
    assert len(site(here).log) == 2
    assert not here.plan().changes
    assert left(here) == []


def test_another_version_or_other_values_are_an_upgrade(here: World) -> None:
    here.apply()
    declare(here, release(GPU, "v2"), release(NETWORK, values='{"a": 1}'))
    first, second = here.plan().releases
    assert first.why == f"revision 1 is {GPU}-v1, and the spec declares {GPU} v2"
    assert second.why.endswith("with other values")
    here.apply()
    assert deployed(here) == {GPU: f"{GPU}-v2", NETWORK: f"{NETWORK}-v1"}
    assert [one.revision for one in site(here).releases.values()] == [2, 2]


def test_a_release_that_does_not_become_ready_holds_the_later_ones_and_no_node(here: World) -> None:
    site(here).failing.add(GPU)
    report = here.apply(wait_s=3600.0)
    assert ends(report)[GPU] is not Ended.DONE
    assert "timed out waiting" in report.releases[GPU].detail
    assert NETWORK not in deployed(here)
    assert all(here.serves(name) for name in here.fleet.nodes)
    assert left(here) == []


def test_nothing_is_installed_while_no_node_is_in_service_that_could_run_pods(here: World) -> None:
    """helm waits for pods, and would take back what can't run yet."""
    cluster = here.lab.cluster
    assert cluster is not None
    for node in cluster.nodes():
        cluster.update_node(node.name, resource_version=str(node.resource_version), unschedulable=True)
    report = here.apply()
    assert ends(report)[GPU] is Ended.NOT_STARTED
    assert "no node is in service" in report.releases[GPU].detail
    assert site(here).log == []


def test_an_api_server_that_is_down_proves_nothing(here: World) -> None:
    plan = here.plan()
    cluster = here.lab.cluster
    assert cluster is not None
    cluster.down = True
    assert {one.ready for one in here.plan().releases} == {None}
    assert not any(one.changes_something for one in here.plan().releases)
    assert plan.releases


def test_an_approved_plan_binds_what_is_installed(here: World) -> None:
    approved = here.plan()
    declare(here, release(GPU, "v2"), release(NETWORK))
    report = here.apply(approved=approved)
    assert ends(report)[GPU] is Ended.STALE
    assert site(here).log == []
    approved = replace(here.plan(), id="another")
    assert ends(here.apply(approved=approved)) == {GPU: Ended.DONE, NETWORK: Ended.DONE}
    with pytest.raises(StalePlan, match="used up"):
        here.apply(approved=approved)


def test_an_approved_plan_goes_on_with_what_it_had_begun(here: World) -> None:
    approved = here.plan()
    stop_after(here, INSTALL_S / 2, approved)
    assert site(here).releases[GPU].status.is_pending
    assert ends(here.apply(approved=approved)) == {GPU: Ended.DONE, NETWORK: Ended.DONE}
    assert site(here).log[:3] == [("install", GPU), ("recover", GPU), ("install", GPU)]


@pytest.mark.parametrize("whose", ["ours", "somebody else's"])
def test_who_approved_the_end_of_what_died_has_approved_no_install(here: World, whose: str) -> None:
    """Nobody has seen what would be installed then: by the spec of before, or over what somebody else had begun."""
    if whose == "ours":
        stop_after(here, INSTALL_S / 2)
        declare(here, release(GPU, "v2"), release(NETWORK))
    else:
        site(here).releases[GPU] = LabRelease(ReleaseStatus.PENDING_INSTALL, 1, since=here.clock.now())
        here.clock.elapsed += 601
    site(here).log.clear()
    approved = here.plan()
    assert approved.releases[0].action is ReleaseAction.RECOVER
    assert ends(here.apply(approved=approved))[GPU] is Ended.STALE
    assert site(here).log == [("recover", GPU)]
    assert ends(here.apply(approved=replace(here.plan(), id="seen")))[GPU] is Ended.DONE
    assert left(here) == []


def test_what_died_is_no_leave_for_another_spec(here: World) -> None:
    stop_after(here, INSTALL_S / 2)
    approved = here.plan()
    declare(here, release(GPU, "v3"), release(NETWORK))
    site(here).log.clear()
    assert ends(here.apply(approved=approved))[GPU] is Ended.STALE
    assert site(here).log == []


def test_a_run_of_some_nodes_leaves_releases_alone(here: World) -> None:
    report = here.apply(selected=["n0"])
    assert (ends(report), site(here).log) == ({}, [])


def stop_after(here: World, seconds: float, approved: Plan | None = None) -> None:
    """End a run in the midst of its work, without a word to anybody."""

    async def stopped() -> None:
        work = asyncio.create_task(here.applying(approved=approved))
        await asyncio.wait([work], timeout=seconds)
        work.cancel()
        await asyncio.wait([work])

    here.run(stopped())


@pytest.mark.parametrize("kind", ["install", "upgrade"])
def test_a_helm_that_died_with_its_run_is_ended_by_the_next_one(here: World, kind: str) -> None:
    if kind == "upgrade":
        here.apply()
        declare(here, release(GPU, "v2"), release(NETWORK))
        site(here).log.clear()
    stop_after(here, INSTALL_S / 2)
    assert site(here).releases[GPU].status.is_pending
    assert left(here) == [GPU]
    here.apply()
    assert site(here).log[:3] == [("install", GPU), ("recover", GPU), ("install", GPU)]
    assert deployed(here) == {GPU: f"{GPU}-{'v2' if kind == 'upgrade' else 'v1'}", NETWORK: f"{NETWORK}-v1"}
    assert left(here) == []


def test_a_helm_of_somebody_else_is_given_its_time(here: World) -> None:
    site(here).releases[GPU] = LabRelease(ReleaseStatus.PENDING_INSTALL, 1, since=here.clock.now())
    assert "another helm may be at work" in here.plan().releases[0].waits
    here.apply(wait_s=0.0)
    assert site(here).log == []
    here.clock.elapsed += 601
    assert here.plan().releases[0].waits == ""
    here.apply()
    assert site(here).log[0] == ("recover", GPU)
    assert len(deployed(here)) == 2


@pytest.mark.parametrize("seconds", [1, 30, 59, 61, 90, 119, 121])
def test_runs_that_are_stopped_at_any_time_end_with_both_releases(here: World, seconds: float) -> None:
    for _ in range(2):
        stop_after(here, seconds)
    here.apply()
    assert deployed(here) == {GPU: f"{GPU}-v1", NETWORK: f"{NETWORK}-v1"}
    assert left(here) == []


def test_people_are_told_what_is_done(here: World) -> None:
    here.apply()
    told = [event.message for event in here.events if isinstance(event, LoopTold)]
    assert told[0] == f"release {GPU}: install of {GPU}-v1, since there is no release {GPU}/{GPU}"
    assert f"release {NETWORK}: {NETWORK}-v1 is deployed" in told


def test_what_is_not_ready_is_in_the_plan(here: World) -> None:
    here.apply()
    known: Any = site(here).releases[GPU]
    site(here).releases[GPU] = replace(known, not_ready=("ClusterPolicy: notReady",))
    found = here.plan().releases[0]
    assert (found.ready, found.not_ready, found.changes_something) == (False, ("ClusterPolicy: notReady",), False)
