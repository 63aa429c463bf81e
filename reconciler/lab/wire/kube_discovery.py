"""Discovery: the served versions, groups and resources, in the old form and the aggregated one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reconciler.model.maintenance import Operator

READ = ("get", "list", "watch")

# An OpenAPI v2 document without paths and definitions, in the one encoding that kubectl requests: swagger "2.0" and
# info only. Clients before 1.29 load it to validate objects, and with this one validate nothing.
OPENAPI_V2 = b"\x0a\x032.0" + b"\x12\x0e" + b"\x0a\x03lab" + b"\x12\x07unknown" + b"\x42\x00" + b"\x4a\x00"
OPENAPI_V2_MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    kind: str
    group: str  # "" = core
    versions: tuple[str, ...]  # preferred first
    namespaced: bool
    verbs: tuple[str, ...]
    short: tuple[str, ...] = ()
    subresources: tuple[tuple[str, str, str, str], ...] = ()  # name, kind, group and version of the posted object

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


def resources(minor: int) -> tuple[Resource, ...]:
    """Return the resources of a server of version 1.`minor`."""
    policy = ("v1",) if minor >= 25 else ("v1", "v1beta1") if minor >= 21 else ("v1beta1",)
    eviction = ("eviction", "Eviction", "policy", "v1" if minor >= 22 else "v1beta1")
    return (
        Resource("namespaces", "Namespace", "", ("v1",), False, READ, ("ns",)),
        Resource("nodes", "Node", "", ("v1",), False, (*READ, "patch", "update", "delete"), ("no",)),
        Resource("pods", "Pod", "", ("v1",), True, (*READ, "patch", "delete"), ("po",), (eviction,)),
        Resource("events", "Event", "", ("v1",), True, (*READ, "create", "update"), ("ev",)),
        Resource("daemonsets", "DaemonSet", "apps", ("v1",), True, READ, ("ds",)),
        Resource("deployments", "Deployment", "apps", ("v1",), True, (*READ, "patch"), ("deploy",)),
        Resource("replicasets", "ReplicaSet", "apps", ("v1",), True, READ, ("rs",)),
        Resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", ("v1",), True, READ, ("hpa",)),
        Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", policy, True, READ, ("pdb",)),
        Resource(
            "selfsubjectaccessreviews", "SelfSubjectAccessReview", "authorization.k8s.io", ("v1",), False, ("create",)
        ),
    )


def of_operators(operators: Iterable[Operator]) -> tuple[Resource, ...]:
    return tuple(Resource(one.resource, one.kind, one.group, (one.version,), one.namespaced, READ) for one in operators)


def version_info(version: str) -> dict[str, str]:
    """Return the /version document. `version` is like "v1.31.4"."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    return {
        "major": major,
        "minor": minor,
        "gitVersion": version,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "2025-01-01T00:00:00Z",
        "goVersion": "go1.23.4",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def core_versions() -> dict[str, Any]:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    }


def group_list(served: Iterable[Resource]) -> dict[str, Any]:
    groups = [group(served, name) for name in dict.fromkeys(resource.group for resource in served if resource.group)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(served: Iterable[Resource], name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in _versions(served, name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(served: Iterable[Resource], name: str, version: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for resource in _of(served, name, version):
        row = {
            "name": resource.name,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        rows.append(row | ({"shortNames": list(resource.short)} if resource.short else {}))
        for sub, kind, sub_group, sub_version in resource.subresources:
            rows.append(
                {
                    "name": f"{resource.name}/{sub}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "group": sub_group,
                    "version": sub_version,
                    "kind": kind,
                    "verbs": ["create"],
                }
            )
    group_version = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": rows}


def aggregated(served: Iterable[Resource], *, core: bool, version: str) -> dict[str, Any]:
    """Return all of /api or /apis in one document, for clients from 1.26 on."""
    names = [""] if core else list(dict.fromkeys(resource.group for resource in served if resource.group))
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
                "versions": [
                    {
                        "version": each,
                        "resources": [_discovered(resource, each) for resource in _of(served, name, each)],
                        "freshness": "Current",
                    }
                    for each in _versions(served, name)
                ],
            }
            for name in names
        ],
    }


def _discovered(resource: Resource, version: str) -> dict[str, Any]:
    subresources = [
        {
            "subresource": sub,
            "responseKind": {"group": sub_group, "version": sub_version, "kind": kind},
            "verbs": ["create"],
        }
        for sub, kind, sub_group, sub_version in resource.subresources
    ]
    return {
        "resource": resource.name,
        "responseKind": {"group": resource.group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": list(resource.verbs),
        "shortNames": list(resource.short),
    } | ({"subresources": subresources} if subresources else {})


def _of(served: Iterable[Resource], name: str, version: str) -> list[Resource]:
    return [resource for resource in served if resource.group == name and version in resource.versions]


def _versions(served: Iterable[Resource], name: str) -> list[str]:
    return list(
        dict.fromkeys(version for resource in served if resource.group == name for version in resource.versions)
    )
