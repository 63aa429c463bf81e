"""Take over nodes that another ledger has marked, once its reconciler is known to be gone.

The owner annotation becomes ours; taint and cordon stay as they are, and so does the record of who set the cordon. What
was done to the node under the other ledger is unknown, so the node returns to service through its gate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.converge.actions.context import tolerate
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.model.adjustments import parse_ref
from reconciler.model.errors import DriverError, Failure
from reconciler.model.ledger_ports import RunStore
from reconciler.model.observed import Member
from reconciler.model.ports import Clock
from reconciler.model.records import OWNER_ANNOTATION, Mark, read_mark

TRIES = 5  # of a read-modify-write against others who write the same object


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result for one node. `before`: the other ledger's mark. `problem`: why it was not taken over; "" = it was."""

    node: str
    before: Mark | None
    problem: str = ""


async def foreign_mark(cluster: TimedCluster, node: str, ledger: str) -> Adopted:
    """Return the mark that could be taken over, or why there is none. Nothing is written."""
    try:
        member = await cluster.member(node)
    except DriverError as error:
        return Adopted(node, None, f"it can't be read: {error.detail}")
    return _mark_on(member, node, ledger)


async def adopt(cluster: TimedCluster, ledger: RunStore, node: str, by: str, clock: Clock) -> Adopted:
    """Make another ledger's mark ours, and record in the journal whose it was."""
    first: Mark | None = None
    failed: DriverError | None = None
    for _ in range(TRIES):
        try:
            member = await cluster.member(node)
            found = _mark_on(member, node, ledger.id)
            if first is not None and found.problem == _OURS:
                detail = f"by {by}, from ledger {first.ledger} ({first.at}, plan {first.plan}: {first.reason})"
                ledger.note(node, "adopt", detail, clock.now())
                return Adopted(node, first)
            if found.before is None or member is None:
                return found
            first = found.before
            await _take_over(cluster, first, ledger.id)
            failed = await tolerate(
                cluster.mark(member, _ours(member, first, ledger.id, clock)), Failure.CONFLICT, Failure.AMBIGUOUS
            )
        except DriverError as error:
            return Adopted(node, first, f"its mark can't be rewritten: {error.detail}")
    return Adopted(node, first, f"its mark could not be rewritten: {failed.detail if failed else 'it is as it was'}")


async def _take_over(cluster: TimedCluster, theirs: Mark, ledger: str) -> None:
    """Make the record on each object that was changed for the drain ours, so that the admission takes it back."""
    port = cluster.adjustments()
    for ref in filter(None, map(parse_ref, theirs.adjusted)) if port is not None else ():
        assert port is not None
        for _ in range(TRIES):
            found = await port.read(ref)
            if found is None or found.record is None or found.record.ledger != theirs.ledger:
                break
            ours = replace(found.record, ledger=ledger)
            await tolerate(port.write(found, found.value, ours), Failure.CONFLICT, Failure.AMBIGUOUS)
        else:
            raise DriverError(Failure.CONFLICT, f"{ref} does not show our record")


_OURS = "it carries our own mark already"


def _mark_on(member: Member | None, node: str, ledger: str) -> Adopted:
    if member is None:
        return Adopted(node, None, "the cluster has no such node")
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    if mark is None:
        return Adopted(node, None, "it carries no mark")
    return Adopted(node, None, _OURS) if mark.ledger == ledger else Adopted(node, mark)


def _ours(member: Member, theirs: Mark, ledger: str, clock: Clock) -> Mark:
    """Return the mark that replaces theirs. A cordon that came with it is ours to lift, unless it is gone already."""
    reason = f"adopted from ledger {theirs.ledger}: {theirs.reason}"[:200]
    at = clock.now().isoformat(timespec="seconds")
    cordoned = theirs.cordoned and member.unschedulable
    return replace(theirs, ledger=ledger, reason=reason, at=at, cordoned=cordoned)
