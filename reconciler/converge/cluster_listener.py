"""Listen to the cluster, kernel logs and BMCs between passes, and wake the nodes that there is news of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial

from reconciler.converge.dispatcher import Dispatcher
from reconciler.converge.events import LoopTold, Progress
from reconciler.model.ports import Clock, Metrics, Watch
from reconciler.model.vocab import NewsSource

WAKES_S = 5.0  # a node that is reported again and again is looked at so often, at most
READS_S = 30.0  # the same for its BMC: reading all of it takes some BMCs a hundred requests


# How messages call a source, with a place for a word that denies it.
_WORDS = {
    NewsSource.CLUSTER: ("the cluster reports {}changes{}", "no "),
    NewsSource.KERNEL_LOGS: ("kernel logs are {}followed{}", "not "),
    NewsSource.BMC_EVENTS: ("events of BMCs are {}followed{}", "not "),
}


class ClusterListener:
    """Wakes nodes that the cluster reports changes of, or whose kernel log or BMC says something.

    `dispatcher`: None until the first pass is over. That pass looks at every node, so what is reported meanwhile is
    dropped.
    """

    def __init__(self, clock: Clock, progress: Progress, metrics: Metrics) -> None:
        self.dispatcher: Dispatcher | None = None
        self._clock = clock
        self._progress = progress
        self._metrics = metrics
        # (node, whether it was at work, source) -> when it was last woken, by the monotonic clock. Work on a node
        # changes it, and what is reported meanwhile must not delay what is reported after it.
        self._woken: dict[tuple[str, bool, NewsSource], float] = {}

    async def listen(self, watches: Mapping[NewsSource, Watch]) -> None:
        """Listen until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source, watch in watches.items():
                group.create_task(self._hear(source, watch))
            group.create_task(asyncio.Event().wait())

    async def _hear(self, source: NewsSource, watch: Watch) -> None:
        since: datetime | None = None
        words, no = _WORDS[source]

        def tell(problem: str) -> None:
            nonlocal since
            message = words.format(*(no, f": {problem}") if problem else ("", " again"))
            self._progress(LoopTold(source.value, message, problem=bool(problem)))
            since = (since or self._clock.now()) if problem else None
            self._metrics.deaf(source, since)

        try:
            async with aclosing(watch.changes(tell)) as names:
                async for name in names:
                    self._wake(name, source)
        finally:
            self._metrics.deaf(source, None)  # nobody listens any more, which is no failure

    def _wake(self, name: str, source: NewsSource) -> None:
        """Wake a node. What its BMC tells is read in the inventory, which a look would not read again otherwise."""
        if self.dispatcher is None or name not in self.dispatcher.run.fleet.nodes:
            return
        of_bmc = source is NewsSource.BMC_EVENTS
        key = name, name in self.dispatcher.at_work, source
        now, last = self._clock.monotonic(), self._woken.get(key)
        apart_s = READS_S if of_bmc else WAKES_S
        if last is not None and now - last < apart_s:
            later = last + apart_s
            if last < now:  # otherwise it is to be woken later already
                self._woken[key] = later
                pause = self._clock.real_seconds(later - now)
                wake = partial(self.dispatcher.wake, name, read_bmc=of_bmc)
                asyncio.get_running_loop().call_later(pause, wake)
            return
        self._woken[key] = now
        self.dispatcher.wake(name, read_bmc=of_bmc)
