"""Listen to the cluster and to kernel logs between passes, and wake the nodes that there is news of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime

from reconciler.converge.dispatcher import Dispatcher
from reconciler.converge.events import LoopTold, Progress
from reconciler.model.ports import Clock, Metrics, Watch

_NOT = {"watch": "no ", "logs": "not "}
WAKES_S = 5.0  # a node that is reported again and again is looked at so often, at most


class ClusterListener:
    """Wakes nodes that the cluster reports changes of, or whose kernel log says something.

    `dispatcher`: None until the first pass is over. That pass looks at every node, so what is reported meanwhile is
    dropped.
    """

    def __init__(self, clock: Clock, progress: Progress, metrics: Metrics) -> None:
        self.dispatcher: Dispatcher | None = None
        self._clock = clock
        self._progress = progress
        self._metrics = metrics
        # (node, whether it was at work) -> when it was last woken, by the monotonic clock. Work on a node changes it,
        # and what is reported meanwhile must not delay what is reported after it.
        self._woken: dict[tuple[str, bool], float] = {}

    async def listen(self, cluster: Watch | None, logs: Watch | None) -> None:
        """Listen until cancelled. None: nobody offers that watch."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear(cluster, "watch", "the cluster reports {}changes{}", self._metrics.watch_deaf))
            group.create_task(self._hear(logs, "logs", "kernel logs are {}followed{}", self._metrics.logs_deaf))

    async def _hear(self, watch: Watch | None, event: str, words: str, deaf: Callable[[datetime | None], None]) -> None:
        if watch is None:
            await asyncio.Event().wait()
            return
        since: datetime | None = None

        def tell(problem: str) -> None:
            nonlocal since
            message = words.format(*(_NOT[event], f": {problem}") if problem else ("", " again"))
            self._progress(LoopTold(event, message, problem=bool(problem)))
            since = (since or self._clock.now()) if problem else None
            deaf(since)

        try:
            async with aclosing(watch.changes(tell)) as names:
                async for name in names:
                    self._wake(name)
        finally:
            deaf(None)  # nobody listens any more, which is no failure

    def _wake(self, name: str) -> None:
        if self.dispatcher is None or name not in self.dispatcher.run.fleet.nodes:
            return
        key = name, name in self.dispatcher.at_work
        now, last = self._clock.monotonic(), self._woken.get(key)
        if last is not None and now - last < WAKES_S:
            later = last + WAKES_S
            if last < now:  # otherwise it is to be woken later already
                self._woken[key] = later
                pause = self._clock.real_seconds(later - now)
                asyncio.get_running_loop().call_later(pause, self.dispatcher.wake, name)
            return
        self._woken[key] = now
        self.dispatcher.wake(name)
