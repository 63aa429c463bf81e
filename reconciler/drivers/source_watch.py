"""Follow one source of each node, such as its kernel log or the events of its BMC, between passes (DESIGN section 5).

What is heard proves nothing: it says which node to look at. What nobody followed meanwhile is read in the next pass, so
that an event may come twice, late, in any order, or never.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from reconciler.model.crash import of_its_own_async
from reconciler.model.errors import DriverError, Failure

MOST_BYTES: Final = 256 * 1024  # within WINDOW_S; whoever sends more floods, and is not followed for a while
WINDOW_S: Final = 10.0
AFTER_FLOOD_S: Final = 60.0
_CONNECTING: Final = 32  # nodes at once
_DEAD_S: Final = 120.0  # a boot may take as long; who is away longer is reported
_LOOK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between tries: the first and the longest after failures, and `rest` after an end in good order."""

    first: float
    longest: float
    rest: float = 0.0

    def after_failures(self) -> Iterator[float]:
        pause = self.first
        while True:
            yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load
            pause = min(2 * pause, self.longest)


class FloodMeter:
    """Counts what one source sends."""

    def __init__(self) -> None:
        self._since, self._bytes = 0.0, 0

    def floods(self, size: int) -> bool:
        """Count so many bytes more, and return whether they are too many by now."""
        now = asyncio.get_running_loop().time()
        if now - self._since > WINDOW_S:
            self._since, self._bytes = now, 0
        self._bytes += size
        return self._bytes > MOST_BYTES


def flooded() -> DriverError:
    """Return the error that ends a source for a while."""
    why = f"it prints more than {MOST_BYTES} bytes within {WINDOW_S:g} s"
    return DriverError(Failure.BUSY, why, retry_after=AFTER_FLOOD_S)


class SourceWatch(ABC):
    """A Watch on a source that each node has, with a follower for each.

    `names`: the nodes to follow, asked again every few seconds. `owners`: how messages call those that are followed.
    """

    def __init__(self, names: Callable[[], Collection[str]], owners: str, pauses: Pauses) -> None:
        self._names = names
        self._owners = owners
        self._pauses = pauses
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._dead: dict[str, tuple[float, str]] = {}  # node -> since when its source is not followed, and why
        self.connecting = asyncio.Semaphore(_CONNECTING)

    @abstractmethod
    async def follow_once(self, name: str) -> None:
        """Follow the source of one node until it ends in good order, and wait for ever where there is none.

        It begins with `open`, and calls `hear` for each piece of news. DriverError: it can't be followed, or no longer;
        its `retry_after` is the pause.
        """

    def open(self, name: str) -> None:
        """Take note that a node is followed from now on. After a time in which nobody did, it is read."""
        if self._dead.pop(name, None) is not None:
            self.hear(name)

    def hear(self, name: str) -> None:
        if name not in self._queued:  # a node is read once, however much it says
            self._queued.add(name)
            self._news.put_nowait(name)

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:
        """Yield names of nodes whose source said something.

        It never ends by itself: leave it with `aclosing`. `tell` is called with the reason when sources have not been
        followed for two minutes, and with "" when all are again.
        """
        tasks: dict[str, asyncio.Task[None]] = {}
        told = False
        try:
            while True:
                self._keep_up(tasks)
                if bool(problem := self._problem(len(tasks))) is not told:
                    told = not told
                    tell(problem)
                try:
                    async with asyncio.timeout(_LOOK_S):
                        name = await self._news.get()
                except TimeoutError:
                    continue
                self._queued.discard(name)
                yield name
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _keep_up(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        """Follow who is to be followed, and nobody else. A follower that ended by a bug begins anew."""
        names = self._names()
        for name in [name for name, task in tasks.items() if task.done() or name not in names]:
            tasks.pop(name).cancel()
            self._dead.pop(name, None)
        for name in names:
            if name not in tasks:
                tasks[name] = asyncio.create_task(self._of_one(name))

    def _problem(self, total: int) -> str:
        since = asyncio.get_running_loop().time() - _DEAD_S
        dead = sorted((name, why) for name, (at, why) in self._dead.items() if at <= since)
        if not dead:
            return ""
        (name, why), many = dead[0], len(dead)
        return f"{many} of {total} {self._owners}, which are only read in passes; the first is {name}: {why}"

    async def _of_one(self, name: str) -> None:
        await of_its_own_async(
            name, "following it", lambda: self._follow(name), lambda crash: self._lost(name, crash.sentence)
        )
        await asyncio.sleep(self._pauses.longest)

    async def _follow(self, name: str) -> None:
        """Follow one node for ever."""
        failures = self._pauses.after_failures()
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.follow_once(name)
                pause = self._pauses.rest
            except DriverError as error:
                self._lost(name, error.detail)
                pause = error.retry_after or next(failures)
            if asyncio.get_running_loop().time() - began > self._pauses.longest:
                failures = self._pauses.after_failures()
            await asyncio.sleep(pause)

    def _lost(self, name: str, why: str) -> None:
        at, _ = self._dead.get(name, (asyncio.get_running_loop().time(), ""))
        self._dead[name] = at, why
