"""Nodes that left the spec: their marks are lifted, and what the ledger knows to be applied to them is dropped."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from reconciler.converge.events import LoopTold
from reconciler.converge.leftovers import lift_forgotten_marks
from reconciler.converge.pass_planner import PlannedPass
from reconciler.converge.run import Run


async def forget_gone(planned: PlannedPass, run: Run, at_work: AbstractSet[str] | None) -> None:
    """Forget nodes that left the spec: lift our marks, and drop what the ledger knows to be applied to them.

    `at_work`: None in the first pass of a term, which lifts marks even where the ledger knows of no such node.
    """
    fleet, ledger = planned.look.fleet, run.ledger
    gone = [name for name in planned.known if name not in fleet.nodes]
    if at_work is not None and (not gone or not at_work <= fleet.nodes.keys()):  # work on them ends first
        return
    if planned.barred or planned.refused:
        return
    kept = await lift_forgotten_marks(ledger, run.ports.fabric.cluster(), fleet, run.clock, run.ports.lease)
    ledger.forget(gone, run.clock.now())
    if not gone and not kept:
        return
    more = f"; {', '.join(kept)} keep our mark, since no gate has judged what was done to them" if kept else ""
    message = f"{len(gone)} nodes left the spec and are forgotten: {', '.join(gone[:5])}{more}"
    run.ports.progress(LoopTold("forgotten", message, problem=bool(kept)))
