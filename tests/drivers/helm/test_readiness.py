"""What of a release is not ready, by the status that controllers and NVIDIA's operators write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.drivers.helm.readiness import policies_not_ready, workloads_not_ready
from reconciler.model.releases import OperatorKind

META = {"namespace": "gpu", "name": "x", "generation": 2}


def deployment(**status: Any) -> dict[str, Any]:
    return {"kind": "Deployment", "metadata": META, "spec": {"replicas": 2}, "status": status}


def daemonset(**status: Any) -> dict[str, Any]:
    return {"kind": "DaemonSet", "metadata": META, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (deployment(observedGeneration=2, updatedReplicas=2, readyReplicas=2), None),
        (deployment(observedGeneration=2, updatedReplicas=2, readyReplicas=1), "Deployment gpu/x: 1 of 2 ready"),
        (deployment(observedGeneration=2, updatedReplicas=1, readyReplicas=2), "Deployment gpu/x: 1 of 2 ready"),
        (deployment(observedGeneration=1, updatedReplicas=2, readyReplicas=2), "its controller has not seen it yet"),
        (deployment(observedGeneration=2, replicas=3, updatedReplicas=2, readyReplicas=2), "pods of before"),
        (deployment(observedGeneration=2), "Deployment gpu/x: 0 of 2 ready"),
        (daemonset(observedGeneration=2, desiredNumberScheduled=3, updatedNumberScheduled=3, numberReady=3), None),
        (daemonset(observedGeneration=2, desiredNumberScheduled=0), None),
        (daemonset(observedGeneration=2, desiredNumberScheduled=3, updatedNumberScheduled=3, numberReady=2), "2 of 3"),
        (daemonset(observedGeneration=2), "its controller has not seen it yet"),
        ({"kind": "ConfigMap", "metadata": META}, None),
    ],
)
def test_workloads(item: dict[str, Any], said: str | None) -> None:
    found = list(workloads_not_ready([item]))
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["ready"], []),
        (["ready", "ignored"], []),
        (["notReady"], ["ClusterPolicy: notReady"]),
        ([""], ["ClusterPolicy: it has no state yet"]),
        (["disabled"], ["ClusterPolicy: disabled"]),
        (["ignored"], ["every ClusterPolicy is ignored"]),
        ([], ["there is no ClusterPolicy, so the operator does nothing"]),
    ],
)
def test_the_policy_of_the_gpu_operator(states: list[str], said: list[str]) -> None:
    items: list[Mapping[str, Any]] = [{"kind": "ClusterPolicy", "status": {"state": state}} for state in states]
    assert list(policies_not_ready(OperatorKind.GPU, {"ClusterPolicy": items})) == said


@pytest.mark.parametrize(
    ("state", "ready"), [("ready", True), ("notReady", False), ("error", False), ("ignore", False)]
)
def test_the_policy_of_the_network_operator(state: str, ready: bool) -> None:
    found = {"NicClusterPolicy": [{"status": {"state": state}}], "NicNodePolicy": []}
    assert (not list(policies_not_ready(OperatorKind.NETWORK, found))) is ready


def test_policies_of_groups_of_nodes_are_heeded_beside_that_of_the_cluster_or_without_it() -> None:
    late = {"metadata": {"name": "b300"}, "status": {"state": "notReady"}}
    ready = {"metadata": {"name": "h100"}, "status": {"state": "ready"}}
    for of_cluster in ([], [{"status": {"state": "ready"}}]):
        found = {"NicClusterPolicy": of_cluster, "NicNodePolicy": [ready, late]}
        assert list(policies_not_ready(OperatorKind.NETWORK, found)) == ["NicNodePolicy b300: notReady"]
        assert not list(policies_not_ready(OperatorKind.NETWORK, found | {"NicNodePolicy": [ready]}))
    nothing = list(policies_not_ready(OperatorKind.NETWORK, {"NicClusterPolicy": [], "NicNodePolicy": []}))
    assert nothing == ["there is no NicClusterPolicy or NicNodePolicy, so the operator does nothing"]


def test_the_components_that_are_not_ready_are_named_with_what_the_operator_says_of_them() -> None:
    status = {
        "state": "error",
        "reason": "failed to render",
        "appliedStates": [
            {"name": "state-OFED", "state": "notReady", "message": "1 of 2 pods"},
            {"name": "state-SRIOV-device-plugin", "state": "ready"},
            {"name": "state-multus-cni", "state": "ignore"},
            {"name": "state-nv-ipam", "state": "error"},
        ],
    }
    [told] = policies_not_ready(OperatorKind.NETWORK, {"NicClusterPolicy": [{"status": status}]})
    assert told == "NicClusterPolicy: error (failed to render; state-OFED: notReady: 1 of 2 pods; state-nv-ipam: error)"
