"""The pod that this process runs in, in the cluster whose service account it has."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import quote

from reconciler.drivers.kube.failures import KubeFailure
from reconciler.drivers.kube.process import Kubectl
from reconciler.model.errors import UsageError

ROLE_LABEL: Final = "reconciler.dev/role"  # which the chart's Service selects by
_TIMEOUT_S: Final = 10.0
_NAMES: Final = re.compile(r"([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")


def namespace_and_name(option: str, place: str) -> tuple[str, str]:
    found = _NAMES.fullmatch(place)
    if found is None:
        raise UsageError(f"{option} {place!r}: NAMESPACE/NAME is expected")
    return found[1], found[2]


class OwnPod:
    """A pod by NAMESPACE/NAME. kubectl finds its cluster by itself: in a pod, by the service account."""

    def __init__(self, place: str) -> None:
        self._namespace, self._name = namespace_and_name("--pod", place)
        self._kubectl = Kubectl("kubectl", None, None, _TIMEOUT_S)

    async def label(self, role: str) -> None:
        """Set its label to a role. Raise DriverError."""
        path = f"/api/v1/namespaces/{quote(self._namespace)}/pods/{quote(self._name)}"
        patch = json.dumps({"metadata": {"labels": {ROLE_LABEL: role}}})
        try:
            await self._kubectl.merge(path, f"pods/{self._name}", self._namespace, patch)
        except KubeFailure as failure:
            raise failure.problem.of_write() from failure
