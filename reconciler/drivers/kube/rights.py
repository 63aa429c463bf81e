"""The rights that this driver needs in a cluster, each with what it is for. deploy/kubernetes/rbac.yaml grants them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from reconciler.drivers.kube import objects
from reconciler.drivers.kube.failures import malformed
from reconciler.model.drain import DrainPolicy
from reconciler.model.maintenance import Operator
from reconciler.model.vocab import CheckpointWay

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """`resource`: with its subresource, as in a ClusterRole."""

    verb: str
    resource: str
    purpose: str
    namespace: str = ""  # "" = in all of them
    group: str = ""  # "" = core

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''} ({self.purpose})"

    def question(self) -> bytes:
        """Return the SelfSubjectAccessReview that asks for it."""
        resource, _, subresource = self.resource.partition("/")
        wanted = {"verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource}
        if self.namespace:
            wanted["namespace"] = self.namespace
        review = {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": wanted},
        }
        return json.dumps(review).encode()


RIGHTS: Final = (
    Right("get", "nodes", "reading a node"),
    Right("list", "nodes", "reading the cluster"),
    Right("watch", "nodes", "hearing of changes between two passes"),
    Right("patch", "nodes", "marking, cordoning and labelling"),
    Right("delete", "nodes", "decommissioning"),
    Right("get", "pods", "telling whether a pod is gone"),
    Right("list", "pods", "knowing what runs on a node"),
    Right("delete", "pods", "pods of dead nodes, and `force` of a drain"),
    Right("create", "pods/eviction", "draining"),
)
# Those of a channel that is `kubernetes`, in the namespace that Events of nodes are in.
EVENT_RIGHTS: Final = tuple(
    Right(verb, "events", "telling people by Events", "default") for verb in ("get", "create", "update")
)

# Needed only where a Persona asks its work to save its state, in one of these ways.
CHECKPOINT_RIGHTS: Final = {
    CheckpointWay.ANNOTATION: (Right("patch", "pods", "asking pods by an annotation to save their state"),),
    CheckpointWay.COMMAND: (),
    CheckpointWay.SIGNAL: (),
    CheckpointWay.HTTP: (
        Right("create", "pods/proxy", "asking pods over HTTP to save their state"),
        Right("get", "pods/proxy", "asking pods over HTTP whether they have"),
    ),
}


# Needed only where a Persona surges what serves, or stops queues of Kueue.
SURGE_RIGHTS: Final = (
    Right("get", "replicasets", "finding the Deployment of a pod", group="apps"),
    Right("get", "deployments", "reading how many replicas are ready", group="apps"),
    Right("patch", "deployments", "raising replicas before a drain", group="apps"),
    Right("get", "statefulsets", "reading how many replicas are ready", group="apps"),
    Right("patch", "statefulsets", "raising replicas before a drain", group="apps"),
    Right("get", "horizontalpodautoscalers", "reading the minimum of an autoscaler", group="autoscaling"),
    Right("list", "horizontalpodautoscalers", "finding the autoscaler of replicas", group="autoscaling"),
    Right("patch", "horizontalpodautoscalers", "raising the minimum of an autoscaler", group="autoscaling"),
    Right("get", "leaderworkersets", "reading how many groups are ready", group="leaderworkerset.x-k8s.io"),
    Right("patch", "leaderworkersets", "raising groups before a drain", group="leaderworkerset.x-k8s.io"),
    Right("get", "inferenceservices", "reading the minimum of a service", group="serving.kserve.io"),
    Right("patch", "inferenceservices", "raising the minimum of a service", group="serving.kserve.io"),
)
QUEUE_RIGHTS: Final = (
    Right("get", "clusterqueues", "reading whether a queue is stopped", group="kueue.x-k8s.io"),
    Right("patch", "clusterqueues", "stopping a queue while a node is out", group="kueue.x-k8s.io"),
)


def maintenance_rights(operators: Iterable[Operator]) -> tuple[Right, ...]:
    """Return the rights to read the objects of these operators, which a cluster may have."""
    return tuple(Right("list", one.resource, f"seeing what {one.who} maintains", group=one.group) for one in operators)


def rights_for(policies: Iterable[DrainPolicy]) -> tuple[Right, ...]:
    """Return the rights that these drains need."""
    drains = tuple(policies)
    ways = {one.checkpoint.way for one in drains if one.checkpoint is not None}
    asked = (right for way in CheckpointWay if way in ways for right in CHECKPOINT_RIGHTS[way])
    surged = SURGE_RIGHTS if any(one.surge is not None for one in drains) else ()
    return (*RIGHTS, *asked, *surged, *(QUEUE_RIGHTS if any(one.hold is not None for one in drains) else ()))


def is_allowed(answer: bytes) -> bool:
    """Return the API server's answer to a question."""
    status = objects.document(answer, "SelfSubjectAccessReview").get("status")
    allowed = status.get("allowed") if isinstance(status, dict) else None
    if not isinstance(allowed, bool):
        raise malformed("a review without a verdict")
    return allowed


def in_words(rights: tuple[Right, ...] = RIGHTS) -> Iterator[str]:
    """Yield the rights by resource: "get, list and watch nodes"."""
    for resource in dict.fromkeys(right.resource for right in rights):
        *verbs, last = (right.verb for right in rights if right.resource == resource)
        yield f"{', '.join(verbs)} and {last} {resource}" if verbs else f"{last} {resource}"
