"""When an action that failed, or that does not hold, may be planned again: after a pause that grows each time.

Pure from the ledger's attempts, so that a restart resets nothing (pitfall I1). The pause is spread by a hash, so that
nodes that failed together don't come back together (pitfall I9), and no two runs disagree.

What was done well and is needed again for the same drift does not hold: a BIOS that drops a setting, or somebody who
sets it back. Without a pause every pass would drain and restart that node (pitfalls C2, I10).
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Sequence
from datetime import datetime, timedelta

from reconciler.health.ladder import REMEDIATION
from reconciler.model.plan import BlockCode, Blocked, PlannedAction
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.node.actions import spec_of

FIRST_S, FACTOR, MOST_S = 15.0, 4.0, 4 * 3600.0
SPREAD = 0.25  # of a pause, on top of it
HELD_OFTEN, HELD_WITHIN = 2, timedelta(days=3)  # done so often within them, and needed again
HOUR_S, DAY_S = 3600.0, 86400.0


def failures(attempts: Sequence[Attempt], action: str, target: str) -> list[Attempt]:
    """Of one action, newest first, since it last succeeded or the node was last admitted.

    An admission proves that nothing of what failed before was still wrong.
    """
    found = []
    for attempt in reversed(attempts):
        if attempt.action == "admit" and attempt.outcome == "done":
            break
        if (attempt.action, attempt.target) != (action, target):
            continue
        if attempt.outcome == "done":
            break
        if attempt.outcome not in ("refused", "started"):
            found.append(attempt)
    return found


def pause_s(node: str, action: str, failed: int) -> float:
    """After so many failures in a row."""
    pause = min(FIRST_S * FACTOR ** min(failed - 1, 20), MOST_S)
    return pause * (1 + SPREAD * (zlib.crc32(f"{node} {action} {failed}".encode()) / 2**32))


def backing_off(
    record: NodeRecord, actions: Iterable[PlannedAction], drifted: Container[str], now: datetime
) -> Blocked | None:
    """Whether one of `actions` has to wait; the one that waits longest speaks.

    `drifted`: paths that were as they should be, and are not any more. What the spec has changed since is none of them.
    """
    longest: Blocked | None = None
    for action in actions if record.attempts else ():
        for found in (_failed(record, action), _unheld(record, action, drifted, now)):
            if found is not None and found.until is not None and found.until > now:
                longest = found if longest is None or longest.until is None or found.until > longest.until else longest
    return longest


def _failed(record: NodeRecord, action: PlannedAction) -> Blocked | None:
    failed = failures(record.attempts, action.name, action.target)
    if not failed:
        return None
    until = (failed[0].ended_at or failed[0].at) + timedelta(seconds=pause_s(record.node, action.id, len(failed)))
    times = "once" if len(failed) == 1 else f"{len(failed)} times in a row"
    detail = f"{action.id} failed {times}" + (f" ({failed[0].detail})" if failed[0].detail else "")
    return Blocked(BlockCode.BACKOFF, detail, until)


def _unheld(record: NodeRecord, action: PlannedAction, drifted: Container[str], now: datetime) -> Blocked | None:
    """An hour after the second time, four after the third, a day at most."""
    if not action.because or any(path not in drifted for path in action.because):
        return None
    cause = ", ".join(action.because)
    done = _undone_by_others(record, action, cause, now - HELD_WITHIN)
    if len(done) < HELD_OFTEN:
        return None
    pause = min(HOUR_S * FACTOR ** (len(done) - HELD_OFTEN), DAY_S)
    until = (done[-1].ended_at or done[-1].at) + timedelta(seconds=pause)
    return Blocked(
        BlockCode.BACKOFF, f"{action.id} was done {len(done)} times in three days and does not hold: {cause}", until
    )


def _undone_by_others(record: NodeRecord, action: PlannedAction, cause: str, since: datetime) -> list[Attempt]:
    """The times that it was done for this cause, but for those that we undid ourselves."""
    found: list[Attempt] = []
    standing = False  # the last of them, as far as we know
    for attempt in record.attempts:
        if attempt.at < since or attempt.outcome == "refused":
            continue
        if (attempt.action, attempt.target) == (action.name, action.target):
            if attempt.outcome == "done" and attempt.cause == cause != REMEDIATION:
                found.append(attempt)
                standing = True
        elif standing and action.name in spec_of(attempt.action).undoes:
            found.pop()
            standing = False
    return found
