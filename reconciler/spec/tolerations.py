"""Refuse a GPU Operator that could never finish, as its pods don't come to a node that is out of service.

A node waits under our mark, a taint and a cordon, until the operator has validated it. DaemonSets tolerate a cordon by
themselves (kubernetes.io, "Taints and Tolerations"), our taint they don't. Without Node Feature Discovery the operator
does not know that a node has GPUs, and the Network Operator may be the one that brings it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from reconciler.model.errors import Diagnostic
from reconciler.model.releases import OperatorKind
from reconciler.model.values import MARK_TAINT
from reconciler.model.vocab import NodeState
from reconciler.spec.kinds.cluster import ClusterType
from reconciler.spec.node_source import NodeSource
from reconciler.spec.operators import DeclaredRelease, Values
from reconciler.spec.parse import Declarations
from reconciler.spec.resolve import choices

_CORDON: Final = "node.kubernetes.io/unschedulable"
_NFD: Final = "node-feature-discovery"
_ON_NODES: Final = (("daemonsets", "tolerations"), (_NFD, "worker", "tolerations"))
_OF_OPERATOR: Final = (
    ("operator", "tolerations"), (_NFD, "master", "tolerations"), (_NFD, "gc", "tolerations"),
)  # fmt: skip


def check_tolerations(
    declared: Declarations, releases: Sequence[DeclaredRelease], nodes: Sequence[NodeSource]
) -> Iterator[Diagnostic]:
    """Yield a problem for each list of tolerations of a GPU Operator without which admission would wait for ever."""
    with_gpus = [_has_gpus(declared, node) for node in nodes if node.state is NodeState.ACTIVE]
    with_operator = {release.cluster.name for release in releases if release.operator.kind is OperatorKind.GPU}
    for release in releases:
        if release.cluster.name not in with_operator or not any(with_gpus):
            continue
        for path in _looked_at(_ON_NODES, release):
            if not _tolerates(release.values, path, MARK_TAINT):
                problem = f"its pods would not come to a node that waits for them: they don't tolerate {MARK_TAINT}"
                yield release.problem(path, problem, _hint(MARK_TAINT))
        if release.cluster.spec.type is not ClusterType.K3S or not all(with_gpus):
            continue  # its own pods may run on nodes that wait for nothing, or that the spec does not have
        for path in _looked_at(_OF_OPERATOR, release):
            lacks = [key for key in (MARK_TAINT, _CORDON) if not _tolerates(release.values, path, key)]
            if lacks:
                problem = "every node of the cluster waits for the operator, which could run on none of them"
                yield release.problem(path, problem, _hint(*lacks))


def runs_out_of_service(release: DeclaredRelease) -> bool:
    """Return whether the pods of a GPU Operator itself tolerate our mark, so that it needs no node in service."""
    values, paths = release.values, _looked_at(_OF_OPERATOR, release)
    return release.operator.kind is OperatorKind.GPU and all(
        _tolerates(values, path, key) for path in paths for key in (MARK_TAINT, _CORDON)
    )


def _looked_at(paths: Sequence[tuple[str, ...]], release: DeclaredRelease) -> list[tuple[str, ...]]:
    """Return those of the paths whose pods this release has, and the GPU Operator needs."""
    kind = release.operator.kind
    discovery = kind in (OperatorKind.GPU, OperatorKind.NETWORK) and release.values.get("nfd", "enabled", default=True)
    return [path for path in paths if (discovery if path[0] == _NFD else kind is OperatorKind.GPU)]


def _tolerates(values: Values, path: tuple[str, ...], key: str) -> bool:
    found = values.get(*path, default=[])
    return any(_covers(one, key) for one in found) if isinstance(found, list) else False


def _covers(one: Any, key: str) -> bool:
    """Return whether a toleration covers a taint of this key, with any value and the effect NoSchedule."""
    if not isinstance(one, dict) or one.get("operator") != "Exists" or one.get("effect") not in (None, "NoSchedule"):
        return False
    return one.get("key") in (None, "", key)


def _hint(*keys: str) -> str:
    return "add " + " and ".join(f"`{{key: {key}, operator: Exists, effect: NoSchedule}}`" for key in keys)


def _has_gpus(declared: Declarations, node: NodeSource) -> bool:
    chosen = choices(declared, node.pool, node.entry)
    hardware = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    return hardware is not None and bool(hardware.spec.inventory.gpus)
