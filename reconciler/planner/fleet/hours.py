"""Recurring hours of local time, converted to spans of UTC.

Where the clocks change, a local time may come twice or not at all; `wide` says which reading is the careful one.
Time zones come from the system's database, or from the tzdata package where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from reconciler.model.desired import Hours

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MIDNIGHT = 24 * 60

Span = tuple[datetime, datetime]  # from, and up to


def spans(hours: Hours, now: datetime, days: int, *, wide: bool) -> Iterator[Span]:
    """Yield the spans from yesterday on that begin within `days`, in order. `wide`: the longer of two readings."""
    zone = ZoneInfo(hours.timezone)
    length = (hours.end - hours.start) % _MIDNIGHT or _MIDNIGHT
    first = now.astimezone(zone).date() - timedelta(days=1)
    for day in (first + timedelta(days=n) for n in range(days + 2)):
        if day.weekday() not in hours.days:
            continue
        begins = _readings(day, hours.start, zone)
        ends = _readings(day, hours.start + length, zone)
        span = (min(begins), max(ends)) if wide else (max(begins), min(ends))
        if span[0] < span[1]:
            yield span


def _readings(day: date, minute: int, zone: ZoneInfo) -> tuple[datetime, datetime]:
    days, minute = divmod(minute, _MIDNIGHT)
    local = datetime.combine(day + timedelta(days=days), time(*divmod(minute, 60)), zone)
    return local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)


def cover(hours: Hours, now: datetime) -> bool:
    """Return whether `now` lies within these hours."""
    return any(begin <= now < end for begin, end in spans(hours, now, 1, wide=True))


def text(hours: Hours) -> str:
    """Return the hours in words, such as "mon-fri 08:00-18:00 Europe/Berlin"."""
    days = sorted(set(hours.days))
    named = ",".join(DAYS[day] for day in days)
    if len(days) == len(DAYS):
        named = "daily"
    elif len(days) > 2 and days[-1] - days[0] == len(days) - 1:
        named = f"{DAYS[days[0]]}-{DAYS[days[-1]]}"
    return f"{named} {_clock(hours.start)}-{_clock(hours.end)} {hours.timezone}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
