"""Raise what serves elsewhere before its pods are evicted, hold queues of Kueue, and take both back (pitfall H9).

What may be changed is noted in the node's mark before, and what was changed is recorded on the object in the same write
as the change. So a run that is killed anywhere is gone on with: nothing is raised twice, and nothing stays raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from reconciler.converge.actions.context import ActionContext, Stop, poll, tolerate
from reconciler.converge.actions.drain_waits import HELD, PASSING, SURGED, Waits, clock_time, names
from reconciler.converge.guarded_ports import TimedAdjustments, TimedCluster
from reconciler.model.adjustments import (
    GONE,
    QUEUE,
    RUNS,
    Adjusted,
    AdjustedRef,
    adjusted,
    parse_ref,
    passing,
    taken_back,
)
from reconciler.model.drain import QueueHold
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Member, Pod
from reconciler.model.outcome import UNPREPARED, Declined, Transient
from reconciler.model.records import OWNER_ANNOTATION, isolated_for, read_mark
from reconciler.model.vocab import Concern

_TRIES = 5
_LOOK_S = 10.0
_WAY_OUT = 'take the number out of what sets it, keep enough by a PodDisruptionBudget and say "false" on its pods'


@dataclass(slots=True)
class Adjusting:
    """The changes of a drain before it evicts. `shares`: of what is raised -> by how much, as first seen.

    Only replicas that serve need one elsewhere. An ill node is drained also where that can't be had.
    """

    ctx: ActionContext
    waits: Waits
    shares: dict[AdjustedRef, int] = field(default_factory=dict)
    _known: dict[str, AdjustedRef | None] = field(default_factory=dict)  # UID of a pod -> what sets its number
    _unready: Counter[AdjustedRef] = field(default_factory=Counter)  # replicas here that don't serve
    _given_up: set[AdjustedRef] = field(default_factory=set)
    _up: bool = False
    _unread: tuple[datetime, float] | None = None  # until when reads that fail are repeated, by both clocks

    async def reason(self, member: Member, pods: Sequence[Pod], trouble: str) -> str:
        """Return what is waited for, in words; "" when the pods may be evicted. `trouble`: they can't be read now.

        Raise Stop when what would be raised can't be, or is not ready in time.
        """
        policy = self.ctx.desired.profile.drain
        port = self.ctx.cluster.adjustments()
        if port is None or not (policy.surge or policy.hold) or trouble or member.is_dead(self.ctx.observed.host):
            return ""  # no pod of a dead node serves
        if not member.registered:
            return ""  # it is drained out of Slurm alone, whose notes have no room for what is changed in the cluster
        going = [pod for pod in pods if pod.terminating_since is None]
        try:
            why = await self._reason(port, member, going)
        except DriverError as error:
            return self._later(member, error)
        self._unread = None
        return why

    async def _reason(self, port: TimedAdjustments, member: Member, going: Sequence[Pod]) -> str:
        policy = self.ctx.desired.profile.drain
        hold = None if self._ill(member) else policy.hold  # an ill node may be out for weeks: no queue waits for that
        queues = [AdjustedRef(QUEUE, "", name) for name in (hold.queues if hold is not None else ())]
        if not self._up:
            await self._find(port, member, going)
            if not await self._noted(member, (*self.shares, *queues)):
                return "notes on the node what is changed for its drain"
        # To stop a queue ends the work in it: not before it is known that the drain goes on.
        raising = await self._surge(port, member)
        return raising or ("" if hold is None else await self._hold(port, member, hold, going))

    def _later(self, member: Member, error: DriverError) -> str:
        """Return that it is asked again later. Raise Stop for what no later answer changes, or if reads go on failing.

        These have a time of their own: one lost answer ends no drain, however long ago the surge began.
        """
        if error.kind in PASSING:
            policy, clock = self.ctx.desired.profile.drain, self.ctx.clock
            if self._unread is None:
                within = max(one.timeout_s for one in (policy.surge, policy.hold) if one is not None)
                self._unread = clock.now() + timedelta(seconds=within), clock.monotonic() + within
            until, ends = self._unread
            if clock.monotonic() < ends:
                return f"asks until {clock_time(until)} for what serves elsewhere: {error}"
        if not self._ill(member):
            raise Stop(Transient(str(error))) if error.kind in PASSING else _not_now(str(error))
        self.ctx.step(f"the node is ill and goes without a surge: {error}")
        self._up = True
        return ""

    # --- what is raised ---

    async def _find(self, port: TimedAdjustments, member: Member, going: Sequence[Pod]) -> None:
        """Find what sets the number of the pods that are to be surged, and how many of each are here."""
        surge = self.ctx.desired.profile.drain.surge
        found: dict[AdjustedRef, dict[str, bool]] = {}  # of what -> replica -> whether all of it that is here is ready
        for pod in going if surge is not None else ():
            if pod.surge is False or (pod.surge is None and not (surge is not None and surge.every)):
                continue
            if pod.uid not in self._known:
                self._known[pod.uid] = await port.scaled_by(pod)
            ref = self._known[pod.uid]
            if ref == GONE:
                continue
            if ref is None and pod.surge and pod.ready and not self._ill(member):
                raise _not_now(f"{names([pod])} asks for a surge, and nothing sets its replicas")
            if ref is not None:
                group = pod.workload.group if pod.workload is not None else ""
                replicas = found.setdefault(ref, {})  # pods of one group are one replica
                replicas[group or pod.uid] = replicas.get(group or pod.uid, True) and pod.ready
        self._unready = Counter({ref: list(each.values()).count(False) for ref, each in found.items()})
        self.shares = {ref: share for ref, each in sorted(found.items()) if (share := sum(each.values()))}

    def _ill(self, member: Member) -> bool:
        mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
        isolated = mark is not None and bool(isolated_for(mark.reason))
        return isolated or bool(self.ctx.drift_to_remove(Concern.HEALTH))

    async def _surge(self, port: TimedAdjustments, member: Member) -> str:
        surge = self.ctx.desired.profile.drain.surge
        if surge is None or self._up or not self.shares:
            return ""
        until = self.waits.limit(member, SURGED, surge.timeout_s)
        late = []
        for ref, share in self.shares.items():
            found = None if ref in self._given_up else await port.read(ref)
            try:
                if found is not None and not await self._is_up(port, found, share):
                    late.append(f"{ref}: {found.ready} of {found.wanted} ready")
            except Stop as stop:
                if not self._ill(member):
                    raise
                self._given_up.add(ref)
                self.ctx.step(
                    f"the node is ill and goes without a surge: {stop.outcome.detail.removeprefix(UNPREPARED)}"
                )
        self._up = not late
        if late and self.waits.is_over(SURGED):
            why = f"what serves elsewhere is not ready by {clock_time(until)}: {'; '.join(late[:3])}"
            if not self._ill(member):
                raise _not_now(why)
            self.ctx.step(f"the node is ill and goes nevertheless: {why}")
            self._up, late = True, []
        return f"waits until {clock_time(until)} for what serves elsewhere: {'; '.join(late[:3])}" if late else ""

    async def _is_up(self, port: TimedAdjustments, found: Adjusted, share: int) -> bool:
        """Raise it by this node's share, once; return whether it is ready."""
        node, ledger = self.ctx.node, self.ctx.ledger.id
        _check_owner(found, ledger)
        if found.record is None or node not in found.record.by:
            wish = adjusted(found, node, ledger, share)
            if found.keeper:
                raise _not_now(f"{found.ref}: {found.keeper} sets its replicas back: {_WAY_OUT}")
            if found.most is not None and isinstance(wish.now, int) and wish.now > found.most:
                raise _not_now(f"{found.ref} may have {found.most} replicas: none can be added")
            self.ctx.step(f"raises {found.ref} to {wish.now}")
            await tolerate(port.write(found, wish.now, wish), Failure.CONFLICT, Failure.AMBIGUOUS)
            return False
        if found.is_set_back:
            raise _not_now(f"{found.ref}: somebody set its replicas back to {found.value}: {_WAY_OUT}")
        return found.is_up(self._unready[found.ref])

    # --- queues ---

    async def _hold(self, port: TimedAdjustments, member: Member, hold: QueueHold, going: Sequence[Pod]) -> str:
        """Stop the queues; then wait until the pods of queues have left. One that others stopped stays as it is."""
        for ref in (AdjustedRef(QUEUE, "", name) for name in hold.queues):
            found = await port.read(ref)
            if found is None:
                raise _not_now(f"there is no {ref}, which the spec wants held")
            _check_owner(found, self.ctx.ledger.id)
            if found.record is not None and self.ctx.node in found.record.by:
                continue
            if found.record is not None or found.value in (None, RUNS):
                wish = adjusted(found, self.ctx.node, self.ctx.ledger.id, 1, hold.stop_policy)
                self.ctx.step(f"stops {ref} ({hold.stop_policy})")
                await tolerate(port.write(found, wish.now, wish), Failure.CONFLICT, Failure.AMBIGUOUS)
                return f"stops {ref}"
        until = self.waits.limit(member, HELD, hold.timeout_s)
        queued = [pod for pod in going if pod.workload is not None and pod.workload.queue]
        if not queued or self.waits.is_over(HELD):
            return ""
        return f"waits until {clock_time(until)} for Kueue to end what it has admitted: {names(queued)}"

    # --- the mark ---

    async def _noted(self, member: Member, refs: Sequence[AdjustedRef]) -> bool:
        """Note in the mark what may be changed from now on; return whether it is there."""
        mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
        assert mark is not None, "a drain looks at nodes that carry our mark"
        keys = tuple(sorted({*mark.adjusted, *(ref.key for ref in refs)}))
        if keys == mark.adjusted:
            return True
        write = self.ctx.cluster.mark(member, replace(mark, adjusted=keys))
        await tolerate(write, Failure.CONFLICT, Failure.AMBIGUOUS)
        return False

    async def lower(self, member: Member | None) -> None:
        """Take back what ends with the drain, and note that. `member`: as it was read last."""
        for attempt in range(_TRIES):
            member = await self.ctx.cluster.member(self.ctx.node) if attempt else member
            mark = None if member is None else read_mark(member.annotations.get(OWNER_ANNOTATION))
            if member is None or mark is None or not passing(mark.adjusted):
                return
            await take_back(self.ctx.cluster, self.ctx.node, mark.ledger, passing(mark.adjusted))
            rest = tuple(key for key in mark.adjusted if key not in passing(mark.adjusted))
            write = self.ctx.cluster.mark(member, replace(mark, adjusted=rest))
            await tolerate(write, Failure.CONFLICT, Failure.AMBIGUOUS)
        raise Stop(Transient("the node does not show that what was raised for it is lowered again"))

    async def retract(self) -> None:
        """Take everything back, as the pods are not evicted now. What can't be taken back now stays noted."""
        self.waits.forget(SURGED, HELD)
        try:
            found = await self.ctx.cluster.member(self.ctx.node)
            mark = None if found is None else read_mark(found.annotations.get(OWNER_ANNOTATION))
            ours = mark if mark is not None and mark.ledger == self.ctx.ledger.id else None
            keys = {*(ours.adjusted if ours is not None else ()), *(ref.key for ref in self.shares)}
            await take_back(self.ctx.cluster, self.ctx.node, self.ctx.ledger.id, sorted(keys))
            if found is not None and ours is not None and ours.adjusted:
                await self.ctx.cluster.mark(found, replace(ours, adjusted=()))
        except (DriverError, Stop) as error:
            self.ctx.step(f"what was changed for the drain stays so until the node is admitted: {error}")


