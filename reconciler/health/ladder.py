"""Choose the next rung of the remediation ladder."""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.health.table import Remedy
from reconciler.model.desired import Remediation, Rung
from reconciler.model.records import Attempt

REMEDIATION = "remediation"  # the cause under which rungs are journaled
_NOT_TRIED = frozenset({"started", "refused"})  # under way, to be resumed; or refused before it began


def may_heal(action: str, remedy: Remedy) -> bool:
    """Return whether a rung may heal a signal with this remedy."""
    return remedy is Remedy.LADDER or (remedy is Remedy.POWER and action != "reimage")


def next_rung(
    policy: Remediation | None,
    attempts: tuple[Attempt, ...],
    now: datetime,
    *,
    answers: bool = True,
    remedy: Remedy = Remedy.LADDER,
) -> Rung | None:
    """Return the first rung that may heal, with attempts left in the policy's window; None when there is none.

    `answers` says whether the host answers. A silent host can't be asked to restart, so that rung is skipped (C3).
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
    return attempt.cause == REMEDIATION and attempt.outcome not in _NOT_TRIED
