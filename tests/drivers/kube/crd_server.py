"""Objects of an API server in memory, each held to a CustomResourceDefinition, for what no server here can run.

It answers as the driver's own two calls do: an object by its path, and a merge patch under the resourceVersion.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
from ruamel.yaml import YAML

from reconciler.drivers.kube.failures import KubeFailure, from_response

Json = dict[str, Any]
CRDS = Path(__file__).parent / "crds"


def definition(name: str) -> Json:
    """Return a CustomResourceDefinition, with nothing of it shared."""
    found: Json = copy.deepcopy(YAML(typ="safe").load((CRDS / f"{name}.yaml").read_text()))
    return found


def _closed(schema: Json) -> Json:
    """Return a schema that takes no field that it does not name: an API server would drop it."""
    properties = {name: _closed(one) for name, one in schema.get("properties", {}).items()}
    return schema | ({"properties": properties, "additionalProperties": False} if properties else {})


def refused(code: int, message: str) -> KubeFailure:
    return from_response(code, json.dumps({"kind": "Status", "code": code, "message": message}).encode())


class Objects(dict[str, Json]):
    """Path -> document. `served`: names of files of `crds`, whose objects are held to them."""

    def __init__(self, *served: str) -> None:
        super().__init__()
        self._schemas: dict[str, Json] = {}
        for name in served:
            spec = definition(name)["spec"]
            for version in spec["versions"]:
                place = f"/apis/{spec['group']}/{version['name']}/"
                self._schemas[place] = _closed(version["schema"]["openAPIV3Schema"])
        self.patches: list[tuple[str, str, Json]] = []  # (resource as kubectl takes it, namespace, patch)

    def add(self, path: str, kind: str, *, spec: Mapping[str, Any], **more: Any) -> None:
        metadata = {"name": path.rpartition("/")[2], "uid": path, "resourceVersion": "1", **more.pop("metadata", {})}
        self[path] = {"kind": kind, "apiVersion": "any", "metadata": metadata, "spec": dict(spec), **more}
        self._check(path, self[path])

    def _check(self, path: str, document: Json) -> None:
        for place, schema in self._schemas.items():
            if path.startswith(place):
                jsonschema.validate(document, schema)

    async def read(self, path: str) -> Json | None:
        return copy.deepcopy(self.get(path))

    async def merge(self, path: str, resource: str, namespace: str, patch: str) -> None:
        change = json.loads(patch)
        found = self.get(path)
        if found is None:
            raise refused(404, "not found")
        if change["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise refused(409, "the object has been modified")
        wanted = _merged(found, change)
        self._check(path, wanted)
        wanted["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
        self[path] = wanted
        self.patches.append((resource, namespace, change))


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found
