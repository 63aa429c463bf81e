"""When nodes may be taken out of service, and firmware be started (DESIGN 7.2).

Work fits when all of it, to the end of its last disruptive step, lies within allow windows that join up, and meets no
deny window. A pool for which no window allows anything in particular is allowed always. Bringing a node back is never
asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reconciler.model.desired import BreakGlass, Window
from reconciler.model.plan import BlockCode, Blocked
from reconciler.model.units import format_duration
from reconciler.model.vocab import WindowKind
from reconciler.planner.fleet.hours import Span, spans, text

AHEAD_DAYS = 15  # hours recur weekly, and the clocks may change in between
_DRAWN_DAYS = AHEAD_DAYS + 2  # at the end of which it is another day elsewhere


@dataclass(frozen=True, slots=True)
class _Calendar:
    """The spans to come for one pool. `allow` None: always. Spans of `allow` neither touch nor overlap."""

    allow: tuple[Span, ...] | None
    deny: tuple[tuple[Span, Window], ...]
    allowing: tuple[Window, ...]

    def fits(self, begin: datetime, end: datetime) -> bool:
        within = self.allow is None or any(span[0] <= begin and end <= span[1] for span in self.allow)
        return within and not any(_meet(span, begin, end) for span, _ in self.deny)

    def next(self, now: datetime, need: timedelta) -> datetime | None:
        """The first moment at which work that takes `need` fits: it is `now`, or a span begins or ends then."""
        moments = {span[0] for span in self.allow or ()} | {span[1] for span, _ in self.deny}
        last = now + timedelta(days=AHEAD_DAYS) - need
        return next((at for at in sorted(moments) if now <= at <= last and self.fits(at, at + need)), None)

    def openings(self, now: datetime, need: timedelta) -> tuple[Span, ...]:
        """First and last moment of each stretch in which work that takes `need` may begin."""
        end = now + timedelta(days=AHEAD_DAYS)
        allowed = ((now, end),) if self.allow is None else self.allow
        found = [(max(begin, now), min(until, end) - need) for begin, until in allowed]
        for (begin, until), _ in self.deny:
            before = [(first, min(last, begin - need)) for first, last in found]
            after = [(max(first, until), last) for first, last in found]
            found = [(first, last) for first, last in (*before, *after) if first <= last]
        return tuple(sorted((first, last) for first, last in found if first <= last))

    def why(self, now: datetime, need: timedelta) -> str:
        """Why work that begins now does not fit."""
        lasts = f"about {format_duration(need.total_seconds())} of work"
        for span, window in self.deny:
            if span[0] <= now < span[1]:
                return f"denied by {_named(window)}"
        if self.allow is not None and not any(span[0] <= now < span[1] for span in self.allow):
            return f"outside of {', '.join(map(_named, self.allowing))}"
        for span, window in self.deny:
            if _meet(span, now, now + need):
                return f"{lasts} would not end before {_named(window)} begins to deny"
        return f"{lasts} does not fit into what is left of {', '.join(map(_named, self.allowing))}"


class Windows:
    def __init__(self, windows: Sequence[Window], break_glass: BreakGlass | None, now: datetime) -> None:
        self._windows = tuple(windows)
        self._lifted_until = None
        if break_glass is not None and glass_broken(break_glass, now):
            self._lifted_until = datetime.fromisoformat(break_glass.until)
        self._now = now
        self._calendars: dict[str, _Calendar] = {}
        self._verdicts: dict[tuple[str, float], Blocked | None] = {}

    @property
    def any(self) -> bool:
        """Whether there are any, also if they do not hold now."""
        return bool(self._windows)

    def __bool__(self) -> bool:
        """Whether there are any that hold now."""
        return bool(self._windows) and self._lifted_until is None

    def refusal(self, pool: str, need_s: float) -> Blocked | None:
        """None: work of `need_s` seconds on a node of `pool` may begin now. Otherwise why not, and when it may."""
        if not self:
            return None
        key = (pool, need_s)
        if key not in self._verdicts:
            self._verdicts[key] = self._judge(self._calendar(pool), timedelta(seconds=need_s))
        return self._verdicts[key]

    def openings(self, pool: str, need_s: float) -> tuple[Span, ...] | None:
        """When work of `need_s` seconds may begin: first and last moments, for AHEAD_DAYS. None: any time will do."""
        calendar = self._calendar(pool)
        if calendar.allow is None and not calendar.deny:
            return None
        found = calendar.openings(self._now, timedelta(seconds=need_s))
        return found if self._lifted_until is None else _joined((*found, (self._now, self._lifted_until)))

    def _judge(self, calendar: _Calendar, need: timedelta) -> Blocked | None:
        if calendar.fits(self._now, self._now + need):
            return None
        until, detail = calendar.next(self._now, need), calendar.why(self._now, need)
        if until is None:
            detail += f"; in the next {AHEAD_DAYS} days there is no room for {format_duration(need.total_seconds())}"
        return Blocked(BlockCode.WINDOW, detail, until)

    def _calendar(self, pool: str) -> _Calendar:
        if pool not in self._calendars:
            mine = [window for window in self._windows if not window.pools or pool in window.pools]
            allowing = tuple(window for window in mine if window.kind is WindowKind.ALLOW)
            narrow = (span for w in allowing for span in spans(w.hours, self._now, _DRAWN_DAYS, wide=False))
            denied = (
                (span, window)
                for window in mine
                if window.kind is WindowKind.DENY
                for span in spans(window.hours, self._now, _DRAWN_DAYS, wide=True)
            )
            self._calendars[pool] = _Calendar(_joined(narrow) if allowing else None, tuple(denied), allowing)
        return self._calendars[pool]


def glass_broken(break_glass: BreakGlass | None, now: datetime) -> bool:
    return break_glass is not None and now < datetime.fromisoformat(break_glass.until)


def _meet(span: Span, begin: datetime, end: datetime) -> bool:
    return span[0] < end and begin < span[1]


def _joined(found: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for begin, end in sorted(found):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined)


def _named(window: Window) -> str:
    reason = f" ({window.reason})" if window.reason else ""
    return f"the {window.kind.value} window {text(window.hours)}{reason}"
