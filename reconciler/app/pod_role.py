"""Keep the label of our own pod at our role, so that a Service sends people and API clients to the one that leads.

A standby answers probes as ready: it takes over, and drains must count on it. So readiness can't tell a Service apart
which of several has the nodes, the changes and the approvals. Who leads is decided in the ledger alone: a label that
is late sends somebody to a standby, and lets nobody write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from reconciler.converge.events import LoopTold, Progress
from reconciler.drivers.kube import OwnPod
from reconciler.model.errors import DriverError
from reconciler.model.status import Role

_LOOK_S: Final = 0.5
_AGAIN_S: Final = 10.0
_ANEW_S: Final = 60.0  # somebody else may have taken it away


class PodRole:
    """A task that runs until it is closed. It begins before anything else: a container that was started again may
    carry the label of a leader.
    """

    def __init__(self, pod: OwnPod, role: Callable[[], Role], progress: Progress) -> None:
        self._pod, self._role, self._progress = pod, role, progress
        self._told = ""
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _keep(self) -> None:
        now, written, due = asyncio.get_running_loop().time, None, 0.0
        while True:
            role = self._role()
            if role is not written or now() >= due:
                written = role if await self._written(role) else None
                due = now() + _ANEW_S
            await asyncio.sleep(_LOOK_S if written is not None else _AGAIN_S)

    async def _written(self, role: Role) -> bool:
        try:
            await self._pod.label(role.value)
        except DriverError as error:
            why = (
                f"the label of this pod does not say {role.value}, so its Service may miss the leader: {error}. "
                "The pod needs its service account, a way to the API server (networkPolicy.egress), and the right to "
                "patch pods in its namespace"
            )
            if why != self._told:
                self._progress(LoopTold("pod_label", why, problem=True))
            self._told = why
            return False
        self._told = ""
        return True
