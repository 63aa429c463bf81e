"""Tell from Kubernetes' objects what of a release is not ready. Pure.

Workloads: as `kubectl rollout status` judges them. Policies of NVIDIA's operators: by `status.state`, whose words are
those of gpu-operator api/nvidia/v1/clusterpolicy_types.go and network-operator api/v1alpha1/nicclusterpolicy_types.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from reconciler.model.releases import OperatorKind

Json = Mapping[str, Any]

# The kind of an operator -> (path of its policies, their kind); there is one policy in a cluster, others are ignored.
POLICIES: Final[Mapping[OperatorKind, tuple[str, str]]] = {
    OperatorKind.GPU: ("/apis/nvidia.com/v1/clusterpolicies", "ClusterPolicy"),
    OperatorKind.NETWORK: ("/apis/mellanox.com/v1alpha1/nicclusterpolicies", "NicClusterPolicy"),
}
READY: Final = "ready"
_IGNORED: Final = ("ignored", "ignore")
# Kind -> the fields of its status with how many are wanted (None: spec.replicas, or 1), and how many are ready.
WORKLOADS: Final[Mapping[str, tuple[str | None, str, str]]] = {
    "Deployment": (None, "updatedReplicas", "readyReplicas"),
    "StatefulSet": (None, "updatedReplicas", "readyReplicas"),
    "DaemonSet": ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady"),
}


def workloads_not_ready(items: Sequence[Json]) -> Iterator[str]:
    """Yield a sentence for each workload of these objects that is not ready."""
    for item in items:
        fields = WORKLOADS.get(str(item.get("kind")))
        if fields is None:
            continue
        status, spec, metadata = _map(item, "status"), _map(item, "spec"), _map(item, "metadata")
        wanted = _number(spec, "replicas", 1) if fields[0] is None else _number(status, fields[0], -1)
        name = f"{item['kind']} {metadata.get('namespace')}/{metadata.get('name')}"
        if _number(status, "observedGeneration", 0) < _number(metadata, "generation", 0) or wanted < 0:
            yield f"{name}: its controller has not seen it yet"
            continue
        if item["kind"] == "Deployment" and _number(status, "replicas", 0) > _number(status, "updatedReplicas", 0):
            yield f"{name}: pods of before are still there"
            continue
        fewest = min(_number(status, field, 0) for field in fields[1:])
        if fewest < wanted:
            yield f"{name}: {fewest} of {wanted} ready"


def policy_not_ready(kind: OperatorKind, items: Sequence[Json]) -> Iterator[str]:
    """Yield why the policy of an operator is not ready; nothing where it is."""
    name = POLICIES[kind][1]
    states = [str(_map(item, "status").get("state") or "") for item in items]
    heeded = [state for state in states if state not in _IGNORED]
    if not heeded:
        yield f"there is no {name}, so the operator does nothing" if not states else f"every {name} is ignored"
    for state in heeded:
        if state != READY:
            yield f"{name}: {state or 'it has no state yet'}"


def _map(data: Json, key: str) -> Json:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _number(data: Json, key: str, default: int) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else default
