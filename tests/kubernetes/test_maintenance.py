"""Objects of other operators in a real API server, by the groups, versions, scopes and fields of their own types."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reconciler.drivers.kube import KubectlCluster
from reconciler.lab.hardware import maintenance
from reconciler.lab.hardware.machine import Machine
from reconciler.model.maintenance import OPERATORS, Operator
from reconciler.model.observed import Answered
from reconciler.planner.node.foreign_holds import hold_of
from tests.kubernetes.scene import Scene, until

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class OfMaintenance(Machine):
    """A machine that an operator maintains, as far as its object is concerned."""

    def __init__(self, group: str) -> None:
        self._group = group

    def fault(self, kind: str) -> Any:
        return {"operator": self._group} if kind == "maintenance" else None


def definition(operator: Operator) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": operator.resource, "kind": operator.kind, "listKind": f"{operator.kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": operator.full_name},
        "spec": {
            "group": operator.group,
            "names": names | {"singular": operator.kind.lower()},
            "scope": "Namespaced" if operator.namespaced else "Cluster",
            "versions": [
                {"name": operator.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


def holds(driver: KubectlCluster) -> dict[str, str]:
    async def read() -> dict[str, str]:
        reading = await driver.state()
        assert isinstance(reading, Answered), reading
        return {name: hold for name, member in reading.value.members.items() if (hold := hold_of(member))}

    return asyncio.run(read())


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: str(operator.group))
def test_an_object_holds_its_node_and_the_definition_alone_holds_nobody(scene: Scene, operator: Operator) -> None:
    node, other = scene.add_node(), scene.add_node()
    assert holds(scene.driver_of(scene.kubeconfig)).keys().isdisjoint({node, other})
    scene.plane.create(DEFINITIONS, definition(operator))
    base = f"/apis/{operator.group}/{operator.version}"
    place = (
        f"{base}/namespaces/{scene.name}/{operator.resource}" if operator.namespaced else f"{base}/{operator.resource}"
    )
    try:
        until(lambda: _served(scene, place))
        assert holds(scene.driver_of(scene.kubeconfig)) == {}
        (item,) = maintenance.objects({node: OfMaintenance(operator.group)}, operator.group)
        metadata = {key: item["metadata"][key] for key in ("name", "annotations") if key in item["metadata"]}
        scene.plane.create(place, item | {"metadata": metadata})
        found = holds(scene.driver_of(scene.kubeconfig))
        assert found.keys() == {node}
        assert operator.full_name in found[node]
        scene.plane.delete(f"{place}/{metadata['name']}")
        assert holds(scene.driver_of(scene.kubeconfig)) == {}
    finally:
        scene.plane.delete(f"{DEFINITIONS}/{operator.full_name}")
        until(lambda: not _served(scene, place))
    assert holds(scene.driver_of(scene.kubeconfig)) == {}


def _served(scene: Scene, path: str) -> bool:
    try:
        return str(scene.plane.get(path)["kind"]).endswith("List")
    except AssertionError:
        return False
