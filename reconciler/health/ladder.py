"""Which rung of the remediation ladder is next."""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.health.table import Remedy
from reconciler.model.desired import Remediation, Rung
from reconciler.model.records import Attempt

REMEDIATION = "remediation"  # the cause under which rungs are journaled
_UNUSED = frozenset({"started", "refused"})  # under way or parked, to be gone on with; never tried


def may_heal(action: str, remedy: Remedy) -> bool:
    """Whether a rung may heal what asks for this remedy."""
    return remedy is Remedy.LADDER or (remedy is Remedy.POWER and action != "reimage")


def next_rung(
    policy: Remediation | None,
    attempts: tuple[Attempt, ...],
    now: datetime,
    *,
    answers: bool = True,
    remedy: Remedy = Remedy.LADDER,
) -> Rung | None:
    """The first rung that may help, with attempts left inside the policy's window; None when none is left.

    `answers`: the host does. One that does not can't be asked to restart, so that rung is passed over (pitfall C3).
    """
    if policy is None:
        return None
    since = now - timedelta(seconds=policy.window_s)
    for rung in policy.ladder:
        if (rung.action == "soft_restart" and not answers) or not may_heal(rung.action, remedy):
            continue
        used = sum(_counts(attempt) and attempt.action == rung.action and attempt.at > since for attempt in attempts)
        if used < rung.attempts:
            return rung
    return None


def _counts(attempt: Attempt) -> bool:
    return attempt.cause == REMEDIATION and attempt.outcome not in _UNUSED
