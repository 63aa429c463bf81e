"""500 nodes with 5,000 pods on a real API server: what a read of one node costs it, the bulk read, and the watch.

Figures are printed and not judged: they are of the machine that this runs on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from urllib.parse import quote

import pytest

from reconciler.drivers.kube import NodeWatch
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.observed import Answered, Member
from tests.drivers.kube.bench import kubectl
from tests.drivers.kube.test_watch import Listener
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.scene import Scene, until

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]

NODES, PODS_EACH, READS = 500, 10, 25
_AT_ONCE = 16
_PODS = "/api/v1/pods?limit=2000&fieldSelector=" + quote(
    "spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", safe="{}"
)
Figure = Callable[[str], None]


@pytest.fixture(scope="module")
def crowd(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("crowd")
    ledger = SqlLedger(home / "ledger.sqlite")
    scene = Scene(control_plane, ledger, home)
    scene.nodes = [f"{scene.name}-n{number}" for number in range(NODES)]
    control_plane.kubelets.idle.update(scene.nodes)
    places = [(f"pod-{number}", scene.nodes[number % NODES]) for number in range(NODES * PODS_EACH)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda name: control_plane.kubelets.register(name, {"scene": scene.name}), scene.nodes))
        list(pool.map(lambda place: scene.add_pod(*place, owner="Job", annotations={"of": "x" * 2000}), places))
    yield scene  # they end with the control plane: no test comes after these, which are the last by name
    ledger.close()


@pytest.fixture
def quiet(crowd: Scene) -> Iterator[Scene]:
    """The crowd without heartbeats, which would be measured too. They pause for less than a node's grace period."""
    kubelets = crowd.plane.kubelets
    until(lambda: kubelets.late == 0, 60)
    kubelets.paused = True
    time.sleep(1)
    yield crowd
    kubelets.paused = False


def measured(scene: Scene, reads: Callable[[str], object]) -> tuple[float, float]:
    """Read nodes one after another; return the API server's CPU time and the median latency of a read, in ms."""
    before, times = scene.plane.cpu_s(), []
    for name in scene.nodes[:READS]:
        began = time.perf_counter()
        reads(name)
        times.append(time.perf_counter() - began)
    return (scene.plane.cpu_s() - before) / READS * 1000, median(times) * 1000


@pytest.mark.parametrize("version", ["", "&resourceVersion=0"], ids=["consistent", "from the cache"])
def test_the_list_of_a_nodes_pods(quiet: Scene, figure: Figure, version: str) -> None:
    def read(name: str) -> None:
        items = quiet.plane.get(_PODS.format(name) + version)["items"]
        assert len(items) == PODS_EACH

    cpu, latency = measured(quiet, read)
    how = "with resourceVersion=0" if version else "without resourceVersion"
    figure(f"pods of one node among 5,000, {how}: {cpu:.1f} ms of the API server's CPU, {latency:.1f} ms")


@pytest.mark.parametrize("cached", [False, True])
def test_a_read_of_one_node_by_the_driver(quiet: Scene, figure: Figure, cached: bool) -> None:
    async def run() -> tuple[float, float]:
        driver = quiet.driver_of(quiet.plane.kubeconfig, keep=True)
        before, times = quiet.plane.cpu_s(), []
        for name in quiet.nodes[:READS]:
            began = time.perf_counter()
            member = await driver.member(name, cached=cached)
            times.append(time.perf_counter() - began)
            assert member is not None
            assert len(member.pods) == PODS_EACH
        cpu = (quiet.plane.cpu_s() - before) / READS * 1000
        await driver.close()
        return cpu, median(times) * 1000

    cpu, latency = asyncio.run(run())
    how = "member(cached=True)" if cached else "member()"
    figure(f"{how}, of 500 nodes: {cpu:.1f} ms of the API server's CPU, {latency:.1f} ms")


def test_the_read_of_all_nodes(quiet: Scene, figure: Figure) -> None:
    before, began = quiet.plane.cpu_s(), time.perf_counter()
    ours = members(quiet)
    took, cpu = time.perf_counter() - began, quiet.plane.cpu_s() - before
    assert {len(member.pods) for member in ours} == {PODS_EACH}
    figure(f"state(), of 500 nodes and 5,000 pods: {cpu:.2f} s of the API server's CPU, {took:.2f} s")


def test_the_watch_hears_one_change_among_heartbeats(crowd: Scene, figure: Figure) -> None:
    """Leases are renewed meanwhile, 60 a second, and the statuses of a tenth of the nodes are written."""
    watch = NodeWatch(kubeconfig=crowd.plane.kubeconfig, context=None, kubectl=kubectl(), timeout_s=30)

    until(lambda: crowd.plane.kubelets.late == 0, 60)
    until(lambda: all(member.ready for member in members(crowd)), 60)

    async def run() -> tuple[list[str], float]:
        listener = Listener(watch)
        try:
            await asyncio.sleep(3)
            listener.heard.clear()
            await asyncio.to_thread(beat, crowd)
            began = time.perf_counter()
            changed = {"metadata": {"labels": {"changed": "yes"}}}
            await asyncio.to_thread(crowd.plane.patch, f"/api/v1/nodes/{crowd.nodes[7]}", changed)
            await listener.until(lambda: bool(listener.heard))
            took = time.perf_counter() - began
            await asyncio.sleep(1)
            return listener.heard, took
        finally:
            listener.task.cancel()
            await asyncio.wait([listener.task])

    heard, took = asyncio.run(run())
    assert crowd.nodes[7] in heard
    assert not set(heard) & set(beaten(crowd)), "a heartbeat is no change"
    figure(f"watch of 500 nodes: a change is heard after {took * 1000:.0f} ms, no heartbeat is")


def members(scene: Scene) -> list[Member]:
    """Return our nodes as the driver reads them."""
    reading = asyncio.run(scene.driver.state())
    assert isinstance(reading, Answered), reading
    return [reading.value.members[name] for name in scene.nodes]


def beaten(scene: Scene) -> list[str]:
    return scene.nodes[:: NODES // 50]


def beat(scene: Scene) -> None:
    """Write the statuses of nodes as their kubelets do every five minutes: nothing but the time is new."""
    for name in beaten(scene):
        conditions = scene.plane.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
        for condition in conditions:
            condition["lastHeartbeatTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        scene.plane.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": conditions}})
