"""Decide whether a node's own data is saved, and whether it waits to be restored: our attempts are the evidence.

A backup counts until the node may have served again: until it was admitted, or has got our mark or was drained anew. It
counts for an hour, and until a boot: a drain takes pods away, and what else runs on the host goes on writing. An
installation that was begun may have wiped the disk, however it ended, so what was saved before it is to be restored.
So may a person, from the moment on that a node without a BMC is held for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from reconciler.model.backup import Saved, read_saved
from reconciler.model.desired import Desired
from reconciler.model.records import ATTEMPTS_KEPT, NodeRecord, isolated_for
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.record import is_admission

FRESH: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class DataStatus:
    """The backup since the node last served, and when it ended.

    `written`: the disk was, since then. `lost`: with it what was saved, which waits to be restored. `served`: the node
    was isolated in the meantime, which is done to nodes that serve: it may have newer data than what was saved.
    """

    saved: Saved | None = None
    at: datetime | None = None
    written: bool = False
    lost: bool = False
    served: bool = False


def data_status(record: NodeRecord) -> DataStatus:
    """Read from a node's attempts what became of its data."""
    status = DataStatus()
    for attempt in record.attempts:
        spec, done = spec_of(attempt.action), attempt.outcome == "done"
        if is_admission(attempt) or (spec.takes_out and done and not status.lost):
            status = DataStatus()
        elif spec.takes_out and done and isolated_for(attempt.cause):
            status = replace(status, served=True)
        elif attempt.action == "back_up" and done:
            saved = read_saved(attempt.detail)
            status = replace(status, saved=saved, at=attempt.ended_at or attempt.at) if saved is not None else status
        elif (spec.installs and attempt.outcome != "refused") or (attempt.action == "hold_for_reimage" and done):
            status = replace(status, written=True, lost=status.saved is not None)
        elif attempt.action == "restore_backup" and done:
            status = replace(status, lost=False)
        elif spec.boots and attempt.outcome != "refused" and not status.lost:
            status = replace(status, saved=None)
    return status


def assess_saved(
    builder: c.ConditionBuilder, desired: Desired, record: NodeRecord, now: datetime, *, unread: bool
) -> None:
    """Set the conditions of a node whose spec declares a backup. `unread`: its disk may be written unread."""
    backup = desired.profile.backup
    if backup is None:
        return
    status, named = data_status(record), ", ".join((*backup.paths, *backup.images))
    if why := _doubt(status, record, in_service=c.IN_SERVICE in builder.true):
        for condition in (c.BACKED_UP, c.RESTORED):
            builder.unknown[condition] = why
        return
    saved = status.saved
    fresh = saved is not None and saved.declared == backup.digest and not (status.at and now >= status.at + FRESH)
    nothing_to_save = unread or (status.written and saved is None)
    builder.set(c.BACKED_UP, status.lost or fresh or nothing_to_save, f"{named} is not saved")
    builder.set(c.RESTORED, not status.lost, f"{named} waits to be restored")


def _doubt(status: DataStatus, record: NodeRecord, *, in_service: bool) -> str:
    """Return why a person has to look before the disk is written or anything is restored; "" = there is no need."""
    until = "take `backup` out of the spec until it was admitted again"
    if status.lost and (in_service or status.served):
        snapshot = "" if status.saved is None else f" (snapshot {status.saved.snapshot})"
        return f"it served without what was saved before its disk was written{snapshot}: compare by hand, and {until}"
    if status.saved is None and len(record.attempts) >= ATTEMPTS_KEPT and not any(map(is_admission, record.attempts)):
        return (
            "too many attempts since it served last to tell what was saved: compare its data with the repository, and "
            f"{until}"
        )
    return ""
