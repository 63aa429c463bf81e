"""Change the node object: mark, label, join, admit. Every write names the resource version that it was decided on.

A mark is the taint, the owner annotation and the cordon in one patch. `Mark.cordoned` says whether the cordon is ours:
another's cordon is never lifted, and ours is never left behind (invariant 9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from reconciler.converge.actions.adjust import take_back, wait_for_numbered
from reconciler.converge.actions.backup import load_into_k3s
from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, action, poll, tolerate
from reconciler.converge.actions.k3s_join import joining_k3s
from reconciler.converge.actions.medium import eject_left_over
from reconciler.converge.actions.serving import must_serve_without
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.soak import stop as stop_soak
from reconciler.diff.k3s import K3S
from reconciler.model.drift import DriftItem
from reconciler.model.errors import Failure
from reconciler.model.observed import Member, Taint
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, SPARE, Mark, isolated_for, read_mark
from reconciler.model.vocab import Concern

NOT_LABELS = ("cluster.member", K3S)
TRIES = 5  # of a read-modify-write against others who write the same object
REGISTER_S = 600.0
READY_S = 900.0


def mark_of(member: Member, ledger: str) -> Mark | None:
    """Return our mark on a node. Raise Stop if it carries another ledger's."""
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    if mark is not None and mark.ledger != ledger:
        raise Stop(Declined("foreign_mark", f"marked by another reconciler (ledger {mark.ledger}): {mark.reason}"))
    return mark


def tainted(member: Member) -> bool:
    return any(taint.key == MARK_TAINT for taint in member.taints)


@action
async def mark(ctx: ActionContext) -> Outcome:
    """Take the node out of service: taint, annotate and cordon it. Its serving group has to answer without it.

    Where nothing has to be drained, nothing else asks that. An isolated node is marked before its group is told.
    """
    if not isolated_for(", ".join(ctx.action.because)):
        await must_serve_without(ctx)

    def wanted(member: Member) -> bool:
        ours = mark_of(member, ctx.ledger.id)
        return ours is not None and tainted(member) and member.unschedulable

    def write(member: Member) -> Awaitable[None]:
        ours = mark_of(member, ctx.ledger.id)
        cordoned = not member.unschedulable or (ours is not None and ours.cordoned)
        at = ctx.clock.now().isoformat(timespec="seconds")
        because = ", ".join(ctx.action.because)
        reason = because if isolated_for(because) else because[:200]  # the planner parses the signals again
        # What ran there counts until it serves again: pods that leave are forgotten otherwise (budgets per workload).
        ran = {pod.workload.whole for pod in member.pods if pod.workload is not None and pod.evictable}
        names = tuple(sorted(ran | set(ours.workloads if ours is not None else ())))
        changed = () if ours is None else ours.adjusted
        return ctx.cluster.mark(member, Mark(ctx.ledger.id, ctx.plan, reason, at, cordoned, names, changed))

    changed = await _modify(ctx, wanted, write)
    return Done("out of service", changed=changed)


@action
async def reserve(ctx: ActionContext) -> Outcome:
    """Keep the node as a spare: its mark says so from now on, and no longer why the node was taken out.

    What was changed for its drain is taken back, as nobody may admit it for months.
    """
    wanted = SPARE + ctx.desired.persona

    def shows(member: Member) -> bool:
        ours = mark_of(member, ctx.ledger.id)
        kept = ours is not None and ours.reason == wanted and not ours.adjusted
        return kept and tainted(member) and member.unschedulable

    async def write(member: Member) -> None:
        ours = mark_of(member, ctx.ledger.id)
        if ours is None or not member.unschedulable:
            raise Stop(Declined("not_marked", "our mark is not on the node: it may be in service"))
        await take_back(ctx.cluster, ctx.node, ctx.ledger.id, ours.adjusted)
        await ctx.cluster.mark(member, replace(ours, plan=ctx.plan, reason=wanted, adjusted=()))

    if ctx.cluster_port is not None:
        await wait_for_numbered(ctx)
    return Done(wanted, changed=await _modify(ctx, shows, write))


@action
async def admit(ctx: ActionContext) -> Outcome:
    """Lift our mark, and the cordon if it is ours; then verify that the node is Ready and schedulable.

    Before, the container images of its backup are loaded, where the runtime of its containers comes with the cluster.
    If that took time, the mark stays in this attempt: the evidence that the node may serve is older than that.
    """
    await eject_left_over(ctx)
    await _stop_left_over_soak(ctx)
    if ctx.cluster_port is None:
        return Done("in service; there is no cluster to tell")
    await wait_for_numbered(ctx)
    not_loaded = await load_into_k3s(ctx)
    changed = await lift_mark(ctx.cluster, ctx.node, ctx.ledger.id)
    member = await ctx.cluster.member(ctx.node)
    if member is None or not member.ready:
        return Transient("the mark is lifted, but the node is not Ready", 30.0)
    if member.unschedulable:
        return Permanent("the mark is lifted, but somebody else's cordon is still there")
    return Done("in service" + not_loaded, changed=changed)


