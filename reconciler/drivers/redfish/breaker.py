"""When a BMC that does not answer is asked again (pitfall A2). Pure; instants are the fleet's.

A miss is a call that did not get one answer out of the BMC: no connection, a lost one, silence. Errors of HTTP are
answers. After three misses in a row the BMC is left alone for a pause, which grows with each further miss.
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
    """Of one BMC. Open while `until` has not come."""

    address: str
    misses: int = 0
    _since: datetime | None = None  # of the first of them
    _until: datetime | None = None
    _why: str = ""
    _excused: datetime | None = None  # until then it may be gone because we asked for it

    def check(self, now: datetime) -> None:
        """DriverError UNREACHABLE while it is not to be asked."""
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

    def excuse(self, seconds: float, now: datetime) -> None:
        """It may restart in that time because we asked for it: somebody waits, so pauses stay short."""
        self._excused = now + timedelta(seconds=seconds)

    def _pause(self, now: datetime) -> float:
        excused = self._excused is not None and now < self._excused
        doublings = 0 if excused else min(self.misses - OPENS_AFTER, 10)
        share = crc32(f"{self.address} {self.misses}".encode()) / 2**32  # chance that a test can repeat
        return min(_FIRST_PAUSE_S * 2.0**doublings, _LONGEST_PAUSE_S) * (1 + _SPREAD * (2 * share - 1))


def clock_time(at: datetime, now: datetime) -> str:
    """An instant for somebody who reads it `now`."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
