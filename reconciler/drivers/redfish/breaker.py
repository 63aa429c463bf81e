"""The circuit breaker of a BMC: when one that does not answer is called again (pitfall A2). Pure; fleet time.

A miss is a call without a single answer from the BMC: no connection, a lost one, silence. HTTP errors are answers.
After three misses in a row the BMC is left alone for a pause, which grows with each further miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zlib import crc32

from reconciler.model.errors import DriverError, Failure

OPENS_AFTER = 3
_FIRST_PAUSE_S = 15.0
_LONGEST_PAUSE_S = 300.0
_SPREAD = 0.25  # of a pause, so that BMCs that went dark together are not asked together


@dataclass(slots=True)
class Breaker:
    """The breaker of one BMC. It is open until `_until`."""

    address: str
    misses: int = 0
    _since: datetime | None = None  # the first miss
    _until: datetime | None = None
    _why: str = ""
    _absence_until: datetime | None = None  # until then the BMC may be gone because of our own request

    def check(self, now: datetime) -> None:
        """Raise DriverError UNREACHABLE while the breaker is open."""
        if self._until is None or self._since is None or now >= self._until:
            return
        again, since = clock_time(self._until, now), clock_time(self._since, now)
        detail = f"{self._why}; not tried again before {again}; {self.misses} connection failures since {since}"
        raise DriverError(Failure.UNREACHABLE, detail, retry_after=(self._until - now).total_seconds())

    def missed(self, why: str, now: datetime) -> None:
        self.misses += 1
        self._since, self._why = self._since or now, why
        if self.misses >= OPENS_AFTER:
            self._until = now + timedelta(seconds=self._pause(now))

    def answered(self) -> None:
        self.misses, self._since, self._until = 0, None, None

    def expect_absence(self, seconds: float, now: datetime) -> None:
        """Keep pauses short for that long: the BMC restarts at our request, and somebody waits for it."""
        self._absence_until = now + timedelta(seconds=seconds)

    def _pause(self, now: datetime) -> float:
        absence_expected = self._absence_until is not None and now < self._absence_until
        doublings = 0 if absence_expected else min(self.misses - OPENS_AFTER, 10)
        share = crc32(f"{self.address} {self.misses}".encode()) / 2**32  # pseudo-random, and repeatable in tests
        return min(_FIRST_PAUSE_S * 2.0**doublings, _LONGEST_PAUSE_S) * (1 + _SPREAD * (2 * share - 1))


def clock_time(at: datetime, now: datetime) -> str:
    """Format an instant for somebody who reads it at `now`: without the date when that is the same."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
