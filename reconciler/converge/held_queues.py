"""Let queues of Kueue go again that are held for a node which does not come back by itself now (pitfall H9).

A queue is held from the drain of a node until its admission, which is hours where all goes well. It may be weeks where
the node falls ill meanwhile, a person sets it aside, or its object is deleted. Each node has a share of its own in the
record on the queue, so a queue runs again as soon as no other node holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from reconciler.converge.actions.adjust import take_back
from reconciler.converge.actions.context import Stop
from reconciler.converge.events import LoopTold
from reconciler.converge.guarded_ports import TimedAdjustments, TimedCluster
from reconciler.converge.run import Ended, NodeResult, Run
from reconciler.model.adjustments import QUEUE, AdjustedRef, parse_ref
from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError
from reconciler.model.observed import Answered, Observed
from reconciler.model.plan import BlockCode, NodePlan
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.planner.node.by_person import waits_for_person

_NOBODY_GOES_ON: Final = frozenset({Ended.FAILED, Ended.CRASHED, Ended.PARKED, Ended.STALE})
_NO_RESULTS: Final[Mapping[str, NodeResult]] = {}


async def let_queues_go(
    run: Run,
    plans: Mapping[str, NodePlan],
    seen: Mapping[str, Observed],
    *,
    at_work: Collection[str] = (),
    results: Mapping[str, NodeResult] = _NO_RESULTS,
) -> None:
    """Take the shares of nodes out of the queues that are held for them in vain. Those at work keep theirs.

    `results`: how a run has ended, after which nobody goes on unless it is started again. A queue that can't be read
    or written now is told of, and the next pass or run tries again.
    """
    cluster = run.ports.fabric.cluster()
    if cluster is None or run.stop_of_all() is not None:
        return
    timed = TimedCluster(cluster, run.clock, run.fleet.settings, run.ports.lease)
    port, ledger = timed.adjustments(), run.ledger.id
    noted = {name: _noted(found, ledger) for name, found in seen.items()}

    def in_vain(node: str, ref: AdjustedRef) -> str:
        desired = run.fleet.nodes.get(node)
        if node in at_work or (desired is not None and node not in plans):
            return ""
        if desired is None and run.ledger.node(node).fleet:
            return ""  # another fleet of this ledger holds it
        ended = results.get(node)
        why = "it left the spec" if desired is None else why_in_vain(desired, plans[node], noted.get(node), ref)
        return why or (ended.detail if ended is not None and ended.state in _NOBODY_GOES_ON else "")

    for ref in sorted(_queues(run, noted)) if port is not None else ():
        assert port is not None
        try:
            for node in await _holders(port, ref, ledger):
                if why := in_vain(node, ref):
                    await take_back(timed, node, ledger, [ref.key])
                    run.ports.progress(LoopTold("queue", f"{ref} is no longer held for {node}: {why}"))
        except (DriverError, Stop) as error:
            detail = error.outcome.detail if isinstance(error, Stop) else str(error)
            message = f"{ref} may stay held for a node that does not come back now: {detail}"
            run.ports.progress(LoopTold("queue", message, problem=True))


def why_in_vain(desired: Desired, plan: NodePlan, noted: Collection[str] | None, ref: AdjustedRef) -> str:
    """Return why the node does not come back by itself now; "" where it does. `noted`: by its mark; None: unknown."""
    if noted is not None and ref.key not in noted:
        return "its node object does not say so any more"  # somebody has deleted it, and our mark with it
    if plan.illness:
        return f"it is ill ({', '.join(item.path for item in plan.illness)})"
    if why := waits_for_person(desired, plan):
        return why
    if plan.blocked is not None:
        comes = plan.blocked.code.passes or plan.blocked.code is BlockCode.UNDER_WAY
        return "" if comes else plan.blocked.detail
    return "" if plan.actions else "nothing is left to do to it"


def _queues(run: Run, noted: Mapping[str, Collection[str] | None]) -> set[AdjustedRef]:
    """Return the queues that the spec wants held, and those that marks name: the spec may have changed since."""
    holds = {node.profile.drain.hold for node in run.fleet.nodes.values()}
    named = {AdjustedRef(QUEUE, "", name) for hold in holds if hold is not None for name in hold.queues}
    refs = {parse_ref(key) for keys in noted.values() for key in keys or ()}
    return named | {ref for ref in refs if ref is not None and ref.kind == QUEUE}


def _noted(seen: Observed, ledger: str) -> Collection[str] | None:
    """Return what our mark on the node says is changed for its drain; None where the cluster could not be read."""
    if not isinstance(seen.member, Answered):
        return None
    member = seen.member.value
    mark = None if member is None else read_mark(member.annotations.get(OWNER_ANNOTATION))
    return mark.adjusted if mark is not None and mark.ledger == ledger else ()


async def _holders(port: TimedAdjustments, ref: AdjustedRef, ledger: str) -> list[str]:
    """Return the nodes for which we hold a queue."""
    found = await port.read(ref)
    record = None if found is None else found.record
    return sorted(record.by) if record is not None and record.ledger == ledger else []
