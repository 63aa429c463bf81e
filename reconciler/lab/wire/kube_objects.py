"""The lab's cluster as Kubernetes JSON, as an API server and kubelets would show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from reconciler.lab.hardware.control_plane import ClusterTruth, DisruptionBudget, NodeObject, PodObject
from reconciler.lab.hardware.machine import Machine

EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_REMEMBERED = 50_000  # pods, deleted ones included
_OWNER_API = {"DaemonSet": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_SILENT = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
_READY = {
    "True": ("KubeletReady", "kubelet is posting ready status"),
    "False": ("KubeletNotReady", "container runtime network not ready: cni plugin not initialized"),
}

Json = dict[str, Any]


class Objects:
    """`epoch`: the date at which the cluster's clock read 0."""

    def __init__(self, truth: ClusterTruth, epoch: datetime = EPOCH) -> None:
        self._truth = truth
        self._epoch = epoch
        self._pods: dict[str, tuple[tuple[int, bool], Json]] = {}  # uid -> what decides it, and the document

    def instant(self, seconds: float) -> datetime:
        return self._epoch + timedelta(seconds=seconds)

    def time(self, seconds: float) -> str:
        return self.instant(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- nodes ---------------------------------------------------------------------------------------------------

    def node(self, node: NodeObject) -> Json:
        machine = self._truth.machines.get(node.name)
        taints = [self._taint(node, taint.key, taint.value, taint.effect) for taint in node.taints]
        resources = _node_resources(machine) | {name: str(count) for name, count in node.allocatable.items()}
        metadata = {
            "name": node.name,
            "uid": node.uid,
            "resourceVersion": str(node.resource_version),
            "creationTimestamp": self.time(node.created),
            "labels": dict(node.labels),
            "annotations": dict(node.annotations),
        }
        return {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": _present(metadata),
            "spec": _present({"taints": taints, "unschedulable": node.unschedulable}),
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": self._conditions(node),
                "addresses": [{"type": "Hostname", "address": node.name}],
                "nodeInfo": _node_info(node, machine),
            },
        }

    def _taint(self, node: NodeObject, key: str, value: str, effect: str) -> Json:
        added = {"timeAdded": self.time(node.ready_since)} if key.startswith("node.kubernetes.io/un") else {}
        return _present({"key": key, "value": value, "effect": effect} | added)

    def _conditions(self, node: NodeObject) -> list[Json]:
        """Return the conditions. A heartbeat is the last change: a newer one would need a new resourceVersion."""
        since = self.time(node.ready_since)
        rows = []
        for kind, reason, message in _PRESSURES:
            row = _SILENT if node.ready == "Unknown" else ("False", reason, message)
            rows.append((kind, *row))
        rows.append(("Ready", *(_SILENT if node.ready == "Unknown" else (node.ready, *_READY[node.ready]))))
        found = [_condition(kind, status, since, reason, message) for kind, status, reason, message in rows]
        for kind, one in node.conditions.items():
            found.append(_condition(kind, one.status, self.time(one.since), one.reason, one.message))
        return found

    # --- pods ----------------------------------------------------------------------------------------------------

    def pods(self, pods: Sequence[PodObject]) -> list[Json]:
        """Return the pods as documents. They are shared between answers, for speed, and must not be changed."""
        if len(self._pods) > _REMEMBERED:
            self._pods.clear()
        shown = []
        for pod in pods:
            known, item = self._pods.get(pod.uid, ((0, True), {}))
            state = pod.resource_version, self._is_ready(pod)
            if known != state:
                item = self.pod(pod)
                self._pods[pod.uid] = state, item
            shown.append(item)
        return shown

    def pod(self, pod: PodObject) -> Json:
        deleting: Json = {}
        if pod.ends is not None:
            grace = pod.ends - (pod.ends if pod.deletion_started is None else pod.deletion_started)
            deleting = {"deletionTimestamp": self.time(pod.ends), "deletionGracePeriodSeconds": int(grace)}
        metadata = {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": str(pod.resource_version),
            "creationTimestamp": self.time(pod.created),
            "labels": dict(pod.labels),
            "annotations": dict(pod.annotations),
            "ownerReferences": self._owners(pod),
            "finalizers": list(pod.finalizers),
        }
        limits = {"nvidia.com/gpu": str(pod.gpus)} if pod.gpus else {}
        container = {
            "name": "main",
            "image": "registry.example.com/main:1.0",
            "resources": _present({"limits": limits}),
        }
        spec = {
            "nodeName": pod.node,
            "containers": [container],
            "restartPolicy": "Never" if pod.owner_kind in ("Job", "") else "Always",
            "terminationGracePeriodSeconds": int(pod.grace_s),
            "volumes": [{"name": "scratch", "emptyDir": {}}] if pod.local_storage else [],
        }
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": _present(metadata) | deleting,
            "spec": _present(spec),
            "status": self._pod_status(pod),
        }

    def _is_ready(self, pod: PodObject) -> bool:
        """Return whether its readiness probe succeeds. Where something starts slowly, time alone changes that."""
        runs = pod.phase == "Running" and not pod.fails
        return runs and (not self._truth.replicated or pod.ends is not None or self._truth.is_ready(pod))

    def _owners(self, pod: PodObject) -> list[Json]:
        if not pod.owner_kind:
            return []
        owner = {
            "apiVersion": _OWNER_API.get(pod.owner_kind, "v1"),
            "kind": pod.owner_kind,
            "name": pod.owner_name,
            "uid": f"{pod.owner_kind}-{pod.namespace}-{pod.owner_name}".lower(),
            "controller": True,
        }
        return [owner]

    def _pod_status(self, pod: PodObject) -> Json:
        runs, ready = pod.phase == "Running", self._is_ready(pod)
        if pod.node is None:
            return {"phase": pod.phase, "qosClass": "BestEffort"}
        state = {"running": {"startedAt": self.time(pod.created)}} if runs else {
            "terminated": {"exitCode": int(pod.phase == "Failed"), "finishedAt": self.time(pod.created)}
        }  # fmt: skip
        return {
            "phase": pod.phase,
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": self.time(pod.created)}],
            "startTime": self.time(pod.created),
            "containerStatuses": [{"name": "main", "ready": ready, "restartCount": 0, "state": state}],
            "qosClass": "BestEffort",
        }

    # --- the rest ------------------------------------------------------------------------------------------------

    def budget(self, budget: DisruptionBudget, version: str) -> Json:
        healthy = self._truth.healthy(budget)
        return {
            "kind": "PodDisruptionBudget",
            "apiVersion": f"policy/{version}",
            "metadata": self._fixed(budget.name, budget.namespace),
            "spec": {"minAvailable": budget.min_available, "selector": {"matchLabels": dict(budget.selector)}},
            "status": {
                "currentHealthy": healthy,
                "desiredHealthy": budget.min_available,
                "disruptionsAllowed": max(0, healthy - budget.min_available),
                "expectedPods": healthy,
                "observedGeneration": 1,
            },
        }

    def namespaces(self) -> list[Json]:
        names = {*SYSTEM_NAMESPACES, *(pod.namespace for pod in self._truth.pods())}
        return [
            {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": self._fixed(name, None) | {"labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }
            for name in names
        ]

    def daemon_sets(self) -> list[Json]:
        """Return the DaemonSets that have pods, because kubectl drain looks them up."""
        counts: dict[tuple[str, str], int] = {}
        for pod in self._truth.pods():
            if pod.owner_kind == "DaemonSet":
                counts[pod.namespace, pod.owner_name] = counts.get((pod.namespace, pod.owner_name), 0) + 1
        return [
            {
                "kind": "DaemonSet",
                "apiVersion": "apps/v1",
                "metadata": self._fixed(name, namespace),
                "spec": {"selector": {"matchLabels": {"app": name}}},
                "status": {"currentNumberScheduled": count, "desiredNumberScheduled": count, "numberReady": count},
            }
            for (namespace, name), count in counts.items()
        ]

    def _fixed(self, name: str, namespace: str | None) -> Json:
        """Return the metadata of an object that this cluster has from the beginning and never changes."""
        place = {"namespace": namespace} if namespace is not None else {}
        uid = f"{namespace or 'cluster'}-{name}"
        return {"name": name, **place, "uid": uid, "resourceVersion": "1", "creationTimestamp": self.time(0)}


