"""Decide when an action that failed, or whose effect does not last, may be planned again.

The pause grows each time. It follows from the ledger's attempts alone, so a restart of the reconciler resets nothing
(pitfall I1). A hash spreads it: nodes that failed together are not retried together (pitfall I9), and all runs agree.

An action that succeeded and is needed again for the same drift does not last: a BIOS drops the setting, or somebody
sets it back. Without a pause every pass would drain and restart that node (pitfalls C2, I10). What a boot loses of the
running system is no relapse: images with a sealed root lose sysctls so, and need them set once a boot.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable
from datetime import datetime, timedelta

from reconciler.health.ladder import REMEDIATION
from reconciler.model.outcome import WAITED
from reconciler.model.plan import BlockCode, Blocked, PlannedAction
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.node.actions import ActionSpec, spec_of
from reconciler.planner.node.record import is_admission

FIRST_S, FACTOR, MOST_S = 15.0, 4.0, 4 * 3600.0
SKIPPED = 2  # pauses, after what waits for others: each try cordons the node for a while
SPREAD = 0.25  # the largest share of a pause that is added to it
RELAPSES, RELAPSE_WITHIN = 2, timedelta(days=3)  # done so often within this time, and needed again
HOUR_S, DAY_S = 3600.0, 86400.0


def failures(record: NodeRecord, action: str, target: str, *, unprepared: bool = False) -> list[Attempt]:
    """Return the failed attempts at one action since it last succeeded or the node was last admitted, newest first.

    `unprepared`: with those that waited for what is of others, such as a Deployment that nobody may raise.

    An admission proves that whatever failed before has been put right. A hold that somebody set and lifted again says
    so, too. What failed before a new image or new firmware was tried on something else.
    """
    found = []
    for attempt in reversed(record.since_release):
        if is_admission(attempt) or (attempt.outcome == "done" and spec_of(attempt.action).renews(action)):
            break
        if (attempt.action, attempt.target) != (action, target):
            continue
        if attempt.outcome == "done":
            break
        waited = unprepared and attempt.outcome == "refused" and attempt.detail.startswith(WAITED)
        if waited or attempt.outcome not in ("refused", "started"):
            found.append(attempt)
    return found


def pause_s(node: str, action: str, failed: int) -> float:
    """Return the seconds to wait after so many failures in a row."""
    pause = min(FIRST_S * FACTOR ** min(failed - 1, 20), MOST_S)
    return pause * (1 + SPREAD * (zlib.crc32(f"{node} {action} {failed}".encode()) / 2**32))


def backing_off(
    record: NodeRecord, actions: Iterable[PlannedAction], drifted: Container[str], now: datetime, boot_id: str = ""
) -> Blocked | None:
    """Return why `actions` have to wait, by the action that has to wait longest; None if all may go now.

    `drifted`: value paths that were as specified and are not any more. Paths that the spec has changed since are not
    among them. `boot_id`: the node's present boot; "" if that is not known.
    """
    longest: Blocked | None = None
    before: list[ActionSpec] = []
    for action in actions if record.attempts else ():
        failed = None if any(spec.renews(action.name) for spec in before) else _failed(record, action)
        before.append(spec_of(action.name))
        for found in (failed, _relapsed(record, action, drifted, now, boot_id)):
            if found is not None and found.until is not None and found.until > now:
                longest = found if longest is None or longest.until is None or found.until > longest.until else longest
    return longest


def _failed(record: NodeRecord, action: PlannedAction) -> Blocked | None:
    failed = failures(record, action.name, action.target, unprepared=True)
    if not failed:
        return None
    refused = failed[0].outcome == "refused"
    pause = pause_s(record.node, action.id, len(failed) + (SKIPPED if refused else 0))
    until = failed[0].ended + timedelta(seconds=pause)
    times = "once" if len(failed) == 1 else f"{len(failed)} times in a row"
    detail = f"{action.id} {'was refused' if refused else 'failed'} {times}" + (
        f" ({failed[0].detail})" if failed[0].detail else ""
    )
    return Blocked(BlockCode.BACKOFF, detail, until)


def _relapsed(
    record: NodeRecord, action: PlannedAction, drifted: Container[str], now: datetime, boot_id: str
) -> Blocked | None:
    """Make an action wait whose effect does not last: an hour after the second time, then four, a day at most."""
    if not action.because or any(path not in drifted for path in action.because):
        return None
    cause = ", ".join(action.because)
    done = _done_and_lost(record, action, cause, now - RELAPSE_WITHIN)
    if boot_id and spec_of(action.name).harmless:  # of the running system: no boot brings it into effect
        done = [attempt for attempt in done if attempt.boot_id in ("", boot_id)]
    if len(done) < RELAPSES:
        return None
    pause = min(HOUR_S * FACTOR ** (len(done) - RELAPSES), DAY_S)
    until = done[-1].ended + timedelta(seconds=pause)
    return Blocked(
        BlockCode.BACKOFF, f"{action.id} was done {len(done)} times in three days and does not hold: {cause}", until
    )


def _done_and_lost(record: NodeRecord, action: PlannedAction, cause: str, since: datetime) -> list[Attempt]:
    """Return the attempts that succeeded for this cause, without those whose effect another action of ours undid.

    Nor do those count that came before a hold which somebody has lifted since: it may be a new disk by now.
    """
    found: list[Attempt] = []
    in_effect = False  # whether the last attempt found is still in effect, as far as we know
    for attempt in record.since_release:
        if attempt.begun < since or attempt.outcome == "refused":
            continue
        if (attempt.action, attempt.target) == (action.name, action.target):
            if attempt.outcome == "done" and attempt.cause == cause != REMEDIATION:
                found.append(attempt)
                in_effect = True
        elif in_effect and action.name in spec_of(attempt.action).undoes:
            found.pop()
            in_effect = False
    return found
