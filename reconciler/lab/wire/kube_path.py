"""Paths of a Kubernetes API: resource, namespace, name and subresource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from reconciler.lab.wire.kube_discovery import Resource
from reconciler.lab.wire.kube_status import no_such_path


@dataclass(frozen=True, slots=True)
class Target:
    resource: Resource
    version: str
    namespace: str | None
    name: str  # "" = the collection
    subresource: str

    @property
    def api_version(self) -> str:
        return self.resource.api_version(self.version)


def parse(path: str, served: Iterable[Resource]) -> Target:
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise no_such_path()
    namespace = None
    if len(rest) >= 3 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        raise no_such_path()
    plural, name, subresource = (*rest, "", "")[:3]
    for resource in served:
        if (resource.group, resource.name) == (group, plural) and version in resource.versions:
            break
    else:
        raise no_such_path()
    if subresource and subresource not in {known for known, *_ in resource.subresources}:
        raise no_such_path()
    if (namespace is None and resource.namespaced and name) or (namespace is not None and not resource.namespaced):
        raise no_such_path()
    return Target(resource, version, namespace, name, subresource)
