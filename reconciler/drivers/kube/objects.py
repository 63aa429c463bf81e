"""Decode Kubernetes JSON. Pure. A missing required field is MALFORMED; other fields may be absent."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from reconciler.drivers.kube.failures import malformed
from reconciler.model.json_text import parse_json
from reconciler.model.observed import Member, Pod, Taint
from reconciler.model.operands import OPERANDS
from reconciler.model.vocab import OF_KUBELET
from reconciler.model.workloads import FINITE, checkpoint_of, surge_of, workload_of

_MIRROR = "kubernetes.io/config.mirror"
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_FINISHED = ("Succeeded", "Failed")
_GPUS = re.compile(r"[^/]+/(gpu|mig-)")  # nvidia.com/gpu, nvidia.com/mig-1g.10gb, amd.com/gpu, nvidia.com/gpu.shared
_LONGEST_REASON = 300

Json = Mapping[str, Any]
T = TypeVar("T")


def document(text: bytes, kind: str | None = None) -> Json:
    """Parse a JSON object, of this kind if one is given."""
    try:
        value = parse_json(text)
    except ValueError as error:  # of the JSON or UTF-8 decoder
        raise malformed(str(error)) from error
    if not isinstance(value, dict) or (kind is not None and value.get("kind") != kind):
        raise malformed(f"no {kind or 'object'}")
    return value


def client_version(answer: Json) -> str:
    """Return the client's version from `kubectl version -o json`."""
    return _need(map_of(answer, "clientVersion"), "gitVersion")


def server_version(answer: Json) -> str:
    """Return the server's version from `kubectl version -o json`."""
    return _need(map_of(answer, "serverVersion"), "gitVersion")


def page(text: bytes, kind: str, convert: Callable[[Json], T]) -> tuple[list[T], str]:
    """Return the converted items of a list, and the token of its next page ("" on the last)."""
    items, token, _ = page_at(text, kind, convert)
    return items, token


def page_at(text: bytes, kind: str, convert: Callable[[Json], T]) -> tuple[list[T], str, str]:
    """Return items, token, and the resourceVersion that a watch may begin at.

    The cycle collector is off meanwhile: JSON has no cycles, and on 10,000 pods it takes 1.7 s, reading them 0.7 s.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        found = document(text, kind)
        items = found.get("items")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise malformed("a list without items")
        metadata = map_of(found, "metadata")
        return [convert(item) for item in items], text_of(metadata, "continue"), text_of(metadata, "resourceVersion")
    finally:
        if collecting:
            gc.enable()


def pod(item: Json) -> tuple[str, Pod]:
    """Return the name of the pod's node, and the pod."""
    metadata, status = map_of(item, "metadata"), map_of(item, "status")
    phase = text_of(status, "phase")
    annotations = map_of(metadata, "annotations")
    mirror = _MIRROR in annotations
    controller, name_of_owner = controller_of(metadata)
    owner = "Node" if mirror else controller
    namespace, labels = _need(metadata, "namespace"), _strings(metadata, "labels")
    operand = name_of_owner if owner == "DaemonSet" and name_of_owner in OPERANDS else ""
    spec, ends_at, grace = map_of(item, "spec"), _time(metadata, "deletionTimestamp"), timedelta()
    if isinstance(seconds := metadata.get("deletionGracePeriodSeconds"), int):
        grace = timedelta(seconds=seconds)
    evictable = owner not in ("DaemonSet", "Node") and phase not in _FINISHED and not _has_ended(metadata, status)
    return text_of(spec, "nodeName"), Pod(
        namespace=namespace,
        name=_need(metadata, "name"),
        uid=_need(metadata, "uid"),
        phase=phase,
        owner_kind=owner,
        evictable=evictable,
        local_storage=any(volume.get("emptyDir") is not None for volume in maps_of(spec, "volumes")),
        terminating_since=None if ends_at is None else ends_at - grace,
        ends_at=ends_at,
        finalizers=_texts(metadata, "finalizers"),
        finite=owner in FINITE,
        checkpoint=checkpoint_of(annotations) if annotations else None,
        workload=workload_of(namespace, (owner, name_of_owner), labels, annotations),
        operand=operand,
        surge=surge_of(annotations),
        ready=(evictable or bool(operand)) and ends_at is None and _is_ready(status),
        on_gpus=phase not in _FINISHED and _asks_for_gpus(spec),
    )


def _asks_for_gpus(spec: Json) -> bool:
    """Return whether a container has GPUs or parts of one, or the pod claims a device of any kind.

    The API server refuses extended resources without a limit. What a claim is of stands in another object.
    """
    limits = (map_of(map_of(one, "resources"), "limits") for one in maps_of(spec, "containers"))
    return bool(maps_of(spec, "resourceClaims")) or any(_GPUS.match(name) for names in limits for name in names)


def _is_ready(status: Json) -> bool:
    found = maps_of(status, "conditions")
    return any(text_of(one, "type") == "Ready" and text_of(one, "status") == "True" for one in found)


