"""Content negotiation, and the shapes besides whole objects: the Table that `kubectl get` prints, and metadata only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from aiohttp import web

from reconciler.lab.wire.kube_status import ApiError

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    kind: Literal["", "Table", "PartialObjectMetadata"]  # "" = the objects themselves
    version: str = "v1"  # of meta.k8s.io


def shape_of(request: web.Request) -> Shape:
    """Return the shape that a request asks for. Raise a 406 when this server offers none of them."""
    for offer in request.headers.get("Accept", "*/*").split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        if media not in ("application/json", "application/*", "*/*"):
            continue
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        match wanted.get("as", ""):
            case "":
                return Shape("")
            case "Table" if wanted.get("v") in ("v1", "v1beta1"):
                return Shape("Table", wanted["v"])
            case "PartialObjectMetadata" | "PartialObjectMetadataList" if wanted.get("v") in ("v1", "v1beta1"):
                return Shape("PartialObjectMetadata", wanted["v"])
    raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cell: Callable[[Json, datetime], str | int]
    type: str = "string"
    wide: bool = False  # shown only with -o wide


def table(kind: str, items: Sequence[Json], metadata: Json, now: datetime, include: str, version: str) -> Json:
    columns = COLUMNS.get(kind, _PLAIN)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" else "",
            "description": "",
            "priority": int(column.wide),
        }
        for column in columns
    ]
    rows = [
        {"cells": [column.cell(item, now) for column in columns], "object": _included(item, include)} for item in items
    ]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def partial(item: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _included(item: Json, include: str) -> Json | None:
    return item if include == "Object" else None if include == "None" else partial(item)


def _name(item: Json, _: datetime) -> str:
    return str(item["metadata"]["name"])


def _age(item: Json, now: datetime) -> str:
    """Return the age in one or two units, like duration.HumanDuration of k8s.io/apimachinery."""
    seconds = int((now - datetime.fromisoformat(item["metadata"]["creationTimestamp"])).total_seconds())
    for limit, unit, name, fine, fine_name in (
        (120, 1, "s", 0, ""),
        (600, 60, "m", 1, "s"),
        (10800, 60, "m", 0, ""),
        (28800, 3600, "h", 60, "m"),
        (172800, 3600, "h", 0, ""),
        (691200, 86400, "d", 3600, "h"),
    ):
        if seconds < limit:
            rest = seconds % unit // fine if fine else 0
            return f"{seconds // unit}{name}" + (f"{rest}{fine_name}" if rest else "")
    return f"{seconds // 86400}d"


def _none(_item: Json, _now: datetime) -> str:
    return "<none>"


def _node_status(item: Json, _: datetime) -> str:
    ready = next(c["status"] for c in item["status"]["conditions"] if c["type"] == "Ready")
    words = ["Ready" if ready == "True" else "NotReady"]
    return ",".join(words + (["SchedulingDisabled"] if item["spec"].get("unschedulable") else []))


def _roles(item: Json, _: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in item["metadata"].get("labels", {}) if key.startswith(prefix))
    return ",".join(roles) or "<none>"


def _info(field: str) -> Callable[[Json, datetime], str]:
    return lambda item, _: str(item["status"]["nodeInfo"][field])


def _address(item: Json, _: datetime) -> str:
    found = (a["address"] for a in item["status"]["addresses"] if a["type"] == "InternalIP")
    return next(found, "<none>")


def _ready_containers(item: Json, _: datetime) -> str:
    statuses = item["status"].get("containerStatuses", [])
    return f"{sum(status['ready'] for status in statuses)}/{len(item['spec']['containers'])}"


def _pod_status(item: Json, _: datetime) -> str:
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    phase = str(item["status"]["phase"])
    return {"Succeeded": "Completed", "Failed": "Error"}.get(phase, phase)


def _at(*path: str) -> Callable[[Json, datetime], str]:
    def cell(item: Json, _: datetime) -> str:
        value: Any = item
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return "<none>" if value is None else str(value)

    return cell


def _number(*path: str) -> Callable[[Json, datetime], int]:
    text = _at(*path)
    return lambda item, now: int(text(item, now))


def _count(item: Json, name: str) -> int:
    """Return a number of pods in the status, which servers leave out where there is none."""
    return int(item["status"].get(name, 0))


_NAME, _AGE = Column("Name", _name), Column("Age", _age)
_PLAIN = (_NAME, Column("Created At", _at("metadata", "creationTimestamp")))
COLUMNS: Mapping[str, Sequence[Column]] = {
    "Node": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _roles),
        _AGE,
        Column("Version", _info("kubeletVersion")),
        Column("Internal-IP", _address, wide=True),
        Column("External-IP", _none, wide=True),
        Column("OS-Image", _info("osImage"), wide=True),
        Column("Kernel-Version", _info("kernelVersion"), wide=True),
        Column("Container-Runtime", _info("containerRuntimeVersion"), wide=True),
    ),
    "Pod": (
        _NAME,
        Column("Ready", _ready_containers),
        Column("Status", _pod_status),
        Column("Restarts", lambda _item, _now: 0, "integer"),
        _AGE,
        Column("IP", _none, wide=True),
        Column("Node", _at("spec", "nodeName"), wide=True),
        Column("Nominated Node", _none, wide=True),
        Column("Readiness Gates", _none, wide=True),
    ),
    "Namespace": (_NAME, Column("Status", _at("status", "phase")), _AGE),
    "PodDisruptionBudget": (
        _NAME,
        Column("Min Available", _at("spec", "minAvailable")),
        Column("Max Unavailable", lambda _item, _now: "N/A"),
        Column("Allowed Disruptions", _number("status", "disruptionsAllowed"), "integer"),
        _AGE,
    ),
    "Deployment": (
        _NAME,
        Column("Ready", lambda item, _: f"{_count(item, 'readyReplicas')}/{item['spec']['replicas']}"),
        Column("Up-to-date", lambda item, _: _count(item, "updatedReplicas"), "integer"),
        Column("Available", lambda item, _: _count(item, "availableReplicas"), "integer"),
        _AGE,
    ),
    "ReplicaSet": (
        _NAME,
        Column("Desired", _number("spec", "replicas"), "integer"),
        Column("Current", lambda item, _: _count(item, "replicas"), "integer"),
        Column("Ready", lambda item, _: _count(item, "readyReplicas"), "integer"),
        _AGE,
    ),
    "DaemonSet": (_NAME, Column("Desired", _number("status", "desiredNumberScheduled"), "integer"), _AGE),
}
