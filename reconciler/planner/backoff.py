"""When an action that failed may be planned again: after a pause that grows with every failure in a row.

Pure from the ledger's attempts, so that a restart resets nothing (pitfall I1). The pause is spread by a hash, so that
nodes that failed together don't come back together (pitfall I9), and no two runs disagree.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from reconciler.model.plan import BlockCode, Blocked
from reconciler.model.records import Attempt, NodeRecord

FIRST_S, FACTOR, MOST_S = 15.0, 4.0, 4 * 3600.0
SPREAD = 0.25  # of a pause, on top of it


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


def backing_off(record: NodeRecord, actions: Iterable[tuple[str, str]], now: datetime) -> Blocked | None:
    """Whether one of `actions`, (name, target), has to wait; the one that waits longest speaks."""
    longest: Blocked | None = None
    for name, target in actions if record.attempts else ():
        failed = failures(record.attempts, name, target)
        if not failed:
            continue
        action = f"{name}:{target}" if target else name
        until = (failed[0].ended_at or failed[0].at) + timedelta(seconds=pause_s(record.node, action, len(failed)))
        if until > now and (longest is None or longest.until is None or until > longest.until):
            times = "once" if len(failed) == 1 else f"{len(failed)} times in a row"
            detail = f"{action} failed {times}" + (f" ({failed[0].detail})" if failed[0].detail else "")
            longest = Blocked(BlockCode.BACKOFF, detail, until)
    return longest
