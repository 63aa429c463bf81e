"""Keep something of ours in the Kubernetes API at a value that changes: the label of our pod, the health of the fleet.

Nothing waits for it and nothing is decided by it. A write that fails is told once, and tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from reconciler.converge.events import LoopTold, Progress
from reconciler.model.errors import DriverError

T = TypeVar("T")
_AGAIN_S: Final = 10.0


@dataclass(frozen=True)
class Kept(Generic[T]):
    """`value`: what to write; None: nothing now. `write` raises DriverError. `event`, `trouble`: how a failure is told.

    `look_s`: how often `value` is asked, and what it returns is written if it is another; `anew_s`: how often at least.
    """

    value: Callable[[], T | None]
    write: Callable[[T], Awaitable[None]]
    event: str
    trouble: Callable[[T, DriverError], str]
    look_s: float
    anew_s: float


class KeptObject(Generic[T]):
    """A task that runs until it is closed."""

    def __init__(self, kept: Kept[T], progress: Progress) -> None:
        self._kept, self._progress = kept, progress
        self._told = ""
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _keep(self) -> None:
        now, kept = asyncio.get_running_loop().time, self._kept
        written: T | None = None
        due = 0.0
        while True:
            value = kept.value()
            well = True
            if value is not None and (value != written or now() >= due):
                well = await self._written(value)
                written, due = value if well else None, now() + kept.anew_s
            await asyncio.sleep(kept.look_s if well else _AGAIN_S)

    async def _written(self, value: T) -> bool:
        try:
            await self._kept.write(value)
        except DriverError as error:
            why = self._kept.trouble(value, error)
            if why != self._told:
                self._progress(LoopTold(self._kept.event, why, problem=True))
            self._told = why
            return False
        self._told = ""
        return True
