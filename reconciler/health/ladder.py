"""Choose the next rung of the remediation ladder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from reconciler.model.desired import Remediation, Rung
from reconciler.model.records import Attempt

REMEDIATION = "remediation"  # the cause under which rungs are journaled
_NOT_TRIED = frozenset({"started", "refused"})  # under way, to be resumed; or refused before it began


def next_rung(
    policy: Remediation | None,
    attempts: tuple[Attempt, ...],
    now: datetime,
    may_help: Callable[[str], bool] = lambda _: True,
) -> Rung | None:
    """Return the first rung that has attempts left within the policy's window; None if there is none.

    `may_help`: whether an action can be tried on the node and may heal it; other rungs are passed over.
    """
    if policy is None or is_over_limit(policy, attempts, now):
        return None
    since = now - timedelta(seconds=policy.window_s)
    for rung in policy.ladder:
        if not may_help(rung.action):
            continue
        used = sum(_counts(attempt) and attempt.action == rung.action and attempt.at > since for attempt in attempts)
        if used < rung.attempts:
            return rung
    return None


def is_over_limit(policy: Remediation, attempts: tuple[Attempt, ...], now: datetime) -> bool:
    """Return whether the node was repaired as often as the policy allows, whatever the rungs and whatever they healed.

    A node that falls ill again and again has a fault that no rung finds.
    """
    since = now - timedelta(seconds=policy.most_within_s)
    used = sum(_counts(attempt) and attempt.at > since for attempt in attempts)
    return policy.most is not None and used >= policy.most


def _counts(attempt: Attempt) -> bool:
    return attempt.cause == REMEDIATION and attempt.outcome not in _NOT_TRIED
