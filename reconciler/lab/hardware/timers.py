"""Named timers on a machine's own clock. Callers play the due ones in order (sans-I/O)."""

from __future__ import annotations

from collections.abc import Callable


class Timers:
    """At most one timer per name. Setting a name again replaces it."""

    def __init__(self) -> None:
        self._timers: dict[str, tuple[float, int, Callable[[], None]]] = {}
        self._count = 0
        self._soonest = float("inf")  # when the first of them is due

    def at(self, due: float, name: str, play: Callable[[], None]) -> None:
        self._count += 1
        self._timers[name] = (due, self._count, play)
        self._update_soonest()

    def __bool__(self) -> bool:
        return bool(self._timers)

    def drop(self, name: str) -> None:
        self._timers.pop(name, None)
        self._update_soonest()

    def _update_soonest(self) -> None:
        self._soonest = min((timer[0] for timer in self._timers.values()), default=float("inf"))

    def next_due(self) -> float | None:
        return min((timer[0] for timer in self._timers.values()), default=None)

    def pop_due(self, now: float) -> tuple[float, Callable[[], None]] | None:
        """Remove and return the earliest due timer. Of equal times, the one set first comes first."""
        if self._soonest > now:
            return None
        name = min(self._timers, key=lambda key: self._timers[key][:2])
        due, _, play = self._timers[name]
        if due > now:
            return None
        self.drop(name)
        return due, play
