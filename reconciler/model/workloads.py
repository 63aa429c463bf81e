"""Tell from a pod's metadata what work it is part of: which pods lose their progress, or serve, together.

The keys are those that the controllers document and put on pods: LeaderWorkerSet (docs/reference/
labels-annotations-and-environment-variables), JobSet (docs/concepts), Kubeflow's training operator (kubeflow/common
pkg/apis/common/v1), Kueue (docs/reference/labels-and-annotations; keps/2724-topology-aware-scheduling). What has none
of them is told by its controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from reconciler.model.adjustments import SURGE
from reconciler.model.drain import DRAIN_AT, READY_TO_EVICT, TAKES_PART
from reconciler.model.pods import PodCheckpoint, Workload

_LWS: Final = "leaderworkerset.sigs.k8s.io/name"
_LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
_TRAINING: Final = "training.kubeflow.org/job-name"
_POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_ADMITTED: Final = "kueue.x-k8s.io/workload"  # an annotation: the Workload that Kueue has admitted by topology
_BY_TOPOLOGY: Final = "kueue.x-k8s.io/tas"  # a label; releases since 0.12 have only the annotations
_TOPOLOGY: Final = tuple(f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred", "unconstrained"))

# Controllers of work that ends by itself. JobSets and TrainJobs own Jobs, which own the pods.
FINITE: Final = frozenset({"Job", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"})


def checkpoint_of(annotations: Mapping[str, str]) -> PodCheckpoint | None:
    """Return what a pod says of its checkpoint; None when it does not take part."""
    if annotations.get(TAKES_PART) != "true":
        return None
    return PodCheckpoint(annotations.get(DRAIN_AT, ""), annotations.get(READY_TO_EVICT, ""))


def surge_of(annotations: Mapping[str, str]) -> bool | None:
    """Return whether a pod asks for another one elsewhere before it is evicted; None when it does not say."""
    return {"true": True, "false": False}.get(annotations.get(SURGE, ""))


def workload_of(
    namespace: str, owner: tuple[str, str], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Workload | None:
    """Return the work that a pod is part of, as the outermost controller names it; None: pods that don't depend so.

    `owner`: kind and name of the pod's controller. What Kueue has placed by topology is a workload whatever owns it.
    """
    found, admitted = _named(namespace, owner, labels), annotations.get(_ADMITTED, "")
    asks = labels.get(_BY_TOPOLOGY) == "true" or any(key in annotations for key in _TOPOLOGY)
    if not admitted or not asks:
        return found
    if found is None or (found.kind == "Job" and not admitted.startswith(f"job-{found.name}-")):
        found = Workload("Workload", namespace, admitted, queue=labels.get(_QUEUE, ""))  # one Job of several
    return replace(found, placed=True)


def _named(namespace: str, owner: tuple[str, str], labels: Mapping[str, str]) -> Workload | None:
    queue = labels.get(_QUEUE, "")
    if name := labels.get(_LWS):
        return Workload("LeaderWorkerSet", namespace, name, labels.get(_LWS_GROUP, ""), queue)
    if name := labels.get(_JOB_SET):
        return Workload("JobSet", namespace, name, queue=queue)
    kind, owner_name = owner
    if name := labels.get(_TRAINING):
        return Workload(kind if kind in FINITE else "TrainingJob", namespace, name, queue=queue)
    if name := labels.get(_POD_GROUP):
        return Workload("PodGroup", namespace, name, queue=queue)
    return Workload(kind, namespace, owner_name, queue=queue) if kind in FINITE else None
