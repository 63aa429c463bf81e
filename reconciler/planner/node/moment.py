"""An instant that tells until when what was decided by it holds.

Planning a node compares the present with many instants: the end of a certificate, of a hold, of a pause. Whether a plan
of an earlier pass still holds depends on all of them, and a list of them would be one more thing to keep complete. So a
kept plan is made with a `Moment` in the place of each clock value. It is the same instant to whoever compares it, and
notes when the answer would be another one. Whatever else is asked of it (how long ago, as text, its fields) depends on
the very instant: then nothing may be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

FOREVER: Final = datetime.max.replace(tzinfo=UTC)
AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)
_OWN: Final = frozenset({"_at", "_offset", "_horizon", "_meets", "_moved", "_ask", "instant", "__class__"})


@dataclass(slots=True)
class Horizon:
    """The first instant at which one of the comparisons would end differently, while the clock goes forward."""

    until: datetime = FOREVER


class Moment(datetime):
    """A value of a clock. What is decided by it holds while that clock is not before it, and before the horizon.

    `offset`: how far it is from the clock, of "an hour ago".
    """

    __slots__ = ("_at", "_horizon", "_offset")

    def __new__(cls, at: datetime, horizon: Horizon, offset: timedelta = timedelta()) -> Moment:
        made = super().__new__(
            cls, at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, at.tzinfo, fold=at.fold
        )
        made._at, made._horizon, made._offset = at, horizon, offset
        return made

    _at: datetime
    _horizon: Horizon
    _offset: timedelta

    def _meets(self, other: object) -> datetime:
        """Note when this comparison would end differently, and return the plain instant."""
        at, horizon = self._at, self._horizon
        if type(other) is Moment or not isinstance(other, datetime):
            horizon.until = AT_ONCE  # both go on, and not together
        elif at < other:
            try:
                reached = other - self._offset
            except OverflowError:
                return at  # it is never reached
            horizon.until = min(horizon.until, reached)
        elif at == other:
            horizon.until = AT_ONCE
        return at

    def _ask(self) -> datetime:
        self._horizon.until = AT_ONCE
        return self._at

    @property
    def instant(self) -> datetime:
        """The instant, for whoever knows that it is a moment's."""
        return self._at

    def __lt__(self, other: Any) -> bool:
        return bool(self._meets(other) < _plain(other))

    def __le__(self, other: Any) -> bool:
        return bool(self._meets(other) <= _plain(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self._meets(other) > _plain(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self._meets(other) >= _plain(other))

    def __eq__(self, other: object) -> bool:
        return bool(self._meets(other) == _plain(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _moved(self, by: timedelta) -> Moment:
        return Moment(self._at + by, self._horizon, self._offset + by)

    def __add__(self, by: timedelta) -> Any:
        return self._moved(by)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._moved(-other) if isinstance(other, timedelta) else self._ask() - _plain(other)

    def __rsub__(self, other: Any) -> Any:
        return _plain(other) - self._ask()

    def __getattribute__(self, name: str) -> Any:
        if name not in _OWN:
            return getattr(self._ask(), name)
        return super().__getattribute__(name)

    def __hash__(self) -> int:
        return hash(self._ask())

    def __str__(self) -> str:
        return str(self._ask())

    def __repr__(self) -> str:
        return repr(self._ask())

    def __format__(self, wanted: str) -> str:
        return format(self._ask(), wanted)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._ask().__reduce_ex__(protocol)


def _plain(value: Any) -> Any:
    return value._at if type(value) is Moment else value


@dataclass(slots=True)
class Memo(Generic[T]):
    """Keeps what was decided in this pass, by its key, and until when it holds, for all that use it."""

    _found: dict[Hashable, tuple[T, datetime]] = field(default_factory=dict)

    def of(self, key: Hashable, now: datetime, decide: Callable[[], T]) -> T:
        """Return what was decided for `key`, or decide it. Where `now` is no `Moment`, no plan that uses it is kept."""
        horizon = now._horizon if type(now) is Moment else Horizon()
        if key not in self._found:
            before, horizon.until = horizon.until, FOREVER
            decided = decide()
            self._found[key] = decided, horizon.until if type(now) is Moment else AT_ONCE
            horizon.until = before
        found, until = self._found[key]
        horizon.until = min(horizon.until, until)
        return found