async def _stop_left_over_soak(ctx: ActionContext) -> None:
    """Stop what a gate may have left running of which nobody saw the end, and which the spec asks for no more."""
    gates = [
        attempt for attempt in ctx.record.attempts if attempt.action == "run_gate" and attempt.outcome != "refused"
    ]
    if gates and gates[-1].outcome != "done":
        await stop_soak(ctx.host, ctx.clock)


async def lift_mark(cluster: TimedCluster, node: str, ledger: str) -> bool:
    """Lift our mark and return whether there was one. Raise Stop if that fails, or the mark is another ledger's.

    What was changed for the drain is taken back before: the mark alone says what that was.
    """
    failed = None
    for attempt in range(TRIES):
        member = await cluster.member(node)
        ours = None if member is None else mark_of(member, ledger)
        if member is None or (ours is None and not tainted(member)):
            return attempt > 0
        if ours is not None:
            await take_back(cluster, node, ledger, ours.adjusted)
        uncordon = ours is not None and ours.cordoned
        failed = await tolerate(cluster.unmark(member, uncordon=uncordon), Failure.CONFLICT, Failure.AMBIGUOUS)
    raise Stop(Transient(f"the mark could not be lifted: {failed or 'it is still there'}"))


@action
async def set_labels(ctx: ActionContext) -> Outcome:
    """Set the labels and taints that drifted."""
    items = [item for item in ctx.drift_to_remove(Concern.CLUSTER) if not item.path.startswith(NOT_LABELS)]
    membership = ctx.desired.profile.membership
    if not items or membership is None:
        return Done("nothing to label", changed=False)
    labels = {name: str(item.desired) for item, name in _named(items, "cluster.labels.")}
    keys = {name for _, name in _named(items, "cluster.taints.")}
    taints = tuple(taint for taint in membership.taints if taint.key in keys)

    def wanted(member: Member) -> bool:
        have = all(member.labels.get(name) == value for name, value in labels.items())
        return have and all(_has(member, taint) for taint in taints)

    changed = await _modify(ctx, wanted, lambda member: ctx.cluster.set_labels(member, labels, taints))
    return Done(", ".join(item.path for item in items), changed=changed)


def _named(items: list[DriftItem], prefix: str) -> list[tuple[DriftItem, str]]:
    return [(item, item.path.removeprefix(prefix)) for item in items if item.path.startswith(prefix)]


def _has(member: Member, taint: Taint) -> bool:
    return any(
        (found.key, found.value, found.effect) == (taint.key, taint.value, taint.effect) for found in member.taints
    )


async def _modify(
    ctx: ActionContext, wanted: Callable[[Member], bool], write: Callable[[Member], Awaitable[None]]
) -> bool:
    """Write until a fresh read shows the change (pitfall H5). Return False if there was nothing to change."""
    failed = None
    for attempt in range(TRIES):
        member = await ctx.cluster.member(ctx.node)
        if member is None:
            raise Stop(Declined("absent", "the cluster has no such node"))
        if wanted(member):
            return attempt > 0
        failed = await tolerate(write(member), Failure.CONFLICT, Failure.AMBIGUOUS)
    raise Stop(Transient(f"the node object does not show what was written: {failed or 'the write was accepted'}"))


async def _shows(ctx: ActionContext, wanted: Callable[[Member], bool]) -> Member | None:
    """Return the node if it is as wanted. The server's cache is asked first, and only a no is believed from it."""
    found = await ctx.cluster.member(ctx.node, cached=True)
    if found is not None and wanted(found):
        found = await ctx.cluster.member(ctx.node)
    return found if found is not None and wanted(found) else None


async def wait_registered(ctx: ActionContext, *, new: bool, within_s: float) -> bool:
    """Wait for the node object, and return whether it came.

    `new`: there was none before, so it is marked at once: the node has not been accepted yet.
    """
    if await poll(ctx, lambda: _shows(ctx, lambda found: found.registered), within_s=within_s, every_s=1.0) is None:
        return False
    if new:
        await mark(ctx)
    return True


@action
async def join(ctx: ActionContext) -> Outcome:
    """Make the node register and become Ready. Without a join command its kubelet does so by itself."""
    membership = ctx.desired.profile.membership
    member = await ctx.cluster.member(ctx.node)
    if member is not None and member.ready:
        return Done("a Ready member already", changed=False)
    registered = member if member is not None and member.registered else None
    if ctx.desired.profile.k3s is not None:
        async with joining_k3s(ctx, registered) as new:
            return await _become_ready(ctx, new=new)
    if membership is not None and membership.join:
        ctx.step(f"joining: {' '.join(membership.join)}")
        await run(ctx, membership.join, seconds=REGISTER_S)
    return await _become_ready(ctx, new=registered is None)


async def _become_ready(ctx: ActionContext, *, new: bool) -> Outcome:
    if not await wait_registered(ctx, new=new, within_s=REGISTER_S):
        return Transient("the node did not register with the cluster")

    if await poll(ctx, lambda: _shows(ctx, lambda found: bool(found.ready)), within_s=READY_S, every_s=2.0) is None:
        return Transient("the node registered, but it does not become Ready")
    return Done("a Ready member")
