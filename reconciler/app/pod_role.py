"""Keep the label of our own pod at our role, so that a Service sends people and API clients to the one that leads.

A standby answers probes as ready: it takes over, and drains must count on it. So readiness can't tell a Service apart
which of several has the nodes, the changes and the approvals. Who leads is decided in the ledger alone: a label that
is late sends somebody to a standby, and lets nobody write. It is kept from before anything else: a container that was
started again may carry the label of a leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reconciler.app.kept_object import Kept
from reconciler.drivers.kube import OwnPod
from reconciler.model.errors import DriverError
from reconciler.model.status import Role

_LOOK_S: Final = 0.5
_ANEW_S: Final = 60.0  # somebody else may have taken it away


def pod_role(pod: OwnPod, role: Callable[[], Role]) -> Kept[Role]:
    return Kept(role, lambda it: pod.label(it.value), "pod_label", _trouble, _LOOK_S, _ANEW_S)


def _trouble(role: Role, error: DriverError) -> str:
    return (
        f"the label of this pod does not say {role.value}, so its Service may miss the leader: {error}. "
        "The pod needs its service account, a way to the API server (networkPolicy.egress), and the right to "
        "patch pods in its namespace"
    )
