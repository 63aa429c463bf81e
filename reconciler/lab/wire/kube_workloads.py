"""Deployments of the lab's cluster and their ReplicaSets as Kubernetes JSON, and the one change that clients may make.

A client may scale a Deployment and annotate it. Its resourceVersion also changes when a pod of it becomes ready, since
an API server counts a write of the status by a controller like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from reconciler.lab.hardware.cluster_objects import Conflict
from reconciler.lab.hardware.control_plane import ClusterTruth
from reconciler.lab.hardware.replicas import ReplicatedObject
from reconciler.lab.wire.kube_patch import BadPatch, merge_patch
from reconciler.lab.wire.kube_status import bad_patch, conflict, invalid, not_found, unsupported_media_type
from reconciler.model.adjustments import RECORD

Json = dict[str, Any]

_MOST: Final = 10_000  # pods of one Deployment, by which its revision leaves room for their number
_ROLLING: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}


class Workloads:
    def __init__(self, truth: ClusterTruth) -> None:
        self._truth = truth

    def deployments(self, born: str) -> list[Json]:
        """Return all Deployments. `born`: when they were created."""
        return [self._deployment(thing, born) for thing in self._all()]

    def replica_sets(self, born: str) -> list[Json]:
        return [self._replica_set(thing, born) for thing in self._all()]

    def patch(self, namespace: str, name: str, media_type: str, patch: Any, born: str) -> Json:
        """Scale and annotate a Deployment by a JSON merge patch. Refuse everything else rather than lose it."""
        thing = self._truth.replicated.get(("Deployment", namespace, name))
        if thing is None:
            raise not_found("deployments.apps", name)
        if media_type != "application/merge-patch+json":
            raise unsupported_media_type()
        current = self._deployment(thing, born)
        try:
            wanted = merge_patch(current, patch)
        except BadPatch as error:
            raise bad_patch() from error
        if wanted["metadata"].get("resourceVersion") != current["metadata"]["resourceVersion"]:
            raise conflict("deployments.apps", name, _modified(name))
        if _fixed(wanted) != _fixed(current):
            why = f"Forbidden: this server keeps only replicas, and the annotation {RECORD}"
            raise invalid("Deployment", name, "spec", why)
        replicas = wanted["spec"].get("replicas", 1)
        if type(replicas) is not int or not 0 <= replicas < _MOST:
            raise invalid("Deployment", name, "spec.replicas", f"Invalid value: {replicas}")
        note = (wanted["metadata"].get("annotations") or {}).get(RECORD)
        try:
            self._truth.change(thing, str(thing.resource_version), replicas, note)
        except Conflict as error:
            raise conflict("deployments.apps", name, _modified(name)) from error
        return self._deployment(thing, born)

    def _all(self) -> list[ReplicatedObject]:
        self._truth.sync()
        return [thing for thing in self._truth.replicated.values() if thing.kind == "Deployment"]

    def _deployment(self, thing: ReplicatedObject, born: str) -> Json:
        annotations = {"deployment.kubernetes.io/revision": "1"} | ({} if thing.note is None else {RECORD: thing.note})
        there, ready = len(self._truth.pods_of(thing)), self._truth.ready_of(thing)
        missing = max(0, thing.replicas - ready)
        enough = ready >= thing.replicas - thing.replicas // 4  # maxUnavailable
        counts = {"replicas": there, "updatedReplicas": there, "readyReplicas": ready, "availableReplicas": ready}
        return {
            "kind": "Deployment",
            "apiVersion": "apps/v1",
            "metadata": {**self._head(thing, thing.name, "deployment", born), "annotations": annotations},
            "spec": {
                "replicas": thing.replicas,
                "selector": {"matchLabels": _labels(thing)},
                "template": _template(thing, _labels(thing)),
                "strategy": _ROLLING,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            },
            "status": {
                "observedGeneration": thing.resource_version,
                **{name: count for name, count in counts.items() if count},
                **({"unavailableReplicas": missing} if missing else {}),
                "conditions": [
                    _condition("Available", enough, "MinimumReplicasAvailable", "MinimumReplicasUnavailable", born),
                    _condition("Progressing", True, "NewReplicaSetAvailable", "", born),
                ],
            },
        }

    def _replica_set(self, thing: ReplicatedObject, born: str) -> Json:
        labels = {**_labels(thing), "pod-template-hash": _hash(thing)}
        owner = {
            "apiVersion": "apps/v1", "kind": "Deployment", "name": thing.name, "uid": _uid(thing, "deployment"),
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        there, ready = len(self._truth.pods_of(thing)), self._truth.ready_of(thing)
        counts = {"replicas": there, "fullyLabeledReplicas": there, "readyReplicas": ready, "availableReplicas": ready}
        head = self._head(thing, thing.owner[1], "replicaset", born)
        return {
            "kind": "ReplicaSet",
            "apiVersion": "apps/v1",
            "metadata": {**head, "labels": labels, "ownerReferences": [owner]},
            "spec": {
                "replicas": thing.replicas,
                "selector": {"matchLabels": labels},
                "template": _template(thing, labels),
            },
            "status": {"observedGeneration": 1, "replicas": there, **{name: n for name, n in counts.items() if n}},
        }

    def _head(self, thing: ReplicatedObject, name: str, kind: str, born: str) -> Json:
        revision = thing.resource_version * _MOST + self._truth.ready_of(thing)
        return {
            "name": name,
            "namespace": thing.namespace,
            "uid": _uid(thing, kind),
            "resourceVersion": str(revision),
            "generation": thing.resource_version,
            "creationTimestamp": born,
            "labels": _labels(thing),
        }


def _uid(thing: ReplicatedObject, kind: str) -> str:
    name = thing.name if kind == "deployment" else thing.owner[1]
    return f"{kind}-{thing.namespace}-{name}".lower()  # as pods name their owner


def _labels(thing: ReplicatedObject) -> Json:
    return dict(thing.pod.get("labels", {})) or {"app": thing.name}


def _hash(thing: ReplicatedObject) -> str:
    return hashlib.sha256(thing.name.encode()).hexdigest()[:10]


def _template(thing: ReplicatedObject, labels: Json) -> Json:
    metadata = {"labels": labels, "annotations": dict(thing.pod.get("annotations", {}))}
    container = {"name": "main", "image": "registry.example.com/main:1.0", "resources": {}}
    return {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Always"}}


def _condition(kind: str, status: bool, good: str, bad: str, since: str) -> Json:
    reason, word = (good if status else bad), str(status)
    return {"type": kind, "status": word, "reason": reason, "lastUpdateTime": since, "lastTransitionTime": since}


def _fixed(document: Mapping[str, Any]) -> Json:
    """Return what clients may not change."""
    metadata, spec = dict(document["metadata"]), dict(document["spec"])
    metadata["annotations"] = {key: one for key, one in (metadata.get("annotations") or {}).items() if key != RECORD}
    spec.pop("replicas", None)
    return {**document, "metadata": metadata, "spec": spec}


def _modified(name: str) -> str:
    return (
        f'Operation cannot be fulfilled on deployments.apps "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
