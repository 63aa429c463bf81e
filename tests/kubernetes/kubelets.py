"""The kubelets' part of the protocol, played for nodes that have no machine.

They register, renew their leases, report the pods bound to them as running, and remove those that were deleted.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx

Json = dict[str, Any]

STUBBORN = "stubborn"  # a pod with this label ends with its grace period, any other at once
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_PERIOD_S = 0.3
_LOOKS_S = 2.0


class Kubelets:
    """Kubelets of all nodes that were registered through this object. `silent`: those that are dead.

    `lease_s`: how often each renews its lease. `idle`: nodes whose pods are left alone.
    """

    def __init__(self, api: httpx.Client, *, lease_s: float = 8.0) -> None:
        self.silent: set[str] = set()
        self.idle: set[str] = set()
        self.paused = False  # all of them, for as long as the machine's CPU time is measured
        self._api = api
        self._lease_s = lease_s
        self._due: dict[str, float] = {}  # node -> when its lease is to be renewed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def register(self, name: str, labels: Mapping[str, str] | None = None, *, system_uuid: str = "") -> None:
        self._api.post("/api/v1/nodes", json=node(name, labels or {}, system_uuid)).raise_for_status()
        self._api.post(_LEASES, json=_lease(name)).raise_for_status()
        self._due[name] = time.monotonic() + self._lease_s

    def remove(self, name: str) -> None:
        self._due.pop(name, None)
        self._api.delete(f"/api/v1/nodes/{name}")
        self._api.delete(f"{_LEASES}/{name}")

    @property
    def late(self) -> int:
        """Return how many leases are overdue."""
        return sum(due <= time.monotonic() for due in list(self._due.values()))

    # --- their work ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        looks_at = 0.0
        while not self._stop.wait(_PERIOD_S):
            if self.paused:
                continue
            try:
                self._renew_leases()
                if time.monotonic() >= looks_at:
                    looks_at = time.monotonic() + _LOOKS_S
                    self._report_nodes()
                if set(self._due) - self.idle:
                    self._tend_pods()
            except httpx.HTTPError:
                continue  # the API server is away: a kubelet goes on too

    def _renew_leases(self) -> None:
        now = time.monotonic()
        for name in [name for name, due in list(self._due.items()) if due <= now and name not in self.silent]:
            body = json.dumps({"spec": {"renewTime": _now(micro=True)}})
            self._api.patch(f"{_LEASES}/{name}", content=body, headers=_MERGE)
            self._due[name] = now + self._lease_s

    def _report_nodes(self) -> None:
        """Report as ready what the node controller took for dead, as after an outage of the API server."""
        answer = self._api.get("/api/v1/nodes", params={"resourceVersion": "0"})
        for found in answer.json().get("items", []):
            name, conditions = found["metadata"]["name"], found["status"].get("conditions", [])
            if name not in self._due or name in self.silent:
                continue
            if any(condition["type"] == "Ready" and condition["status"] != "True" for condition in conditions):
                body = json.dumps({"status": {"conditions": [ready()]}})
                self._api.patch(f"/api/v1/nodes/{name}/status", content=body, headers=_MERGE)

    def _tend_pods(self) -> None:
        answer = self._api.get("/api/v1/pods", params={"resourceVersion": "0"})
        for pod in answer.json().get("items", []):
            where = pod["spec"].get("nodeName", "")
            if where not in self._due or where in self.silent or where in self.idle:
                continue
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            if "deletionTimestamp" in pod["metadata"]:
                self._end(pod, path)
            elif pod["status"]["phase"] == "Pending":
                self._api.patch(f"{path}/status", content=json.dumps({"status": running()}), headers=_MERGE)

    def _end(self, pod: Json, path: str) -> None:
        """Remove a pod that was deleted, when its containers have ended."""
        metadata = pod["metadata"]
        waits = STUBBORN in metadata.get("labels", {}) and metadata["deletionTimestamp"] > _now()
        if waits or metadata["deletionGracePeriodSeconds"] == 0:  # 0: gone, but for what its finalizers keep
            return
        self._api.patch(f"{path}/status", content=json.dumps({"status": ended()}), headers=_MERGE)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        self._api.request("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", **options})


def node(name: str, labels: Mapping[str, str], system_uuid: str) -> Json:
    """Return a node object as a kubelet that is ready registers it."""
    resources = {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    info = dict.fromkeys(("machineID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"), "x")
    info |= {"kubeletVersion": "v1.20.2", "kubeProxyVersion": "v1.20.2", "operatingSystem": "linux"}
    info |= {"architecture": "amd64", "systemUUID": system_uuid}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": info,
            "conditions": [ready()],
        },
    }


def ready() -> Json:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": _now(),
        "lastTransitionTime": _now(),
    }


def running() -> Json:
    """Return the status of a pod that runs and is ready."""
    conditions = [
        {"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {"phase": "Running", "conditions": conditions, "startTime": _now()}


def ended() -> Json:
    """Return the status of a pod whose containers have ended. Its phase stays as it was: kubelets before 1.27."""
    container = {"name": "main", "ready": False, "restartCount": 0, "image": "x", "imageID": "x"}
    return {"containerStatuses": [container | {"state": {"terminated": {"exitCode": 0}}}]}


def _lease(name: str) -> Json:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now(micro=True)}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": spec,
    }


def _now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
