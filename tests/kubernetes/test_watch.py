"""The watch on a real API server: heartbeats, an outage, and a history that was compacted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.kube import NodeWatch
from tests.drivers.kube.bench import kubectl
from tests.drivers.kube.test_watch import Listener
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelets import ready
from tests.kubernetes.scene import Scene

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]

AWAY_S = 15.0
DEAF_S = 8.0  # after the server is back: a pause of 5 s, a list and a loaded machine


def listening(scene: Scene, test: Callable[[Listener], Awaitable[None]], **more: Any) -> Listener:
    """Run the test once the watch has begun; the listener when it has ended."""
    settings = {"kubeconfig": scene.plane.kubeconfig, "context": None, "kubectl": kubectl(), "timeout_s": 10} | more

    async def run() -> Listener:
        listener = Listener(NodeWatch(**settings))
        try:
            await listener.until(lambda: is_watching(scene.plane))
            await test(listener)
        finally:
            listener.task.cancel()
            await asyncio.wait([listener.task])
        return listener

    return asyncio.run(run())


def is_watching(plane: ControlPlane) -> bool:
    """Return whether a kubectl holds a watch. What changes before it is connected is not lost: it names a revision."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = place.read_bytes()
            if str(plane.kubeconfig).encode() in line and b"watch=1" in line:
                return True
    return False


def label(scene: Scene, node: str, value: str) -> None:
    scene.plane.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"seen": value}}})


def test_what_the_controllers_do_is_heard_and_heartbeats_are_not(scene: Scene) -> None:
    quiet, node = scene.add_node(), scene.add_node()

    async def test(listener: Listener) -> None:
        await asyncio.sleep(3)  # the node controller takes the taints of new nodes off
        listener.heard.clear()
        for _ in range(3):
            await asyncio.to_thread(heartbeat, scene, quiet)
        await asyncio.to_thread(scene.plane.patch, f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        await listener.until(lambda: bool(listener.heard))
        await asyncio.sleep(1)
        assert set(listener.heard) == {node}

    assert listening(scene, test).told == []


def heartbeat(scene: Scene, node: str) -> None:
    status = {"conditions": [ready()], "images": [{"names": [f"image-{time.monotonic()}"], "sizeBytes": 1}]}
    scene.plane.patch(f"/api/v1/nodes/{node}/status", {"status": status})


def test_an_outage_is_told_and_heard_through(scene: Scene) -> None:
    """What changes as soon as the server is back is heard within seconds, however long it was away."""
    node, plane = scene.add_node(), scene.plane

    async def test(listener: Listener) -> None:
        plane.kill_api_server()
        await asyncio.sleep(AWAY_S)
        assert len(listener.told) == 1, listener.told
        plane.launch_api_server()
        await asyncio.to_thread(plane.wait_for_api_server)
        back = time.monotonic()
        await asyncio.to_thread(label, scene, node, "again")
        await listener.until(lambda: node in listener.heard, 90)
        deaf = time.monotonic() - back
        assert deaf < DEAF_S, f"deaf for {deaf:.1f} s after the server was back"
        assert listener.told[-1] == ""
        assert len(set(listener.told)) == len(listener.told), "each problem once: a server that starts has its own"

    listening(scene, test)


def test_a_history_that_is_gone_costs_one_list_and_loses_nothing(scene: Scene) -> None:
    """Another server, which has no events of before its start, is what sends 410 here, and a compaction."""
    changed, gone, plane = scene.add_node(), scene.add_node(), scene.plane

    async def test(listener: Listener) -> None:
        await asyncio.sleep(3)
        listener.heard.clear()
        _, since = plane.audited()
        plane.kill_api_server()
        plane.launch_api_server()
        await asyncio.to_thread(plane.wait_for_api_server)
        await asyncio.to_thread(label, scene, changed, "while-deaf")
        await asyncio.to_thread(plane.kubelets.remove, gone)
        await asyncio.to_thread(plane.compact)
        await listener.until(lambda: {changed, gone} <= set(listener.heard), 30)
        await listener.until(lambda: is_watching(plane))
        lists = [event for event in plane.audited(since)[0] if lists_nodes(event)]
        assert len(lists) <= 2, json.dumps(lists)

    listening(scene, test)


def lists_nodes(event: dict[str, Any]) -> bool:
    return event["verb"] == "list" and event["objectRef"]["resource"] == "nodes" and "kubectl" in event["userAgent"]
