"""`KubeAdjustments`, which implements ports' Adjustments on a cluster: replicas of what serves, and queues of Kueue.

What sets the number of a pod is found from the pod outwards. Where a HorizontalPodAutoscaler keeps the number, its
minimum is raised; pods of KServe's InferenceService are raised there, since it sets back what it owns, unless it says
that others scale them (autoscalerClass external).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from reconciler.drivers.kube.failures import KubeFailure, malformed
from reconciler.drivers.kube.field_owners import git_keeper
from reconciler.drivers.kube.objects import Json, controller_of, map_of, maps_of, text_of
from reconciler.model.adjustments import (
    GONE,
    QUEUE,
    RECORD,
    Adjusted,
    AdjustedRef,
    AdjustmentRecord,
    Value,
    read_record,
    write_record,
)
from reconciler.model.errors import DriverError, Failure
from reconciler.model.pods import Pod

Read = Callable[[str], Awaitable[Json | None]]  # path -> the object; None: there is none, or no such resource
Patch = Callable[[str, str, str, str], Awaitable[None]]  # as Kubectl.merge

_LWS: Final = "leaderworkerset.sigs.k8s.io/name"
_SERVICE: Final = "serving.kserve.io/inferenceservice"
_COMPONENT: Final = "component"  # predictor, transformer, explainer (kserve pkg/constants)
_MODE: Final = "serving.kserve.io/deploymentMode"
_SCALER: Final = "serving.kserve.io/autoscalerClass"  # KServe copies it to the Deployment
_EXTERNAL: Final = "external"  # KServe makes no autoscaler, and leaves the replicas of its Deployment alone
_KNATIVE: Final = ("Serverless", "Knative")  # there each change of the minimum is a new revision: all pods start anew
_HPA: Final = "HorizontalPodAutoscaler"
_SERVICE_KIND: Final = "InferenceService"


@dataclass(frozen=True, slots=True)
class _Kind:
    """`field`: path of the value below spec."""

    group: str
    versions: tuple[str, ...]  # the newest first
    plural: str
    field: tuple[str, ...] = ("replicas",)


# autoscaling/v1 is served by all releases from 1.2 on, and has all that is needed.
KINDS: Final = {
    "Deployment": _Kind("apps", ("v1",), "deployments"),
    "StatefulSet": _Kind("apps", ("v1",), "statefulsets"),
    "LeaderWorkerSet": _Kind("leaderworkerset.x-k8s.io", ("v1",), "leaderworkersets"),
    _HPA: _Kind("autoscaling", ("v1",), "horizontalpodautoscalers", ("minReplicas",)),
    _SERVICE_KIND: _Kind("serving.kserve.io", ("v1beta1",), "inferenceservices", ("", "minReplicas")),  # "": the part
    QUEUE: _Kind("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "clusterqueues", ("stopPolicy",)),
}


class KubeAdjustments:
    """`read` and `patch` raise KubeFailure."""

    def __init__(self, read: Read, patch: Patch) -> None:
        self._read, self._patch = read, patch
        self._versions: dict[str, str] = {}  # kind -> the version that the cluster serves

    async def scaled_by(self, pod: Pod) -> AdjustedRef | None:
        try:
            return await self._scaled_by(pod)
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure

    async def read(self, ref: AdjustedRef) -> Adjusted | None:
        try:
            return await self._adjusted(ref)
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure

    async def write(self, found: Adjusted, value: Value, record: AdjustmentRecord | None) -> None:
        kind, ref = KINDS[found.ref.kind], found.ref
        spec: Any = value
        for name in reversed(_field(ref)):
            spec = {name: spec}
        note = None if record is None else write_record(record)
        metadata = {"resourceVersion": found.resource_version, "annotations": {RECORD: note}}
        version = self._versions.get(ref.kind, kind.versions[0])
        resource = f"{kind.plural}.{version}.{kind.group}/{ref.name}"
        try:
            patch = json.dumps({"metadata": metadata, "spec": spec})
            await self._patch(_path(ref, version), resource, ref.namespace, patch)
        except KubeFailure as failure:
            problem = failure.problem
            moved = problem.code in (404, 409)
            raise (DriverError(Failure.CONFLICT, problem.detail) if moved else problem.of_write()) from failure

    # --- from a pod to what sets its number ---

    async def _scaled_by(self, pod: Pod) -> AdjustedRef | None:
        space = pod.namespace
        document = await self._read(f"/api/v1/namespaces/{quote(space, safe='')}/pods/{quote(pod.name, safe='')}")
        metadata = {} if document is None else map_of(document, "metadata")
        if metadata.get("uid") != pod.uid:
            return GONE
        labels = map_of(metadata, "labels")
        if name := text_of(labels, _LWS):
            return await self._outermost(AdjustedRef("LeaderWorkerSet", space, name))
        if name := text_of(labels, _SERVICE):
            return await self._of_service(
                AdjustedRef(_SERVICE_KIND, space, name, text_of(labels, _COMPONENT) or "predictor")
            )
        kind, name = controller_of(metadata)
        if kind == "StatefulSet":
            return await self._outermost(AdjustedRef(kind, space, name))
        if kind != "ReplicaSet":
            return None
        found = await self._read(f"/apis/apps/v1/namespaces/{quote(space, safe='')}/replicasets/{quote(name, safe='')}")
        kind, name = ("", "") if found is None else controller_of(map_of(found, "metadata"))
        return await self._outermost(AdjustedRef(kind, space, name)) if kind == "Deployment" else None

    async def _of_service(self, ref: AdjustedRef) -> AdjustedRef:
        """Return what keeps the replicas of a part of an InferenceService: itself, or what it leaves that to."""
        document = await self._document(ref)
        if document is None or _scaler(document, ref.part) != _EXTERNAL:
            return ref
        return await self._outermost(AdjustedRef("Deployment", ref.namespace, _deployment(document, ref)))

    async def _outermost(self, ref: AdjustedRef) -> AdjustedRef:
        """Return the autoscaler that keeps the number of these replicas, or what has them."""
        found = await self._read(_collection(_HPA, ref.namespace, KINDS[_HPA].versions[0]))
        for item in () if found is None else maps_of(found, "items"):
            if _target(item, ref.namespace) == ref:
                return AdjustedRef(_HPA, ref.namespace, text_of(map_of(item, "metadata"), "name"))
        return ref

    # --- reading what is adjusted ---

    async def _document(self, ref: AdjustedRef) -> Json | None:
        for version in KINDS[ref.kind].versions if ref.kind in KINDS else ():
            if (found := await self._read(_path(ref, version))) is not None:
                self._versions[ref.kind] = version
                return found
        return None

    async def _adjusted(self, ref: AdjustedRef) -> Adjusted | None:
        document = await self._document(ref)
        if document is None:
            return None
        metadata, spec = map_of(document, "metadata"), map_of(document, "spec")
        if ref.part:
            spec = map_of(spec, ref.part)
        running = await self._running(ref, document)
        wanted, ready = (0, 0) if running is None else _counts(running)
        value = _value(ref, spec)
        fixed = ref.kind == _SERVICE_KIND and _is_fixed(document, ref.part)
        return Adjusted(
            ref, text_of(metadata, "resourceVersion"), value, wanted, ready,
            most=max(wanted, value if isinstance(value, int) else 0) if fixed else _most(spec),
            keeper=_keeper(ref, document, running),
            record=read_record(map_of(metadata, "annotations").get(RECORD)),
        )  # fmt: skip

    async def _running(self, ref: AdjustedRef, document: Json) -> Json | None:
        """Return the object that counts the replicas: the document itself, or what it scales."""
        match ref.kind:
            case "ClusterQueue":
                return None
            case "InferenceService":
                return await self._document(AdjustedRef("Deployment", ref.namespace, _deployment(document, ref)))
            case "HorizontalPodAutoscaler":
                return await self._document(_target(document, ref.namespace))
            case _:
                return document


def _target(autoscaler: Json, namespace: str) -> AdjustedRef:
    target = map_of(map_of(autoscaler, "spec"), "scaleTargetRef")
    return AdjustedRef(text_of(target, "kind"), namespace, text_of(target, "name"))


def _deployment(service: Json, ref: AdjustedRef) -> str:
    """Return the name of the Deployment of a part in KServe's mode Standard. A predictor may have one of its own."""
    own = text_of(map_of(map_of(service, "spec"), ref.part), "name") if ref.part == "predictor" else ""
    return "-".join(filter(None, (ref.name, own, ref.part)))


