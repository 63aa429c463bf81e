"""Real time, and the lab's scaled time. Virtual time is the in-process lab's."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta


def _uptime() -> float:
    """Seconds. Where the system tells it, with the time that it was suspended: what was read before is as old."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return _uptime()

    def at(self, wall: datetime) -> datetime:
        """The fleet's time at an instant of the wall clock."""
        return wall

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
        self._zero = _uptime()

    def now(self) -> datetime:
        return self.at(self._start + timedelta(seconds=_uptime() - self._zero))

    def monotonic(self) -> float:
        return _uptime() * self._scale

    def at(self, wall: datetime) -> datetime:
        """The fleet's time at an instant of the wall clock."""
        return self._epoch + (wall - self._epoch) * self._scale

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._scale)

    def real_seconds(self, seconds: float) -> float:
        return seconds / self._scale
