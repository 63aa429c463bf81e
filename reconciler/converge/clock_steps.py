"""A wall clock that is set while a term lasts: how long a source has been silent is then counted anew.

The ledger keeps since when it has been, by a clock that outlasts this process. Set forward by half an hour, it would
make a host that has booted for a minute one that hangs, and have it power-cycled.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from reconciler.model.ports import Clock, Ledger
from reconciler.planner.node.watchdog import WATCHED

STEP: Final = timedelta(seconds=60)  # since the last call: a clock that is slewed loses 0.5 ms in a second (adjtime)
_SILENCES: Final = frozenset({"redfish", "ssh", "not_ready", *WATCHED})  # as converge/remember.py names them


class ClockSteps:
    """Compares the wall clock with the one that nobody sets. One of a process: a step may end a term of leadership."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._zero = self._now()

    def mind(self, ledger: Ledger, names: Collection[str]) -> None:
        """Have the silences of these nodes' sources begin now if the wall clock was set since the last call.

        Nobody knows how much of the time since they began has passed.
        """
        before, self._zero = self._zero, self._now()
        if abs(self._zero - before) <= STEP:
            return
        known = ledger.nodes(list(names))
        running = [(name, key) for name in known for key in sorted(_SILENCES & known[name].silent_since.keys())]
        ledger.note_silences([(*one, begins) for begins in (False, True) for one in running], self._clock.now())

    def _now(self) -> datetime:
        """Return when the other clock was 0, by the wall clock."""
        return self._clock.now() - timedelta(seconds=self._clock.monotonic())
