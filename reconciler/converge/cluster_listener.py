"""Listen to the cluster between passes, and wake the nodes that it reports changes of."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import datetime

from reconciler.converge.dispatcher import Dispatcher
from reconciler.converge.events import LoopTold, Progress
from reconciler.model.ports import Clock, Metrics, Watch

WAKES_S = 5.0  # a node that the cluster reports again and again is looked at so often, at most


class ClusterListener:
    """Wakes nodes that the cluster reports changes of.

    `dispatcher`: None until the first pass is over. That pass looks at every node, so what is reported meanwhile is
    dropped.
    """

    def __init__(self, clock: Clock, progress: Progress, metrics: Metrics) -> None:
        self.dispatcher: Dispatcher | None = None
        self._clock = clock
        self._progress = progress
        self._metrics = metrics
        self._deaf_since: datetime | None = None
        # (node, whether it was at work) -> when it was last woken, by the monotonic clock. Work on a node changes it,
        # and what is reported meanwhile must not delay what is reported after it.
        self._woken: dict[tuple[str, bool], float] = {}

    async def listen(self, watch: Watch | None) -> None:
        """Listen until cancelled. `watch`: None where the cluster offers none."""
        if watch is None:
            await asyncio.Event().wait()
            return

        def tell(problem: str) -> None:
            message = f"the cluster reports no changes: {problem}" if problem else "the cluster reports changes again"
            self._progress(LoopTold("watch", message, problem=bool(problem)))
            self._deaf(bool(problem))

        try:
            async with aclosing(watch.changes(tell)) as names:
                async for name in names:
                    self._wake(name)
        finally:
            self._deaf(False)  # nobody listens any more, which is no failure

    def _deaf(self, is_deaf: bool) -> None:
        self._deaf_since = (self._deaf_since or self._clock.now()) if is_deaf else None
        self._metrics.watch_deaf(self._deaf_since)

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