def _has_ended(metadata: Json, status: Json) -> bool:
    """Return whether a deleted pod has ended. A kubelet before 1.27 leaves its phase as it was."""
    if "deletionTimestamp" not in metadata:
        return False
    states = [map_of(container, "state") for container in maps_of(status, "containerStatuses")]
    return bool(states) and all("terminated" in state for state in states)


def event(line: bytes) -> tuple[str, Json]:
    """Return type and object of a watch's line."""
    found = document(line)
    return _need(found, "type"), map_of(found, "object")


def revision(item: Json) -> str:
    return _need(map_of(item, "metadata"), "resourceVersion")


def name(item: Json) -> str:
    """Return the name of an object; "" for one that has none, such as a Status."""
    return text_of(map_of(item, "metadata"), "name")


def member(item: Json, pods: Iterable[Pod] = ()) -> Member:
    """Decode a node. Taints keep the server's order: patches address them by position."""
    metadata, spec, status = map_of(item, "metadata"), map_of(item, "spec"), map_of(item, "status")
    labels = _strings(metadata, "labels")
    found = maps_of(status, "conditions")
    conditions = {text_of(c, "type"): text_of(c, "status") for c in found}
    return Member(
        name=_need(metadata, "name"),
        uid=_need(metadata, "uid"),
        resource_version=_need(metadata, "resourceVersion"),
        ready=conditions["Ready"] == "True" if "Ready" in conditions else None,  # Unknown: the kubelet is silent
        conditions=conditions,
        unschedulable=spec.get("unschedulable") is True,
        labels=labels,
        annotations=_strings(metadata, "annotations"),
        taints=tuple(Taint(*(text_of(t, key) for key in ("key", "value", "effect"))) for t in maps_of(spec, "taints")),
        kubelet_version=text_of(map_of(status, "nodeInfo"), "kubeletVersion"),
        pods=tuple(pods),
        control_plane=any(role in labels for role in _CONTROL_PLANE),
        system_uuid=text_of(map_of(status, "nodeInfo"), "systemUUID"),
        reasons={text_of(c, "type"): _reason(c) for c in found if c.get("type") not in OF_KUBELET or _is_ill(c)},
        allocatable=_devices(status),
    )


# Whole numbers come in decimal SI form, so 1000 shared RDMA devices are "1k" (k8s.io/apimachinery api/resource).
_COUNT: Final = re.compile(r"(\d+)([kMGTPE]?)")
_POWERS: Final = "kMGTPE"


def _devices(status: Json) -> dict[str, int]:
    """Return the extended resources of a node, those of a vendor's domain; a fraction of a device is none."""
    found = {}
    for name, quantity in map_of(status, "allocatable").items():
        domain, slash, _ = name.partition("/")
        if slash and not domain.endswith("kubernetes.io") and (count := _COUNT.fullmatch(str(quantity))):
            found[name] = int(count[1]) * 1000 ** (_POWERS.index(count[2]) + 1 if count[2] else 0)
    return found


def _is_ill(condition: Json) -> bool:
    """Return whether a condition of kubelet's own is bad: Ready is good when True, pressures when False."""
    return condition.get("status") != ("True" if condition.get("type") == "Ready" else "False")


def _reason(condition: Json) -> str:
    """Return a condition's reason and message, shortened: detectors write messages of any length."""
    return ": ".join(filter(None, (text_of(condition, "reason"), text_of(condition, "message"))))[:_LONGEST_REASON]


def controller_of(metadata: Json) -> tuple[str, str]:
    """Return kind and name of the controller; "" and "" for none."""
    owners = (o for o in maps_of(metadata, "ownerReferences") if o.get("controller") is True)
    return next(((text_of(o, "kind"), text_of(o, "name")) for o in owners), ("", ""))


def map_of(holder: Json, key: str) -> Json:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise malformed(f"{key} is not an object")
    return value


def maps_of(holder: Json, key: str) -> list[Json]:
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise malformed(f"{key} is not a list of objects")
    return value


def _strings(holder: Json, key: str) -> dict[str, str]:
    values = map_of(holder, key)
    return {name: text_of(values, name) for name in values}


def text_of(holder: Json, key: str) -> str:
    value = holder.get(key, "")
    if not isinstance(value, str):
        raise malformed(f"{key} is not a string")
    return value


def _texts(holder: Json, key: str) -> tuple[str, ...]:
    values = holder.get(key)
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise malformed(f"{key} is not a list of strings")
    return tuple(values)


def _time(holder: Json, key: str) -> datetime | None:
    text = text_of(holder, key)
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise malformed(f"{key} is not a date") from error
    if found is not None and found.tzinfo is None:
        raise malformed(f"{key} has no time zone")
    return found


def _need(holder: Json, key: str) -> str:
    value = text_of(holder, key)
    if not value:
        raise malformed(f"an object without {key}")
    return value
