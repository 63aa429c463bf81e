"""Clocks: real time, and the scaled time of a lab. The in-process lab has a virtual clock of its own."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta


def _uptime() -> float:
    """Return seconds since boot. On Linux they include suspended time, during which observations age as well."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


async def _sleep(seconds: float) -> None:
    import asyncio  # 30 ms, and commands that only read files ask a clock for the time alone

    await asyncio.sleep(seconds)


class RealClock:
    """The clock of real machines."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return _uptime()

    def at(self, wall: datetime) -> datetime:
        """Return the fleet's time at an instant of the wall clock."""
        return wall

    async def sleep(self, seconds: float) -> None:
        await _sleep(seconds)

    def real_seconds(self, seconds: float) -> float:
        return seconds


class ScaledClock:
    """The clock of a lab: `scale` of its seconds pass in one real second, for sleeps, deadlines and ages alike.

    `epoch` is when the lab started. Every process that uses the lab counts from it, so that instants which one run
    leaves in the ledger are in the past of the next run.
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
        """Return the fleet's time at an instant of the wall clock."""
        return self._epoch + (wall - self._epoch) * self._scale

    async def sleep(self, seconds: float) -> None:
        await _sleep(seconds / self._scale)

    def real_seconds(self, seconds: float) -> float:
        return seconds / self._scale
