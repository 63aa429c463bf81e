"""What we staged and no restart has brought in yet.

A BMC shows pending BIOS attributes, but neither a flashed image that waits nor a pending secure-boot mode: for those,
our own journaled attempts are the only witness.
"""

from __future__ import annotations

from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import Activation
from reconciler.planner.node.actions import spec_of

NOT_TAKEN = "it restarted, but did not take what was staged"  # how the detail of such an attempt begins


def waits(record: NodeRecord, action: str, target: str, activation: Activation) -> bool:
    """Whether `action` was done and nothing of its activation class came after it.

    A restart that failed because the setting did not take did restart: it is staged no more. One that a BMC refused
    did not.
    """
    for attempt in reversed(record.attempts):
        if activation in spec_of(attempt.action).activates and _restarted(attempt):
            return False
        if (attempt.action, attempt.target, attempt.outcome) == (action, target, "done"):
            return True
    return False


def unjudged(record: NodeRecord, action: str, target: str, activation: Activation) -> bool:
    """Whether the latest attempt came to no good end, and nothing has shown since what it did.

    What it began may go on, or wait for its activation: nothing of it is to be begun again before it was looked at.
    """
    for attempt in reversed(record.attempts):
        if activation in spec_of(attempt.action).activates and _restarted(attempt):
            return False
        if (attempt.action, attempt.target) == (action, target) and attempt.outcome != "refused":
            return attempt.outcome != "done"
    return False


def _restarted(attempt: Attempt) -> bool:
    return attempt.outcome == "done" or attempt.detail.startswith(NOT_TAKEN)
