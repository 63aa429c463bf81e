"""Foresee a drain: what it loses for good, and how long it may wait for the work (pitfall H9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from reconciler.model.desired import Desired, DrainPolicy
from reconciler.model.observed import Member, Observed, Pod, Silent
from reconciler.model.plan import PlannedAction
from reconciler.model.slurm import JOB
from reconciler.model.stakes import Stakes, stakes
from reconciler.model.units import format_duration
from reconciler.model.vocab import CheckpointWay
from reconciler.planner.node.actions import spec_of

_ROUNDED_S: Final = 900


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
    asks = policy.wait_for_jobs_s or policy.checkpoint or policy.surge or policy.hold
    if not asks or member.is_dead(observed.host):
        return Draining(actions, lost)
    waits = _waits(pods, policy, observed.member.at)
    if not waits:
        return Draining(actions, lost)
    known = _known_end(pods, policy, observed.member.at)
    return Draining(_timed(actions, sum(waits.values()), known), lost, tuple(waits))


def busy(observed: Observed) -> bool:
    """Return whether pods would have to leave the node."""
    member: Member | None = None if isinstance(observed.member, Silent) else observed.member.value
    return member is not None and bool(member.work(observed.host, observed.member.at))


def _waits(pods: Sequence[Pod], policy: DrainPolicy, at: datetime) -> dict[str, float]:
    """Return what the drain waits for -> seconds, at most: nobody knows when work ends or has saved its state.

    Jobs of Slurm have time limits, which say when they end at the latest.
    """
    found = _adjusts(pods, policy)
    finite = [pod for pod in pods if pod.finite]
    if policy.wait_for_jobs_s and finite:
        seconds, due = policy.wait_for_jobs_s, _due(finite)
        most, last = format_duration(seconds), ""
        if due is not None:
            seconds = min(seconds, max(0.0, (due - at).total_seconds()))
            last = f", the last of which ends by {due:%Y-%m-%d %H:%M}Z"
        found[f"up to {most} for {_count(finite)} of finite work{last}"] = seconds
    if policy.checkpoint is not None and pods:
        able = [pod for pod in pods if policy.checkpoint.asks(pod)]
        by_host = policy.checkpoint.way is CheckpointWay.COMMAND
        whom = "the host's work" if by_host else _count(able)
        if able or by_host:
            most = format_duration(policy.checkpoint.timeout_s)
            found[f"up to {most} for the checkpoint of {whom}"] = policy.checkpoint.timeout_s
    return found


def _adjusts(pods: Sequence[Pod], policy: DrainPolicy) -> dict[str, float]:
    """Return the waits for what is changed before: queues that end what they admitted, replicas that get ready."""
    found = {}
    if (hold := policy.hold) and any(pod.workload is not None and pod.workload.queue for pod in pods):
        most, queues = format_duration(hold.timeout_s), ", ".join(hold.queues)
        found[f"up to {most} for {queues} of Kueue ({hold.stop_policy})"] = hold.timeout_s
    if (surge := policy.surge) and (serving := [pod for pod in pods if _surged(pod, every=surge.every)]):
        most = format_duration(surge.timeout_s)
        found[f"up to {most} for replicas elsewhere of {_count(serving)}"] = surge.timeout_s
    return found


def _surged(pod: Pod, *, every: bool) -> bool:
    """Return whether a pod may be surged. What sets its number is looked up in the drain alone."""
    replicated = pod.owner_kind in ("ReplicaSet", "StatefulSet") or (pod.workload is not None and not pod.finite)
    return pod.surge is True or (every and pod.surge is None and replicated)


def _due(finite: Sequence[Pod]) -> datetime | None:
    """Return when the last of some finite work ends at the latest; None if nobody knows that of one of them."""
    due = [pod.due_at for pod in finite if pod.due_at is not None]
    return max(due, default=None) if len(due) == len(finite) else None


def _known_end(pods: Sequence[Pod], policy: DrainPolicy, at: datetime) -> tuple[float, datetime | None]:
    """Return for how many seconds a drain that begins now waits for work that ends by a known time, and that time.

    It counts where all of the work may go on until then. Rounded up, so that nodes which wait alike share a queue.
    """
    due = _due([pod for pod in pods if pod.finite])
    seconds = 0.0 if due is None else (due - at).total_seconds()
    if due is None or not 0 < seconds <= policy.wait_for_jobs_s:
        return 0.0, None
    late = due.timestamp() % _ROUNDED_S
    return seconds, due + timedelta(seconds=_ROUNDED_S - late) if late else due


def _count(pods: Sequence[Pod]) -> str:
    jobs = all(pod.owner_kind == JOB for pod in pods) and bool(pods)
    return f"{len(pods)} {'job' if jobs else 'pod'}{'' if len(pods) == 1 else 's'}"


def _timed(
    actions: tuple[PlannedAction, ...], seconds: float, known: tuple[float, datetime | None]
) -> tuple[PlannedAction, ...]:
    """Add the longest wait to the drain: a window must hold it, and work may well use all of it."""
    return tuple([_longer(action, seconds, known) if spec_of(action.name).drains else action for action in actions])


def _longer(action: PlannedAction, seconds: float, known: tuple[float, datetime | None]) -> PlannedAction:
    waits_s, until = known
    p90_s = (action.p90_s or action.estimate_s) + seconds
    return replace(action, estimate_s=action.estimate_s + seconds, p90_s=p90_s, waits_s=waits_s, waits_until=until)