def _scaler(service: Json, part: str) -> str:
    """Return the class of autoscaler of a part; "" where it is KServe's own default."""
    of_part = map_of(map_of(map_of(service, "spec"), part), "annotations")
    return text_of(of_part, _SCALER) or text_of(map_of(map_of(service, "metadata"), "annotations"), _SCALER)


def _is_fixed(service: Json, part: str) -> bool:
    """Return whether one replica more is none that serves.

    With workers, a change starts all of them anew, and a second head gets none. With a canary, KServe takes the
    canary's replicas out of the minimum again.
    """
    spec = map_of(service, "spec")
    return "workerSpec" in map_of(spec, part) or (part == "predictor" and bool(spec.get("canary")))


def _most(spec: Json) -> int | None:
    return _number(spec, "maxReplicas") or None  # 0 of an InferenceService: no limit


def _counts(running: Json) -> tuple[int, int]:
    """Return how many replicas are wanted, and are ready. One is wanted where the object does not say."""
    wanted = _number(map_of(running, "spec"), "replicas")
    return 1 if wanted is None else wanted, _number(map_of(running, "status"), "readyReplicas") or 0


def _value(ref: AdjustedRef, spec: Json) -> Value:
    name = _field(ref)[-1]
    return text_of(spec, name) or None if ref.kind == QUEUE else _number(spec, name)


def _number(holder: Json, name: str) -> int | None:
    value = holder.get(name)
    if value is not None and type(value) is not int:
        raise malformed(f"{name} is not a whole number")
    return value


def _keeper(ref: AdjustedRef, document: Json, running: Json | None) -> str:
    """Return who would set the value back, so that raising it is no use."""
    metadata = map_of(document, "metadata")
    kind, name = controller_of(metadata)
    if kind and not (kind == _SERVICE_KIND and text_of(map_of(metadata, "annotations"), _SCALER) == _EXTERNAL):
        return f"{kind} {name}"
    if ref.kind == _SERVICE_KIND:
        mode = text_of(map_of(metadata, "annotations"), _MODE) or text_of(map_of(document, "status"), "deploymentMode")
        if mode in _KNATIVE or running is None:
            return "Knative, or a mode of KServe that is not known,"
    return "" if ref.kind == QUEUE else git_keeper(metadata, ("spec", *_field(ref)))


def _field(ref: AdjustedRef) -> tuple[str, ...]:
    return tuple(name or ref.part for name in KINDS[ref.kind].field)


def _path(ref: AdjustedRef, version: str) -> str:
    return f"{_collection(ref.kind, ref.namespace, version)}/{quote(ref.name, safe='')}"


def _collection(kind: str, namespace: str, version: str) -> str:
    of = KINDS[kind]
    space = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"/apis/{of.group}/{version}{space}/{of.plural}"
