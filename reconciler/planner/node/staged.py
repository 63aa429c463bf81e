"""Find what is staged on a node: written, and not in effect before a reboot.

A BMC shows pending BIOS attributes. It shows neither flashed firmware that waits for a reboot nor a pending
secure-boot mode: only our own journaled attempts tell of those.
"""

from __future__ import annotations

from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import Activation
from reconciler.planner.node.actions import spec_of

NOT_ACTIVATED = "it rebooted, but did not take what was staged"  # the start of such an attempt's detail
_OLD = "it restarted, but did not take what was staged"  # the same in older ledgers


def is_staged(record: NodeRecord, action: str, target: str, activation: Activation) -> bool:
    """Return whether `action` was done and no action of its activation class came after it.

    A reboot that failed because the setting did not take effect still was a reboot: nothing is staged any more. A
    reboot that a BMC refused was none.
    """
    for attempt in reversed(record.attempts):
        if activation in spec_of(attempt.action).activates and _rebooted(attempt):
            return False
        if (attempt.action, attempt.target, attempt.outcome) == (action, target, "done"):
            return True
    return False


def is_unverified(record: NodeRecord, action: str, target: str, activation: Activation) -> bool:
    """Return whether the latest attempt failed, and no reboot has shown since what it did.

    What it began may still go on, or wait for its activation, so look at that before beginning it again.
    """
    for attempt in reversed(record.attempts):
        if activation in spec_of(attempt.action).activates and _rebooted(attempt):
            return False
        if (attempt.action, attempt.target) == (action, target) and attempt.outcome != "refused":
            return attempt.outcome != "done"
    return False


def _rebooted(attempt: Attempt) -> bool:
    return attempt.outcome == "done" or attempt.detail.startswith((NOT_ACTIVATED, _OLD))
