"""Foresee a drain: what it loses for good, and how long it may wait for the work (pitfall H9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from reconciler.model.desired import Desired, DrainPolicy
from reconciler.model.observed import Member, Observed, Pod, Silent
from reconciler.model.plan import PlannedAction
from reconciler.model.stakes import Stakes, stakes
from reconciler.model.units import format_duration
from reconciler.model.vocab import CheckpointWay
from reconciler.planner.node.actions import spec_of


@dataclass(frozen=True, slots=True)
class Draining:
    """The drain of a plan. `waits`: for what and how long, in words. `actions`: with the time that it may take."""

    actions: tuple[PlannedAction, ...]
    lost: Stakes = field(default_factory=Stakes)
    waits: tuple[str, ...] = ()


def draining(desired: Desired, observed: Observed, actions: tuple[PlannedAction, ...]) -> Draining:
    """Return what the drain among these actions, if there is one, means for the pods that run there now."""
    if not any(spec_of(action.name).drains for action in actions):
        return Draining(actions)
    member = None if isinstance(observed.member, Silent) else observed.member.value
    if member is None:
        return Draining(actions)
    policy = desired.profile.drain
    pods = member.work(observed.host, observed.member.at)
    lost = stakes(pods, policy)
    if not (policy.wait_for_jobs_s or policy.checkpoint) or member.is_dead(observed.host):
        return Draining(actions, lost)
    waits = _waits(pods, policy)
    return Draining(_timed(actions, sum(waits.values())), lost, tuple(waits)) if waits else Draining(actions, lost)


def busy(observed: Observed) -> bool:
    """Return whether pods would have to leave the node."""
    member: Member | None = None if isinstance(observed.member, Silent) else observed.member.value
    return member is not None and bool(member.work(observed.host, observed.member.at))


def _waits(pods: Sequence[Pod], policy: DrainPolicy) -> dict[str, float]:
    """Return what the drain waits for -> seconds, at most: nobody knows when work ends or has saved its state."""
    found = {}
    finite = sum(pod.finite for pod in pods)
    if policy.wait_for_jobs_s and finite:
        most = format_duration(policy.wait_for_jobs_s)
        found[f"up to {most} for {finite} {'pod' if finite == 1 else 'pods'} of finite work"] = policy.wait_for_jobs_s
    if policy.checkpoint is not None and pods:
        able = sum(pod.checkpoint is not None for pod in pods)
        by_host = policy.checkpoint.way is CheckpointWay.COMMAND
        whom = "the host's work" if by_host else "1 pod" if able == 1 else f"{able} pods"
        if able or by_host:
            most = format_duration(policy.checkpoint.timeout_s)
            found[f"up to {most} for the checkpoint of {whom}"] = policy.checkpoint.timeout_s
    return found


def _timed(actions: tuple[PlannedAction, ...], seconds: float) -> tuple[PlannedAction, ...]:
    """Add the longest wait to the drain: a window must hold it, and work may well use all of it."""
    return tuple(
        [
            replace(action, estimate_s=action.estimate_s + seconds, p90_s=(action.p90_s or action.estimate_s) + seconds)
            if spec_of(action.name).drains
            else action
            for action in actions
        ]
    )
