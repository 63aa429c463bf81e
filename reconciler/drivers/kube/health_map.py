"""The ConfigMap in which the leader says how the fleet is, in the cluster whose service account this process has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from reconciler.drivers.kube.failures import KubeFailure
from reconciler.drivers.kube.own_pod import namespace_and_name
from reconciler.drivers.kube.process import Kubectl

_TIMEOUT_S: Final = 10.0


class HealthMap:
    """A ConfigMap by NAMESPACE/NAME, which exists: nothing here creates it."""

    def __init__(self, place: str) -> None:
        self._namespace, self._name = namespace_and_name("--health-map", place)
        self.place = f"configmap {place}"
        self._kubectl = Kubectl("kubectl", None, None, _TIMEOUT_S)

    async def write(self, data: Mapping[str, str]) -> None:
        """Set these keys of it. Raise DriverError."""
        path = f"/api/v1/namespaces/{quote(self._namespace)}/configmaps/{quote(self._name)}"
        try:
            await self._kubectl.merge(path, f"configmaps/{self._name}", self._namespace, json.dumps({"data": data}))
        except KubeFailure as failure:
            raise failure.problem.of_write() from failure
