"""What a machine has coming up: named timers on its own clock, played in order by whoever asks next (sans-I/O)."""

from __future__ import annotations

from collections.abc import Callable


class Agenda:
    """At most one timer per name. Setting a name again replaces it."""

    def __init__(self) -> None:
        self._timers: dict[str, tuple[float, int, Callable[[], None]]] = {}
        self._set = 0
        self._soonest = float("inf")  # when the first of them is due

    def at(self, due: float, name: str, play: Callable[[], None]) -> None:
        self._set += 1
        self._timers[name] = (due, self._set, play)
        self._note()

    def __bool__(self) -> bool:
        return bool(self._timers)

    def drop(self, name: str) -> None:
        self._timers.pop(name, None)
        self._note()

    def _note(self) -> None:
        self._soonest = min((timer[0] for timer in self._timers.values()), default=float("inf"))

    def next_due(self) -> float | None:
        return min((timer[0] for timer in self._timers.values()), default=None)

    def pop_due(self, now: float) -> tuple[float, Callable[[], None]] | None:
        """The earliest timer that is due; of equals the one that was set first."""
        if self._soonest > now:
            return None
        name = min(self._timers, key=lambda key: self._timers[key][:2])
        due, _, play = self._timers[name]
        if due > now:
            return None
        self.drop(name)
        return due, play
