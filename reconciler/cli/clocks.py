"""Real time, and the lab's scaled time. Virtual time is the in-process lab's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def real_seconds(self, seconds: float) -> float:
        return seconds


class ScaledClock:
    """`scale` seconds of the fleet pass in one second of ours: sleeps, deadlines, ages, everything.

    `epoch` is when the lab started. Every process that plays with this lab counts from it, so that instants which one
    run leaves in the ledger lie in the past of the next.
    """

    def __init__(self, scale: float, epoch: datetime) -> None:
        self._scale = scale
        self._epoch = epoch
        self._start = datetime.now(UTC)
        self._zero = time.monotonic()

    def now(self) -> datetime:
        wall = self._start + timedelta(seconds=time.monotonic() - self._zero)
        return self._epoch + (wall - self._epoch) * self._scale

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._scale)

    def real_seconds(self, seconds: float) -> float:
        return seconds / self._scale
