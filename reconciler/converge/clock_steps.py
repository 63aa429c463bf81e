"""A wall clock that is set while a term lasts: how long a source has been silent is then counted anew.

The ledger keeps since when it has been, by a clock that outlasts this process. Set forward by half an hour, it would
make a host that has booted for a minute one that hangs, and have it power-cycled.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from reconciler.model.ports import Clock, Ledger
from reconciler.model.records import LASTS, NodeRecord
from reconciler.planner.node.watchdog import BMC_LOG, WATCHED

STEP: Final = timedelta(seconds=60)  # since the last call: a clock that is slewed loses 0.5 ms in a second (adjtime)
_SILENCES: Final = frozenset({"redfish", "ssh", "not_ready", BMC_LOG, *WATCHED})  # as converge/remember.py names them


class ClockSteps:
    """Compares the wall clock with the one that nobody sets. One of a process: a step may end a term of leadership."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._zero = self._now()
        self._asked = False

    def mind(self, ledger: Ledger, names: Collection[str]) -> None:
        """Have the silences of these nodes' sources begin now if the wall clock was set since the last call.

        Nobody knows how much of the time since they began has passed. In the first call those begin now that would
        begin later: a process before this one noted them by a clock that was ahead. Attempts are counted within times:
        the ledger notes by how much the clock was set since. Of those that a clock which was ahead has dated later than
        now it notes by how much, and moves none of the others. What failed since a rollout began halts it, so that is
        dated anew, too.
        """
        before, self._zero = self._zero, self._now()
        step = self._zero - before
        was_set = abs(step) > STEP
        if self._asked and not was_set:
            return
        self._asked = True
        known, now = ledger.nodes(list(names)), self._clock.now()
        running = [
            (name, key)
            for name, record in known.items()
            for key in sorted(key for key in record.silent_since if key in _SILENCES or key.startswith(LASTS))
            if was_set or record.silent_since[key] > now + STEP
        ]
        steps = [(name, found) for name, record in known.items() if (found := _step_of(record, now, step))]
        if steps:
            ledger.note_clock(steps, now, None if was_set else now + STEP)
        if running:
            ledger.note_silences([(*one, begins) for begins in (False, True) for one in running], now)
        moved = {
            pool: min(one.started_at + (step if was_set else timedelta()), now)
            for pool, one in ledger.rollouts().items()
            if was_set or one.started_at > now + STEP
        }
        if moved:
            ledger.redate_rollouts(moved)

    def _now(self) -> datetime:
        """Return when the other clock was 0, by the wall clock."""
        return self._clock.now() - timedelta(seconds=self._clock.monotonic())


def _step_of(record: NodeRecord, now: datetime, step: timedelta) -> float:
    """Return by how many seconds the clock was set since the attempts on a node; 0.0 if it was not, or none counts."""
    if not record.attempts:
        return 0.0
    if abs(step) > STEP:
        return step.total_seconds()
    ahead = max(one.ended for one in record.attempts) - now
    return -ahead.total_seconds() if ahead > STEP else 0.0