async def wait_for_numbered(ctx: ActionContext) -> None:
    """Before a node is admitted, give pods with numbers that were evicted there the time of a surge to be ready again.

    When their controller is lowered, it takes the highest number away, which serves in their place. Where they wait for
    this very node, nothing else helps than to admit it.
    """
    surge, port = ctx.desired.profile.drain.surge, ctx.cluster.adjustments()
    member = None if surge is None else await ctx.cluster.member(ctx.node)
    mark = None if member is None else read_mark(member.annotations.get(OWNER_ANNOTATION))
    if port is None or surge is None or mark is None:
        return
    refs = [ref for ref in filter(None, map(parse_ref, mark.adjusted)) if ref.until_admitted and ref.kind != QUEUE]

    async def ready() -> bool | None:
        found = [await port.read(ref) for ref in refs]
        return all(one is None or one.record is None or one.is_up() for one in found) or None

    if refs and not await poll(ctx, ready, within_s=surge.timeout_s, every_s=_LOOK_S):
        ctx.step(f"{', '.join(map(str, refs))}: not all are ready again, and the one that was added goes now")


async def take_back_all(cluster: TimedCluster, member: Member, ledger: str) -> None:
    """Take back all that our mark on this node names, before the mark or its node object goes."""
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    if mark is not None and mark.ledger == ledger:
        await take_back(cluster, member.name, ledger, mark.adjusted)


async def take_back(cluster: TimedCluster, node: str, ledger: str, keys: Sequence[str]) -> None:
    """Take the node's share out of each of these objects. Raise Stop when one can't be written."""
    port = cluster.adjustments()
    for ref in filter(None, map(parse_ref, keys)) if port is not None else ():
        assert port is not None
        for _ in range(_TRIES):
            found = await port.read(ref)
            record = None if found is None else found.record
            if found is None or record is None or record.ledger != ledger or node not in record.by:
                break
            value, record = taken_back(found, node)
            await tolerate(port.write(found, value, record), Failure.CONFLICT, Failure.AMBIGUOUS)
        else:
            raise Stop(Transient(f"{ref} does not show that it is as before"))


def _check_owner(found: Adjusted, ledger: str) -> None:
    if found.record is not None and found.record.ledger != ledger:
        why = f"{found.ref} is changed by another reconciler (ledger {found.record.ledger})"
        raise _not_now(why, "foreign_adjustment")


def _not_now(why: str, code: str = "no_surge") -> Stop:
    """Return the end of a drain by what is of others: it is tried again after a pause, and its node has not failed."""
    return Stop(Declined(code, UNPREPARED + why))
