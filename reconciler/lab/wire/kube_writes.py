"""Writes to the lab's cluster: updates of nodes, evictions and deletions, refused as an API server refuses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reconciler.lab.hardware.cluster_objects import TwoBudgets
from reconciler.lab.hardware.control_plane import ClusterTruth, Conflict, NotFound, TooManyRequests
from reconciler.lab.wire import kube_patch
from reconciler.lab.wire.kube_objects import Objects
from reconciler.lab.wire.kube_status import (
    ApiError,
    bad_patch,
    bad_request,
    budget_forbids,
    conflict,
    invalid,
    not_found,
    success,
    unsupported_media_type,
)
from reconciler.lab.wire.kube_workloads import Workloads
from reconciler.model.observed import Taint

PATCHES = {
    "application/json-patch+json": kube_patch.json_patch,
    "application/merge-patch+json": kube_patch.merge_patch,
    "application/strategic-merge-patch+json": kube_patch.strategic_merge_patch,
}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
# Fields of a node that clients may change here. Anything else is refused rather than lost.
_WRITABLE = {
    "metadata": ("labels", "annotations", "resourceVersion", "managedFields"),
    "spec": ("taints", "unschedulable"),
}

Json = dict[str, Any]


class Writes:
    def __init__(self, truth: ClusterTruth, objects: Objects) -> None:
        self._truth = truth
        self._objects = objects
        self._workloads = Workloads(truth)

    def patch_deployment(self, namespace: str, name: str, media_type: str, patch: Any) -> Json:
        return self._workloads.patch(namespace, name, media_type, patch, self._objects.time(0))

    # --- nodes ---------------------------------------------------------------------------------------------------

    def patch_node(self, name: str, media_type: str, patch: Any, *, dry: bool) -> Json:
        apply = PATCHES.get(media_type)
        if apply is None:
            raise unsupported_media_type()
        try:
            wanted = apply(self._node(name), patch)
        except kube_patch.BadPatch as error:
            raise bad_patch() from error
        return self.replace_node(name, wanted, dry=dry)

    def replace_node(self, name: str, wanted: Any, *, dry: bool) -> Json:
        current = self._node(name)
        _check_shape(name, wanted)
        metadata, spec = wanted["metadata"], wanted.get("spec") or {}
        revision = metadata.get("resourceVersion")
        if revision and revision != current["metadata"]["resourceVersion"]:
            raise conflict("nodes", name, _modified(name))
        if _read_only_fields(wanted) != _read_only_fields(current):
            raise invalid("Node", name, "spec", "Forbidden: this server keeps only labels, annotations, taints and "
                          "unschedulable")  # fmt: skip
        labels, annotations = _labels(name, metadata), _strings(name, metadata, "annotations")
        taints, unschedulable = _taints(name, spec), spec.get("unschedulable") or False
        if dry:
            return {**wanted, "metadata": {**metadata, "resourceVersion": current["metadata"]["resourceVersion"]}}
        node = self._truth.update_node(
            name, labels=labels, annotations=annotations, taints=taints, unschedulable=unschedulable
        )
        return self._objects.node(node)

    def delete_node(self, name: str, options: Mapping[str, Any]) -> Json:
        current = self._node(name)
        uid = (options.get("preconditions") or {}).get("uid")
        if uid is not None and uid != current["metadata"]["uid"]:
            raise conflict("Node", name, _other_uid("Node", name, uid, current["metadata"]["uid"]))
        self._truth.remove_node(name)
        return success(200, name=name, kind="nodes", uid=current["metadata"]["uid"])

    def _node(self, name: str) -> Json:
        try:
            return self._objects.node(self._truth.node(name))
        except NotFound as error:
            raise not_found("nodes", name) from error

    # --- pods ----------------------------------------------------------------------------------------------------

    def evict(self, namespace: str, name: str, eviction: Any, versions: tuple[str, ...]) -> Json:
        """Evict a pod. `versions`: API versions of Eviction that this server understands."""
        if not isinstance(eviction, dict) or eviction.get("kind") != "Eviction":
            raise bad_request(f"not an Eviction object: {eviction}")
        if eviction.get("apiVersion") not in versions:
            raise bad_request(f'Eviction in version "{eviction.get("apiVersion")}" cannot be handled as a Eviction: '
                              "no kind is registered for it")  # fmt: skip
        if (eviction.get("metadata") or {}).get("name", name) != name:
            raise bad_request("name in URL does not match name in Eviction object")
        uid, grace = _delete_options(eviction.get("deleteOptions") or {})
        try:
            self._truth.evict(namespace, name, uid=uid, grace_s=grace)
        except TooManyRequests as error:
            budget = next(each for each in self._truth.disruption_budgets() if each.name == error.budget)
            raise budget_forbids(budget.name, budget.min_available, self._truth.healthy(budget)) from error
        except TwoBudgets as error:
            raise ApiError(500, "", str(error)) from error
        except (NotFound, Conflict) as error:
            raise self._pod_error(namespace, name, uid, error) from error
        return success(201)

    def patch_pod(self, namespace: str, name: str, media_type: str, patch: Any) -> Json:
        """Patch a pod's annotations; a UID in the patch must be the pod's. Anything else is refused."""
        apply = PATCHES.get(media_type)
        if apply is None:
            raise unsupported_media_type()
        try:
            current = self._objects.pod(self._truth.pod(namespace, name))
            wanted = apply(current, patch)
        except kube_patch.BadPatch as error:
            raise bad_patch() from error
        except NotFound as error:
            raise not_found("pods", name) from error
        metadata = wanted.get("metadata") or {}
        uid, annotations = metadata.get("uid"), _strings(name, metadata, "annotations")
        if uid != current["metadata"]["uid"]:
            raise conflict("Pod", name, _other_uid("Pod", name, str(uid), current["metadata"]["uid"]))
        rest = [{**one, "metadata": {**one["metadata"], "annotations": {}}} for one in (wanted, current)]
        if rest[0] != rest[1]:
            raise invalid("Pod", name, "spec", "Forbidden: this server keeps only annotations of pods")
        gone = dict.fromkeys(current["metadata"].get("annotations", {}).keys() - annotations.keys())
        return self._objects.pod(self._truth.annotate_pod(namespace, name, uid, {**annotations, **gone}))

    def ask_pod(self, namespace: str, name: str, method: str) -> int:
        """Return the status of a pod's answer to a request that was sent through this server."""
        try:
            return self._truth.ask_pod(namespace, name, method)
        except NotFound as error:
            raise not_found("pods", name) from error

    def delete_pod(self, namespace: str, name: str, options: Mapping[str, Any]) -> Json:
        """Delete a pod and return its last document, or the present one while it terminates."""
        uid, grace = _delete_options(options)
        try:
            pod = self._truth.pod(namespace, name)
            before = self._objects.pod(pod)
            self._truth.delete_pod(namespace, name, uid=uid, grace_s=grace)
        except (NotFound, Conflict) as error:
            raise self._pod_error(namespace, name, uid, error) from error
        return before if pod.ends is None else self._objects.pod(pod)

    def _pod_error(self, namespace: str, name: str, wanted: str | None, error: NotFound | Conflict) -> ApiError:
        if isinstance(error, NotFound):
            return not_found("pods", name)
        found = self._truth.pod(namespace, name).uid
        return conflict("Pod", name, _other_uid("Pod", name, str(wanted), found))


