"""Decide whether a node's own data is saved, and whether it waits to be restored: our attempts are the evidence.

A backup counts until the node may have served again: until it was admitted, or has got our mark or was drained anew. An
installation that was begun may have wiped the disk, however it ended, so what was saved before it is to be restored.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.backup import Saved, read_saved
from reconciler.model.desired import Desired
from reconciler.model.records import ATTEMPTS_KEPT, NodeRecord
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.record import is_admission


@dataclass(frozen=True, slots=True)
class DataStatus:
    """The backup since the node last served; whether it waits to be restored, and whether the disk was written."""

    saved: Saved | None = None
    lost: bool = False
    written: bool = False


def data_status(record: NodeRecord) -> DataStatus:
    """Read from a node's attempts what became of its data."""
    status = DataStatus()
    for attempt in record.attempts:
        done = attempt.outcome == "done"
        if is_admission(attempt) or (spec_of(attempt.action).takes_out and done and not status.lost):
            status = DataStatus()
        elif attempt.action == "back_up" and done:
            status = DataStatus(read_saved(attempt.detail) or status.saved, status.lost, status.written)
        elif spec_of(attempt.action).installs and attempt.outcome != "refused":
            status = DataStatus(status.saved, status.saved is not None, written=True)
        elif attempt.action == "restore_backup" and done:
            status = DataStatus(status.saved, lost=False, written=status.written)
    return status


def assess_saved(builder: c.ConditionBuilder, desired: Desired, record: NodeRecord, *, unread: bool) -> None:
    """Set the conditions of a node whose spec declares a backup. `unread`: its disk may be written unread."""
    backup = desired.profile.backup
    if backup is None:
        return
    status = data_status(record)
    if status == DataStatus() and len(record.attempts) >= ATTEMPTS_KEPT and not any(map(is_admission, record.attempts)):
        way = "compare its data with the repository, and take `backup` out of the spec until it serves again"
        for condition in (c.BACKED_UP, c.RESTORED):
            builder.unknown[condition] = f"too many attempts since it served last to tell what was saved: {way}"
        return
    saved = status.saved
    nothing_to_save = unread or (status.written and saved is None)
    whole = status.lost or (saved is not None and saved.declared == backup.digest)
    named = ", ".join(backup.paths)
    builder.set(c.BACKED_UP, whole or nothing_to_save, f"{named} is not saved")
    builder.set(c.RESTORED, not status.lost, f"{named} waits to be restored")
