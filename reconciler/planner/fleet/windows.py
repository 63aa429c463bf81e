"""Maintenance windows: when nodes may be taken out of service, and firmware updates be started (DESIGN 7.2).

Work fits when all of it, to the end of its last disruptive step, lies within allow windows that join up, and overlaps
no deny window. A pool without any allow window may be worked on at all times. Windows never delay what brings a node
back into service.
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
from reconciler.planner.node.workload import Need

AHEAD_DAYS = 15  # hours recur weekly, and the clocks may change in between
_DRAWN_DAYS = AHEAD_DAYS + 2  # at the end of which it is another day elsewhere


@dataclass(frozen=True, slots=True)
class _Calendar:
    """The coming spans of one pool. `allow` None: any time is allowed. Spans of `allow` neither touch nor overlap."""

    allow: tuple[Span, ...] | None
    deny: tuple[tuple[Span, Window], ...]
    allowing: tuple[Window, ...]

    def openings(self, now: datetime, need: Need) -> tuple[Span, ...]:
        """Return the first and last moment of each span in which work of this need may begin, in order."""
        end, takes, after = now + timedelta(days=AHEAD_DAYS), timedelta(seconds=need.seconds), need.after or now
        allowed = ((now, end),) if self.allow is None else self.allow
        found = [(max(begin, now), min(until, end) - takes) for begin, until in allowed]
        for (begin, until), _ in self.deny:
            early = [(first, min(last, begin - takes)) for first, last in found]
            late = [(max(first, until), last) for first, last in found]
            found = [(first, last) for first, last in (*early, *late) if first <= last and after <= last]
        return tuple(sorted((first, last) for first, last in found if first <= last and after <= last))

    def why(self, now: datetime, wanted: Need) -> str:
        """Return why work that begins now does not fit."""
        need = max(now, wanted.after or now) - now + timedelta(seconds=wanted.seconds)
        lasts = f"about {format_duration(need.total_seconds())} of work"
        for span, window in self.deny:
            if span[0] <= now < span[1]:
                return f"denied by {_named(window)}"
        if self.allow is not None and not any(span[0] <= now < span[1] for span in self.allow):
            return f"outside of {', '.join(map(_named, self.allowing))}"
        for span, window in self.deny:
            if span[0] < now + need and now < span[1]:
                return f"{lasts} would not end before {_named(window)} begins to deny"
        return f"{lasts} does not fit into what is left of {', '.join(map(_named, self.allowing))}"


class Windows:
    """The fleet's maintenance windows as of `now`, and whether somebody has lifted them (`breakGlass`)."""

    def __init__(self, windows: Sequence[Window], break_glass: BreakGlass | None, now: datetime) -> None:
        self._windows = tuple(windows)
        self._lifted_until = None
        if break_glass is not None and glass_broken(break_glass, now):
            self._lifted_until = datetime.fromisoformat(break_glass.until)
        self._now = now
        self._calendars: dict[str, _Calendar] = {}
        self._verdicts: dict[tuple[str, Need], Blocked | None] = {}

    @property
    def any(self) -> bool:
        """Return whether the fleet has windows, also if they are lifted now."""
        return bool(self._windows)

    def __bool__(self) -> bool:
        """Return whether the fleet has windows, and nobody has lifted them."""
        return bool(self._windows) and self._lifted_until is None

    def refusal(self, pool: str, need: Need) -> Blocked | None:
        """Return why work of this need on a node of `pool` may not begin now, and when it may; None = it may."""
        if not self:
            return None
        key = (pool, need)
        if key not in self._verdicts:
            self._verdicts[key] = self._judge(self._calendar(pool), need)
        return self._verdicts[key]

    def openings(self, pool: str, need: Need) -> tuple[Span, ...] | None:
        """Return the first and last moments at which work of this need may begin within AHEAD_DAYS.

        None: it may begin at any time.
        """
        calendar = self._calendar(pool)
        if calendar.allow is None and not calendar.deny:
            return None
        found = calendar.openings(self._now, need)
        return found if self._lifted_until is None else _joined((*found, (self._now, self._lifted_until)))

    def _judge(self, calendar: _Calendar, need: Need) -> Blocked | None:
        openings = calendar.openings(self._now, need)
        if openings and openings[0][0] == self._now:
            return None
        detail = calendar.why(self._now, need)
        if not openings:
            detail += f"; in the next {AHEAD_DAYS} days there is no room for {format_duration(need.seconds)}"
        return Blocked(BlockCode.WINDOW, detail, openings[0][0] if openings else None)

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
    """Return whether `breakGlass` of the Fleet lifts all windows now."""
    return break_glass is not None and now < datetime.fromisoformat(break_glass.until)


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
