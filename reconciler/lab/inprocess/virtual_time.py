"""Virtual time for asyncio: when every task waits, the clock jumps to the next timer.

Threads run in real time: hours of virtual time may pass while an executor works.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from reconciler.model.ports import Clock

T = TypeVar("T")

EPOCH = datetime(2027, 1, 1, tzinfo=UTC)
_PATIENCE_S = 10.0  # real seconds for a thread or a socket to wake a loop that has no timer left


class VirtualClock:
    """A Clock that outlives event loops, so that a killed run can be continued by another at the same time."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self.elapsed = 0.0
        self.stepped = timedelta()  # sum of the steps of the wall clock since the start
        self._start = start

    def seconds(self) -> float:
        """Return the seconds since the start, the clock of the machines."""
        return self.elapsed

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.elapsed) + self.stepped

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def real_seconds(self, seconds: float) -> float:
        return seconds


_: type[Clock] = VirtualClock


class _Selector(selectors.BaseSelector):
    """A selector that polls real files, and advances the virtual clock instead of waiting."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = self._real.select(_PATIENCE_S)
            if not ready:
                raise RuntimeError("every task waits, and nothing is due that could wake one")
            return ready
        self._clock.elapsed += max(timeout, 0.0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        super().__init__(_Selector(clock))
        # After years a float can not resolve nanoseconds. A timer so close counts as due, or the clock would stop.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual.elapsed


def run_virtual(main: Coroutine[Any, Any, T], clock: VirtualClock | None = None) -> T:
    """Run a coroutine like asyncio.run, in virtual time. The clock keeps the time at which the run ends."""
    chosen = clock or VirtualClock()
    result: list[T] = []

    async def keep() -> None:
        # Not returned: Runner swaps signal handlers, whose enum lookup prints the task and with it a whole result.
        result.append(await main)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(chosen)) as runner:
        runner.run(keep())
    return result[0]
