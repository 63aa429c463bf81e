"""Choose the next rung of the remediation ladder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from reconciler.model.desired import Remediation, Rung
from reconciler.model.outcome import TOGETHER
from reconciler.model.records import Attempt

REMEDIATION = "remediation"  # the cause under which rungs are journaled
NOT_TRIED = frozenset({"started", "refused"})  # under way, to be resumed; or refused before it began


@dataclass(frozen=True, slots=True)
class Treated:
    """The classes of the signals that are to be treated, and how to tell those of an earlier attempt's signals."""

    classes: frozenset[str] = frozenset()
    class_of: Callable[[str], str] = lambda _path: ""


def next_rung(
    policy: Remediation | None,
    attempts: tuple[Attempt, ...],
    now: datetime,
    may_help: Callable[[str], bool] = lambda _: True,
    treated: Treated = Treated(),
    unseen: tuple[Attempt, ...] | None = None,
) -> Rung | None:
    """Return the first rung that has attempts left within the policy's window; None if there is none.

    `may_help`: whether an action can be tried on the node and may heal it; other rungs are passed over. `unseen`: the
    attempts since a person last saw to the node, which the policy's limit counts; None = all.
    """
    if policy is None or limit_reached(policy, attempts if unseen is None else unseen, now, treated):
        return None
    since = now - timedelta(seconds=policy.window_s)
    for rung in policy.ladder:
        if not may_help(rung.action):
            continue
        used = sum(_counts(attempt) and attempt.action == rung.action and attempt.begun > since for attempt in attempts)
        if used < rung.attempts:
            return rung
    return None


def limit_reached(
    policy: Remediation, attempts: tuple[Attempt, ...], now: datetime, treated: Treated
) -> tuple[int, str] | None:
    """Return the limit that is used up, and its class ("" = all), whatever the rungs and whatever they healed.

    A node that falls ill again and again has a fault that no rung finds.
    """
    since = now - timedelta(seconds=policy.most_within_s)
    counted = [attempt for attempt in attempts if _counts(attempt) and attempt.begun > since]
    if policy.most is not None and len(counted) >= policy.most:
        return policy.most, ""
    for name, most in policy.most_of_class:
        used = sum(any(treated.class_of(path) == name for path in attempt.treated) for attempt in counted)
        if name in treated.classes and used >= most:
            return most, name
    return None


def _counts(attempt: Attempt) -> bool:
    """Return whether an attempt uses up a rung. One that cut nobody off has not tried whether that helps."""
    tried = attempt.outcome not in NOT_TRIED and not attempt.detail.startswith(TOGETHER)
    return attempt.cause == REMEDIATION and tried
