"""Quiescing a node: nothing evictable runs on it any more (pitfalls H1-H7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.host import drain_by_command
from reconciler.converge.actions.membership import mark_of, tainted
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Pod, Silent
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.units import format_duration
from reconciler.model.vocab import DrainProvider

ROUND_S = 3.0
USUAL_GRACE_S = 30.0  # Kubernetes' own default
FORCED_S = 120.0
REPEAT_S = 60.0  # a person who waits wants to see that it goes on, not the same line every round


@action
async def drain(ctx: ActionContext) -> Outcome:
    match ctx.desired.profile.drain.provider:
        case DrainProvider.KUBERNETES:
            return await _drain_pods(ctx)
        case DrainProvider.COMMAND:
            return await drain_by_command(ctx)
        case DrainProvider.NONE:
            return Done("the spec says that nothing has to be drained")
        case provider:
            assert_never(provider)


@dataclass(slots=True)
class _Evictions:
    """What was asked for so far. By UID: a pod of the same name elsewhere is another pod (H6)."""

    met: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)  # uid -> why, e.g. which budget
    told: tuple[str, float] | None = None  # which pods are to go, as it was said last, and when (monotonic)

    def tell(self, ctx: ActionContext, left: Sequence[Pod]) -> None:
        """News, or once in a while the same."""
        text, now = f"{_pods(len(left))} to go: {_names(left, 3)}", ctx.clock.monotonic()
        if self.told is None or text != self.told[0] or now - self.told[1] >= REPEAT_S:
            ctx.step(text)
            self.told = text, now


async def _drain_pods(ctx: ActionContext) -> Outcome:
    policy = ctx.desired.profile.drain
    seen = _Evictions()
    began = ctx.clock.monotonic()
    while left := await _evictable(ctx):
        elapsed = ctx.clock.monotonic() - began
        late = elapsed >= policy.timeout_s
        dead = await _dead(ctx) and elapsed >= (policy.grace_s or USUAL_GRACE_S)
        if dead or (late and policy.force):
            return await _delete(ctx, left, at_once=dead)
        if late:
            return Transient(_blocking(left, seen, policy.timeout_s))
        seen.tell(ctx, left)
        seen.met |= {pod.uid for pod in left}
        for pod in left:
            await _evict(ctx, pod, seen)
        await ctx.clock.sleep(ROUND_S)
    return Done(f"{_pods(len(seen.met))} evicted" if seen.met else "nothing to evict", changed=bool(seen.met))


async def _evictable(ctx: ActionContext) -> Sequence[Pod]:
    """What is left to go. Only under our mark, as it stands now: without it, new pods would come (H5)."""
    member = await ctx.cluster.member(ctx.node)
    if member is None:
        return ()  # no node object, no pods (H7)
    if mark_of(member, ctx.ledger.id) is None or not tainted(member) or not member.unschedulable:
        raise Stop(Declined("not_marked", "the node does not carry our mark, so it can't be drained"))
    return [pod for pod in member.pods if pod.evictable]


async def _evict(ctx: ActionContext, pod: Pod, seen: _Evictions) -> None:
    if pod.uid in seen.asked:
        return  # it is on its way out
    try:
        await ctx.cluster.evict(pod, grace_s=ctx.desired.profile.drain.grace_s)
    except DriverError as error:
        if error.kind not in (Failure.BUSY, Failure.AMBIGUOUS, Failure.CONFLICT):
            raise
        seen.refused[pod.uid] = error.detail
        return
    seen.asked.add(pod.uid)
    seen.refused.pop(pod.uid, None)


async def _dead(ctx: ActionContext) -> bool:
    """Whether nothing on the node can end its pods: host silent, kubelet too. They do not run, and never say so."""
    if not isinstance(ctx.observed.host, Silent):
        return False
    member = await ctx.cluster.member(ctx.node)
    return member is not None and not member.ready


async def _delete(ctx: ActionContext, pods: Sequence[Pod], *, at_once: bool) -> Outcome:
    ctx.step(f"deleting {_pods(len(pods))}")
    for pod in pods:
        await ctx.cluster.delete(pod, grace_s=0.0 if at_once else ctx.desired.profile.drain.grace_s)
    deadline = ctx.clock.monotonic() + FORCED_S
    while left := await _evictable(ctx):
        if ctx.clock.monotonic() >= deadline:
            return Transient(f"deleted, but still there: {_names(left)}")
        await ctx.clock.sleep(ROUND_S)
    return Done(f"{_pods(len(pods))} deleted")


def _blocking(left: Sequence[Pod], seen: _Evictions, timeout_s: float) -> str:
    refused = [pod for pod in left if pod.uid in seen.refused]
    parts = [f"{pod.namespace}/{pod.name}: {seen.refused[pod.uid]}" for pod in refused[:5]]
    slow = [pod for pod in left if pod.uid not in seen.refused]
    if slow:
        parts.append(f"asked to end, still running: {_names(slow)}")
    return f"{_pods(len(left))} left after {format_duration(timeout_s)}: " + "; ".join(parts)


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _names(pods: Sequence[Pod], most: int = 5) -> str:
    shown = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in pods)[:most])
    return shown + (f" and {len(pods) - most} more" if len(pods) > most else "")
