"""A run whose cluster is real and whose machines are the lab's: nodes are drained, rebooted and admitted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from reconciler.app.clocks import ScaledClock
from reconciler.converge.run import Ended
from reconciler.drivers.kube import NodeWatch
from reconciler.lab.fleet import build_lab
from reconciler.lab.inprocess import LabFabric
from reconciler.lab.scenario import Scenario
from reconciler.model.ports import Watch
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION
from reconciler.model.vocab import NewsSource
from tests.converge.world import World
from tests.drivers.kube.bench import kubectl
from tests.kubernetes.scene import Scene, until

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]
T = TypeVar("T")

SCALE = 20.0


class LabClock(ScaledClock):
    """The clock of a lab whose machines have been up for an hour."""

    def __init__(self) -> None:
        super().__init__(SCALE, datetime.now(UTC))
        self._began = time.monotonic()

    def seconds(self) -> float:
        return 3600.0 + (time.monotonic() - self._began) * SCALE


class RealCluster(LabFabric):
    """Leads to the lab's machines, and to a cluster that is not the lab's."""

    def __init__(self, here: MixedWorld) -> None:
        super().__init__(here.lab, here.clock)
        self._scene = here.scene

    def cluster(self) -> Any:
        return self._scene.driver

    def watches(self) -> Mapping[NewsSource, Watch]:
        kubeconfig = self._scene.plane.kubeconfig
        watch = NodeWatch(kubeconfig=kubeconfig, context=None, kubectl=kubectl(), timeout_s=10)
        return {**super().watches(), NewsSource.CLUSTER: watch}


@dataclass
class MixedWorld(World):
    """The lab's machines as nodes of a real cluster. Their kubelets fall silent with them."""

    scene: Scene = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock = LabClock()  # type: ignore[assignment]  # real time in place of virtual time
        plays = {name: {"drift": list(kinds)} for name, kinds in self.drift.items()}
        self.lab = build_lab(self.fleet, Scenario.model_validate({"nodes": plays}), self.clock.seconds)
        self.fabric = RealCluster(self)
        for name, machine in self.lab.machines.items():
            self.scene.add_node(name, system_uuid=machine.state.uuid)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def mirrored() -> T:
            mirror = asyncio.create_task(self._mirror())
            try:
                return await work
            finally:
                mirror.cancel()
                await asyncio.wait([mirror])

        return asyncio.run(mirrored())

    async def _mirror(self) -> None:
        silent = self.scene.plane.kubelets.silent
        while True:
            for name, machine in self.lab.machines.items():
                (silent.discard if machine.kubelet_ready else silent.add)(name)
            await asyncio.sleep(0.2)


def test_a_node_is_drained_rebooted_and_admitted(scene: Scene, tmp_path: Path) -> None:
    """Its replicas move to the other node and don't come back; labels and taints of the persona are set on the way."""
    here = MixedWorld(tmp_path, nodes=2, drift={"n0": ["bios_off"]}, scene=scene)
    scene.add_replicas("web", 4, {"app": "web"})
    scene.add_budget("web", {"app": "web"}, 2)
    until(lambda: len(scene.running()) == 4, 90)  # the scheduler pauses for up to 30 s after an outage
    assert scene.running("n0"), "the scheduler spreads them"
    here.adopt()
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE, report.results["n0"]
    assert [word for word in here.did("n0") if word in ("mark", "drain", "soft_restart", "admit")] == [
        "mark", "drain", "soft_restart", "admit"
    ]  # fmt: skip
    for name in here.fleet.nodes:
        found = scene.plane.get(f"/api/v1/nodes/{name}")
        assert OWNER_ANNOTATION not in found["metadata"].get("annotations", {})
        assert MARK_TAINT not in {taint["key"] for taint in found["spec"].get("taints", [])}
        assert not found["spec"].get("unschedulable")
        assert found["metadata"]["labels"]["workload"] == "training"