def ordered(items: Iterable[Json]) -> list[Json]:
    """Return objects in etcd's order, by namespace and name."""
    return sorted(items, key=place)


def place(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _condition(kind: str, status: str, since: str, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": since,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }


def _present(fields: Json) -> Json:
    """Return the document without empty values, like Go's omitempty."""
    return {key: value for key, value in fields.items() if value not in ("", None, False, [], {})}


def _node_resources(machine: Machine | None) -> dict[str, str]:
    if machine is None:
        return {"cpu": "16", "memory": "65536Mi", "pods": "110"}
    state = machine.state
    return {"cpu": str(56 * state.processors), "memory": f"{state.memory_bytes // 2**20}Mi", "pods": "110"}


def _node_info(node: NodeObject, machine: Machine | None) -> dict[str, str]:
    system = machine.state.os if machine is not None else None
    disk = machine.disk() if machine is not None and system is not None else None
    return {
        "machineID": node.uid.replace("-", ""),
        "systemUUID": machine.state.uuid if machine is not None else node.uid,
        "bootID": system.boot_id if system is not None else "",
        "kernelVersion": disk.kernel if disk is not None else "",
        "osImage": f"{disk.image} {disk.version}" if disk is not None else "",
        "containerRuntimeVersion": "containerd://1.7.24",
        "kubeletVersion": node.kubelet_version,
        "kubeProxyVersion": node.kubelet_version,
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
