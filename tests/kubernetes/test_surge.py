"""Surges on the real API server and its controllers: Deployments, autoscalers, field managers and rights.

Objects of other projects are tried in tests/drivers/kube/test_adjustments.py against their definitions: the API server
that build.sh compiles dies when it serves custom objects (its reflect2 reads maps as Go before 1.18 has them).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reconciler.converge.actions import drain
from reconciler.drivers.kube.adjustments import KubeAdjustments
from reconciler.drivers.kube.rights import rights_for
from reconciler.model.adjustments import RECORD, SURGE
from reconciler.model.drain import DrainPolicy, QueueHold, Surge
from reconciler.model.outcome import Done, Outcome, Permanent
from reconciler.model.vocab import DrainProvider, StopPolicy
from tests.drivers.kube.worlds import ROLE
from tests.kubernetes.scene import Scene, until
from tests.kubernetes.test_rights import acting

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]

LLAMA = {"app": "llama"}
ANNOTATED = Surge(every=False, timeout_s=60.0)
HOLD = QueueHold(("training",), StopPolicy.HOLD_AND_DRAIN, 2.0)


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "ROUND_S", 0.3)
    monkeypatch.setattr(drain, "WAIT_ROUND_S", 0.5)


def deployed(scene: Scene, replicas: int = 2, **labels: str) -> str:
    """A Deployment, one pod to a node by its anti-affinity, on three nodes. Return its path."""
    for _ in range(3):
        scene.add_node()
    apart = {"labelSelector": {"matchLabels": LLAMA}, "topologyKey": "kubernetes.io/hostname"}
    spec = {
        **scene.pod_spec(1),
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": apart}]}},
    }  # fmt: skip
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llama", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LLAMA},
            "template": {"metadata": {"labels": LLAMA, "annotations": {SURGE: "true"}}, "spec": spec},
        },
    }
    path = scene.group_path("apps/v1", "deployments")
    scene.create(path, document)
    path = f"{path}/llama"
    until(lambda: scene.plane.get(path)["status"].get("readyReplicas") == replicas)
    return path


def busiest(scene: Scene) -> str:
    return max(scene.nodes, key=lambda name: len(scene.running(name)))


def surged(scene: Scene, node: str, **changes: Any) -> Outcome:
    async def run() -> Outcome:
        assert isinstance(await scene.act("mark", node), Done)
        return await scene.act("drain", node, timeout_s=90.0, surge=changes.pop("surge", ANNOTATED), **changes)

    return asyncio.run(run())


@contextmanager
def counting(scene: Scene) -> Iterator[list[int]]:
    """Count the running pods all the while."""
    seen, ended = [len(scene.running())], threading.Event()

    def count() -> None:
        while not ended.wait(0.05):
            seen.append(len(scene.running()))

    counter = threading.Thread(target=count)
    counter.start()
    try:
        yield seen
    finally:
        ended.set()
        counter.join()


def as_before(scene: Scene, path: str, replicas: int = 2) -> None:
    found = scene.plane.get(path)
    assert found["spec"]["replicas"] == replicas
    assert RECORD not in found["metadata"].get("annotations", {})
    until(lambda: len(scene.running()) == replicas)


def test_a_deployment_is_raised_and_lowered_and_never_serves_with_less(scene: Scene) -> None:
    path = deployed(scene)
    node = busiest(scene)
    with counting(scene) as seen:
        assert isinstance(surged(scene, node), Done)
    assert (min(seen), max(seen)) == (2, 3)
    assert scene.running(node) == []
    assert "raises Deployment" in " ".join(scene.steps)
    as_before(scene, path)
    assert isinstance(asyncio.run(scene.act("admit", node)), Done)


@pytest.mark.parametrize("after", [True, False], ids=["after the write", "before the write"])
def test_a_run_that_is_killed_at_a_write_is_gone_on_with(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    """At the first write, which raises, and then at the second, which lowers."""
    path = deployed(scene)
    node, write, largest = busiest(scene), KubeAdjustments.write, [0]

    async def dying(self: KubeAdjustments, *arguments: Any) -> None:
        if after:
            await write(self, *arguments)
        largest[0] = max(largest[0], scene.plane.get(path)["spec"]["replicas"])
        raise Killed

    with counting(scene) as seen:
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(KubeAdjustments, "write", dying)
                with pytest.raises(Killed):
                    surged(scene, node)
            if not after:
                break
        assert isinstance(surged(scene, node), Done)
    assert largest[0] == (3 if after else 2)
    assert (min(seen), max(seen)) == (2, 3)
    as_before(scene, path)


def test_the_minimum_of_an_autoscaler_is_raised_where_there_is_one(scene: Scene) -> None:
    path = deployed(scene)
    scaler = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "llama"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"},
            "minReplicas": 1,
            "maxReplicas": 4,
        },
    }
    scalers = scene.group_path("autoscaling/v1", "horizontalpodautoscalers")
    scene.create(scalers, scaler)
    node = busiest(scene)
    with counting(scene) as seen:
        outcome = surged(scene, node)
    assert isinstance(outcome, Done), outcome
    assert "raises HorizontalPodAutoscaler" in " ".join(scene.steps)
    assert min(seen) == 2
    assert scene.plane.get(f"{scalers}/llama")["spec"]["minReplicas"] == 1
    assert RECORD not in scene.plane.get(f"{scalers}/llama")["metadata"].get("annotations", {})
    assert RECORD not in scene.plane.get(path)["metadata"].get("annotations", {})


def test_an_autoscaler_that_may_not_have_more_is_refused(scene: Scene) -> None:
    deployed(scene)
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"},
        "minReplicas": 1,
        "maxReplicas": 2,
    }
    head = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "llama"}}
    scene.create(scene.group_path("autoscaling/v1", "horizontalpodautoscalers"), head | {"spec": spec})
    node = busiest(scene)
    outcome = surged(scene, node)
    assert isinstance(outcome, Permanent)
    assert "may have 2 replicas: none can be added" in outcome.detail
    assert len(scene.running()) == 2


def test_replicas_that_git_keeps_are_refused(scene: Scene) -> None:
    """What Flux has applied is told by the field's manager, as the real server writes it down."""
    path = deployed(scene)
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "llama"}, "spec": {"replicas": 2}}
    scene.plane.apply(path, body, manager="kustomize-controller")
    node = busiest(scene)
    outcome = surged(scene, node)
    assert isinstance(outcome, Permanent)
    assert "Flux (kustomize-controller) sets its replicas back" in outcome.detail
    assert len(scene.running(node)) >= 1
    as_before(scene, path)


