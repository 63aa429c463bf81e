"""Sum up days that are over, as a leader does: one look with each pass, for reports that are quick."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.converge.events import LoopTold, Progress

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


class DaySummer:
    """Looks at one day after each pass but the first of a run: nodes that wait to be acted on come first."""

    def __init__(self, ledger: SqlLedger, progress: Progress) -> None:
        self._ledger = ledger
        self._progress = progress
        self._run = ""
        self._told = ""

    def pass_ended(self, run: str, now: datetime) -> None:
        """Make a page of sums, or tell why that can't be. The same reason for day after day is told once."""
        if run != self._run:
            self._run = run
            return
        found = self._ledger.sum_up(now)
        if found.problem and found.problem != self._told:
            self._told = found.problem
            message = (
                f"the {found.what} of {found.day} in the ledger can't be summed up, and reports read the rows: "
                f"{found.problem}"
            )
            self._progress(LoopTold("day_sums", message, problem=True))
