"""Drains that take what a bare API server lacks: controllers, kubelets that end pods, and a server that goes away.

What the API server alone decides is tried by tests/drivers/kube/test_drain.py, on this server and on the lab's.
"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from reconciler.converge.actions import drain
from reconciler.model.outcome import Done, Outcome
from tests import builders as b
from tests.kubernetes.control_plane import GRACE_S
from tests.kubernetes.kubelets import STUBBORN
from tests.kubernetes.scene import Scene, until

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]

WEB = {"app": "web"}
AWAY_S = 6.0


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "ROUND_S", 0.5)


def drained(scene: Scene, node: str, **changes: object) -> Outcome:
    """Mark and drain a node."""

    async def run() -> Outcome:
        assert isinstance(await scene.act("mark", node), Done)
        return await scene.act("drain", node, **changes)  # type: ignore[arg-type]  # the drain policy's

    return asyncio.run(run())


def budgeted(scene: Scene, name: str, allowed: int) -> None:
    """Wait until the disruption controller has counted the pods of a budget."""
    until(lambda: scene.budget(name).get("disruptionsAllowed") == allowed and scene.budget(name)["expectedPods"] > 0)


def test_replicas_move_to_another_node_and_never_fall_below_their_budget(scene: Scene) -> None:
    nodes = [scene.add_node(), scene.add_node()]
    scene.add_replicas("web", 3, WEB)
    scene.add_budget("web", WEB, 2)
    until(lambda: len(scene.running()) == 3)
    budgeted(scene, "web", 1)
    first = max(nodes, key=lambda name: len(scene.running(name)))
    other = next(name for name in nodes if name != first)
    least, ended = [3], threading.Event()

    def count() -> None:
        while not ended.wait(0.05):
            least.append(len(scene.running()))

    counter = threading.Thread(target=count)
    counter.start()
    try:
        assert isinstance(drained(scene, first, timeout_s=90), Done)
    finally:
        ended.set()
        counter.join()
    assert scene.running(first) == []
    assert min(least) >= 2, "evictions wait for the budget"
    until(lambda: len(scene.running(other)) == 3)
    assert isinstance(asyncio.run(scene.act("admit", first)), Done)


def test_pods_of_daemon_sets_stay_and_finished_ones_do_not_count(scene: Scene) -> None:
    node = scene.add_node()
    scene.add_pod("exporter", node, owner="DaemonSet")
    scene.add_pod("job", node)
    until(lambda: len(scene.running(node)) == 2)
    scene.plane.patch(scene.path("pods", "job") + "/status", {"status": {"phase": "Succeeded"}})
    outcome = drained(scene, node)
    assert outcome == Done("nothing to evict", changed=False)
    assert scene.names(node) == ["exporter", "job"]


def test_a_pod_that_only_a_finalizer_keeps_is_no_work(scene: Scene) -> None:
    """Its containers have ended, and the object stays until somebody has done what the finalizer is for."""
    node = scene.add_node()
    scene.add_pod("held", node, finalizers=["example.com/checkpoint"])
    until(lambda: scene.running(node))
    assert isinstance(drained(scene, node), Done)
    assert scene.names(node) == ["held"]
    assert scene.running(node) == []


def test_a_pod_that_is_ending_already_is_waited_for_and_not_ended_sooner(scene: Scene) -> None:
    node = scene.add_node()
    scene.add_pod("slow", node, labels={STUBBORN: ""}, grace_s=9)
    until(lambda: scene.running(node))
    scene.plane.delete(scene.path("pods", "slow"))
    began = time.monotonic()
    assert isinstance(drained(scene, node, timeout_s=60), Done)
    assert time.monotonic() - began > 5, "its grace period is its own"
    assert scene.names(node) == []


def test_a_server_that_is_killed_in_mid_drain_costs_time_and_nothing_else(scene: Scene) -> None:
    node, plane = scene.add_node(), scene.plane
    for number in range(3):
        scene.add_pod(f"slow-{number}", node, labels={STUBBORN: ""}, grace_s=8)
    until(lambda: len(scene.running(node)) == 3)

    async def run() -> Outcome:
        assert isinstance(await scene.act("mark", node), Done)
        draining = asyncio.create_task(scene.act("drain", node, timeout_s=90))
        await asyncio.to_thread(until, lambda: len(scene.running(node)) < 3)
        plane.kill_api_server()
        await asyncio.sleep(AWAY_S)
        plane.launch_api_server()
        await asyncio.to_thread(plane.wait_for_api_server)
        return await draining

    outcome = asyncio.run(run())
    assert isinstance(outcome, Done), outcome
    assert scene.names(node) == []


def test_pods_of_a_dead_node_are_given_up(scene: Scene) -> None:
    """Nothing runs there any more, whatever a finalizer waits for: the power cycle must not wait with it."""
    node = scene.add_node()
    scene.add_pod("lost", node, grace_s=1)
    scene.add_pod("held", node, grace_s=1, finalizers=["example.com/checkpoint"])
    until(lambda: len(scene.running(node)) == 2)
    scene.plane.kubelets.silent.add(node)
    until(lambda: scene.condition(node) == "Unknown", 3 * GRACE_S)
    outcome = drained(scene, node, host=b.silent(), grace_s=2.0, timeout_s=30)
    assert isinstance(outcome, Done), outcome
    assert scene.running(node) == []
    assert scene.names(node) == ["held"]
