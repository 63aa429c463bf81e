"""Tell from Kubernetes' objects what of a release is not ready. Pure.

Workloads: as `kubectl rollout status` judges them. Policies of NVIDIA's operators: by `status.state`, whose words are
those of gpu-operator api/nvidia/v1/clusterpolicy_types.go, and of network-operator api/v1alpha1, its files
nicclusterpolicy_types.go and nicnodepolicy_types.go, whose `appliedStates` name each component.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from reconciler.model.releases import OperatorKind

Json = Mapping[str, Any]

# The kind of an operator -> the kinds of its policies, with their paths. One policy of a whole cluster is heeded, and
# others are ignored; those of groups of nodes are heeded beside it.
POLICIES: Final[Mapping[OperatorKind, Mapping[str, str]]] = {
    OperatorKind.GPU: {"ClusterPolicy": "/apis/nvidia.com/v1/clusterpolicies"},
    OperatorKind.NETWORK: {
        "NicClusterPolicy": "/apis/mellanox.com/v1alpha1/nicclusterpolicies",
        "NicNodePolicy": "/apis/mellanox.com/v1alpha1/nicnodepolicies",  # from 26.x on
    },
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


def policies_not_ready(kind: OperatorKind, found: Mapping[str, Sequence[Json]]) -> Iterator[str]:
    """Yield why the policies of an operator are not ready; nothing where they are. `found`: by the kind of policy."""
    heeded = [(name, item) for name, items in found.items() for item in items if _state(item) not in _IGNORED]
    if not heeded:
        names = " or ".join(POLICIES[kind])
        there = any(found.values())
        yield f"every {names} is ignored" if there else f"there is no {names}, so the operator does nothing"
    for name, item in heeded:
        if (state := _state(item)) != READY:
            which = f"{name} {_map(item, 'metadata').get('name', '')}".rstrip()
            yield f"{which}: {state or 'it has no state yet'}{_components(_map(item, 'status'))}"


def _state(item: Json) -> str:
    return str(_map(item, "status").get("state") or "")


def _components(status: Json) -> str:
    """Return which components are not ready and why, in brackets; "" where the operator does not say."""
    rows = status.get("appliedStates")
    states = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    late = [row for row in states if str(row.get("state")) not in (READY, *_IGNORED)]
    told = [": ".join(str(row[key]) for key in ("name", "state", "message") if row.get(key)) for row in late]
    reason = status.get("reason")
    return f" ({'; '.join([*([str(reason)] if reason else []), *told])})" if reason or told else ""


def _map(data: Json, key: str) -> Json:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _number(data: Json, key: str, default: int) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else default