def _delete_options(options: Mapping[str, Any]) -> tuple[str | None, float | None]:
    if options.get("dryRun"):
        raise bad_request("this server has no dry run for pods")
    return (options.get("preconditions") or {}).get("uid"), options.get("gracePeriodSeconds")


def _modified(name: str) -> str:
    return (
        f'Operation cannot be fulfilled on nodes "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def _other_uid(kind: str, name: str, wanted: str, found: str) -> str:
    return (
        f'Operation cannot be fulfilled on {kind} "{name}": the UID in the precondition ({wanted}) does not match the '
        f"UID in record ({found}). The object might have been deleted and then recreated"
    )


def _check_shape(name: str, wanted: Any) -> None:
    if not isinstance(wanted, dict) or not isinstance(wanted.get("metadata"), dict):
        raise bad_request("the object provided is unrecognized")
    if wanted["metadata"].get("name") != name:
        raise bad_request(
            f"the name of the object ({wanted['metadata'].get('name')}) does not match the name on the URL ({name})"
        )
    spec = wanted.get("spec")
    if spec is not None and not isinstance(spec, dict):
        raise _ill_typed(name, "spec is not an object")
    if not isinstance((spec or {}).get("unschedulable") or False, bool):
        raise _ill_typed(name, "spec.unschedulable is not a boolean")


def _ill_typed(name: str, message: str) -> ApiError:
    return invalid("Node", name, "patch", f"Invalid value: {message}")


def _read_only_fields(node: Json) -> Json:
    """Return the fields that clients may not change: all but the writable ones and the ignored status."""
    rest = {key: value for key, value in node.items() if key not in ("metadata", "spec", "status")}
    for part, fields in _WRITABLE.items():
        rest[part] = {key: value for key, value in (node.get(part) or {}).items() if key not in fields}
    return rest


def _strings(name: str, metadata: Json, field: str) -> dict[str, str]:
    values = metadata.get(field) or {}
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise _ill_typed(name, f"metadata.{field} is not a map of strings")
    for key in values:
        if not _KEY.fullmatch(key) or len(key.rpartition("/")[2]) > 63:
            raise invalid("Node", name, f"metadata.{field}", f'Invalid value: "{key}": name part must consist of '
                          "alphanumeric characters, '-', '_' or '.'")  # fmt: skip
    return values


def _labels(name: str, metadata: Json) -> dict[str, str]:
    labels = _strings(name, metadata, "labels")
    for value in labels.values():
        _check_value(name, "metadata.labels", value)
    return labels


def _check_value(name: str, field: str, value: str) -> None:
    if len(value) > 63 or not _NAME.fullmatch(value):
        raise invalid("Node", name, field, f'Invalid value: "{value}": a valid label must be an empty string or '
                      "consist of alphanumeric characters, '-', '_' or '.'")  # fmt: skip


def _taints(name: str, spec: Json) -> list[Taint]:
    rows = spec.get("taints") or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _ill_typed(name, "spec.taints is not a list of objects")
    taints: dict[tuple[str, str], Taint] = {}
    for position, row in enumerate(rows):
        field = f"metadata.taints[{position}]"  # the wording of the real server
        taint = Taint(str(row.get("key", "")), str(row.get("value", "")), str(row.get("effect", "")))
        if not _KEY.fullmatch(taint.key):
            raise invalid("Node", name, f"{field}.key", f'Invalid value: "{taint.key}": name part must be non-empty')
        if taint.effect not in _EFFECTS:
            message = (
                f'Unsupported value: "{taint.effect}": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            )
            raise invalid("Node", name, f"{field}.effect", message, "FieldValueNotSupported")
        _check_value(name, f"{field}.value", taint.value)
        if (taint.key, taint.effect) in taints:
            message = f"Duplicate value: {taint}: taints must be unique by key and effect pair"
            raise invalid("Node", name, field, message, "FieldValueDuplicate")
        taints[taint.key, taint.effect] = taint
    return list(taints.values())
