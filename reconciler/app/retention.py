"""Prune the journal: by a command, which counts first, and by the leader, some pages with each pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from reconciler.app.ledger_admin import existing_ledger
from reconciler.app.runtime import new_id
from reconciler.app.workspace import Workspace
from reconciler.converge.events import LoopTold, Progress

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger
    from reconciler.drivers.ledger.pruning import Pruned as Pruned
    from reconciler.drivers.ledger.results import Dropped

PAGES_A_PASS: Final = 3  # of 2,000 rows: at passes of two minutes 4 million rows a day, 40 times what 100,000 nodes add


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """`age_s`: of what is dropped. `journal`: rows of the journal too, besides results. `dry`: only count these."""

    age_s: float
    journal: bool = False
    dry: bool = False


def prune(
    workspace: Workspace, request: PruneRequest, confirm: Callable[[Pruned | None], None]
) -> tuple[Dropped | None, Pruned | None]:
    """Drop what gates measured before, and rows of the journal where that is asked for; the journal tells of both.

    `confirm` gets what would be pruned of the journal before anything is dropped, and raises to stop. Certificates in
    force stay. Return None for results in a dry run, and for the journal where it is not asked for.
    """
    age = timedelta(seconds=request.age_s)
    with existing_ledger(workspace) as ledger:
        now = workspace.clock.now()
        planned = ledger.prune_journal(age, "", now, dry=True) if request.journal else None
        if request.dry:
            return None, planned
        confirm(planned)
        run = new_id("prune", now)
        ledger.start_run(run, "ledger prune", "", "", now)
        dropped = ledger.drop_results(now - age)
        pruned = ledger.prune_journal(age, run, now) if request.journal else None
        told = f"{dropped.tests} tests from before {now - age:%Y-%m-%d %H:%M} UTC were dropped"
        told += f", and {pruned.total} rows of the journal were pruned" if pruned else ""
        ledger.end_run(run, 0, told, workspace.clock.now())
    return dropped, pruned


class JournalPruner:
    """Prunes the journal of a leader, whose retention somebody has given. `age` None: everything is kept."""

    def __init__(self, ledger: SqlLedger, age: timedelta | None, progress: Progress) -> None:
        self._ledger = ledger
        self._age = age
        self._progress = progress
        self._told = ""

    def pass_ended(self, run: str, now: datetime) -> None:
        """Prune some pages. A journal that is damaged is told of once, and stays as it is."""
        if self._age is None:
            return
        found = self._ledger.prune_some(self._age, run, now, PAGES_A_PASS)
        if found.problem and found.problem != self._told:
            self._progress(LoopTold("retention", f"the journal is not pruned: {found.problem}", problem=True))
        self._told = found.problem
