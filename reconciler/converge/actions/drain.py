"""Drain a node, so that no evictable pod runs on it (pitfalls H1-H7)."""

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
REPEAT_S = 60.0  # repeat an unchanged progress line only so often


@action
async def drain(ctx: ActionContext) -> Outcome:
    """Drain the node by the provider that the spec names."""
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
    """The evictions requested so far, by pod UID: a pod of the same name elsewhere is another pod (H6)."""

    found: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)  # uid -> why, e.g. which budget
    reported: tuple[str, float] | None = None  # the latest progress line, and when (monotonic)

    def report(self, ctx: ActionContext, left: Sequence[Pod]) -> None:
        """Report which pods are left, if that has changed or was reported long ago."""
        text, now = f"{_pods(len(left))} to go: {_names(left, 3)}", ctx.clock.monotonic()
        if self.reported is None or text != self.reported[0] or now - self.reported[1] >= REPEAT_S:
            ctx.step(text)
            self.reported = text, now


async def _drain_pods(ctx: ActionContext) -> Outcome:
    policy = ctx.desired.profile.drain
    evictions = _Evictions()
    began = ctx.clock.monotonic()
    while left := await _evictable(ctx):
        elapsed = ctx.clock.monotonic() - began
        late = elapsed >= policy.timeout_s
        dead = await _pods_are_dead(ctx) and elapsed >= (policy.grace_s or USUAL_GRACE_S)
        if dead or (late and policy.force):
            return await _delete(ctx, left, at_once=dead)
        if late:
            return Transient(_blocking(left, evictions, policy.timeout_s))
        evictions.report(ctx, left)
        evictions.found |= {pod.uid for pod in left}
        for pod in left:
            await _evict(ctx, pod, evictions)
        await ctx.clock.sleep(ROUND_S)
    return Done(
        f"{_pods(len(evictions.found))} evicted" if evictions.found else "nothing to evict",
        changed=bool(evictions.found),
    )


async def _evictable(ctx: ActionContext) -> Sequence[Pod]:
    """Return the pods still to be evicted. Raise Stop if our mark is gone: new pods would come (H5)."""
    member = await ctx.cluster.member(ctx.node)
    if member is None:
        return ()  # no node object, no pods (H7)
    if mark_of(member, ctx.ledger.id) is None or not tainted(member) or not member.unschedulable:
        raise Stop(Declined("not_marked", "the node does not carry our mark, so it can't be drained"))
    return [pod for pod in member.pods if pod.evictable]


async def _evict(ctx: ActionContext, pod: Pod, evictions: _Evictions) -> None:
    if pod.uid in evictions.asked:
        return  # it is terminating
    try:
        await ctx.cluster.evict(pod, grace_s=ctx.desired.profile.drain.grace_s)
    except DriverError as error:
        if error.kind not in (Failure.BUSY, Failure.AMBIGUOUS, Failure.CONFLICT):
            raise
        evictions.refused[pod.uid] = error.detail
        return
    evictions.asked.add(pod.uid)
    evictions.refused.pop(pod.uid, None)


async def _pods_are_dead(ctx: ActionContext) -> bool:
    """Return whether host and kubelet are silent, so that the pods do not run and nothing can terminate them."""
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


def _blocking(left: Sequence[Pod], evictions: _Evictions, timeout_s: float) -> str:
    refused = [pod for pod in left if pod.uid in evictions.refused]
    parts = [f"{pod.namespace}/{pod.name}: {evictions.refused[pod.uid]}" for pod in refused[:5]]
    slow = [pod for pod in left if pod.uid not in evictions.refused]
    if slow:
        parts.append(f"asked to end, still running: {_names(slow)}")
    return f"{_pods(len(left))} left after {format_duration(timeout_s)}: " + "; ".join(parts)


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _names(pods: Sequence[Pod], most: int = 5) -> str:
    shown = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in pods)[:most])
    return shown + (f" and {len(pods) - most} more" if len(pods) > most else "")