def test_through_a_kubectl_that_is_kept_it_is_the_same(scene: Scene) -> None:
    """The other tests send each write by a `kubectl patch` of its own."""
    path = deployed(scene)
    scene.driver = scene.driver_of(scene.kubeconfig, keep=True)
    node = busiest(scene)

    async def run() -> Outcome:
        try:
            assert isinstance(await scene.act("mark", node), Done)
            return await scene.act("drain", node, timeout_s=90.0, surge=ANNOTATED)
        finally:
            await scene.driver.close()

    with counting(scene) as seen:
        assert isinstance(asyncio.run(run()), Done)
    assert (min(seen), max(seen)) == (2, 3)
    as_before(scene, path)


# --- as the account of deploy/kubernetes/ ----------------------------------------------------------------------------


@pytest.fixture
def granted_scene(scene: Scene) -> Scene:
    """Act as the account that rbac.yaml and rbac-adjust.yaml make."""
    for role in (ROLE, ROLE.with_name("rbac-adjust.yaml")):
        scene.plane.kubectl("apply", "-f", str(role))
    return acting(scene)


def test_the_roles_are_enough_to_raise(granted_scene: Scene) -> None:
    path = deployed(granted_scene)
    drains = DrainPolicy(DrainProvider.KUBERNETES, surge=ANNOTATED, hold=HOLD)
    assert asyncio.run(granted_scene.driver.missing_rights(rights_for((drains,)))) == ()
    assert isinstance(surged(granted_scene, busiest(granted_scene)), Done)
    as_before(granted_scene, path)


def test_without_the_role_the_drain_says_what_it_may_not(scene: Scene) -> None:
    deployed(scene)
    scene.plane.kubectl("apply", "-f", str(ROLE))
    scene.plane.kubectl("delete", "clusterrolebinding", "reconciler-adjust", "--ignore-not-found")
    acting(scene)
    outcome = surged(scene, busiest(scene))
    assert not isinstance(outcome, Done)
    assert "forbidden" in outcome.detail
    assert len(scene.running()) == 2
