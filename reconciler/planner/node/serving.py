"""Decide whether the serving group of a node serves without it: our attempts are the evidence.

A group was told to serve without a node when `degrade_serving` was done, and to serve with it when `restore_serving`
was. What failed half-way may have told some of the nodes, so it counts as neither: the group is told again before the
node goes, and is told to serve with it where it stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciler.health.signals import Signal
from reconciler.health.table import Effect
from reconciler.model.desired import Desired
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.records import ATTEMPTS_KEPT, NodeRecord
from reconciler.model.serving import ITEM
from reconciler.model.vocab import Concern, Source
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.goals import failed_often
from reconciler.planner.node.record import is_admission
from reconciler.planner.node.saved import FRESH

SYNC: Final = "sync_serving"
DEGRADE: Final = "degrade_serving"
RESTORE: Final = "restore_serving"


@dataclass(frozen=True, slots=True)
class ServingStatus:
    """`without`: the group was told to serve without the node. `whole`: all that it was told was taken back.

    `served`: the node was in service, and was neither drained nor installed since. `copied`: when the others had got
    all that they need of its data, since it was last admitted.
    """

    without: bool = False
    whole: bool = True
    served: bool = False
    copied: datetime | None = None


def serving_status(record: NodeRecord) -> ServingStatus:
    """Read from a node's attempts what its serving group was told."""
    adopted = record.certificate is not None and record.certificate.adopted
    without, whole, served, known = False, True, adopted, False
    copied: datetime | None = None
    for attempt in record.attempts:
        if attempt.outcome == "refused":
            continue
        done = attempt.outcome == "done"
        if attempt.action in (DEGRADE, RESTORE):
            without, whole, known = attempt.action == DEGRADE and done, attempt.action == RESTORE and done, True
        elif is_admission(attempt):
            served, copied = True, None
        elif attempt.action == SYNC and done:
            copied = attempt.ended_at or attempt.at
        elif done and (spec_of(attempt.action).drains or spec_of(attempt.action).installs):
            served = False
    if not known and len(record.attempts) >= ATTEMPTS_KEPT:
        whole = False  # too many attempts to tell: a group that is told once more loses nothing
    return ServingStatus(without, whole, served, copied)


def assess_serving(
    builder: c.ConditionBuilder, desired: Desired, record: NodeRecord, signals: Iterable[Signal], now: datetime
) -> None:
    """Set the conditions of a node that serves in a group. One that serves nobody may go as it is.

    Of a host that does not answer nothing can be copied, and its group must not wait for that. No more must it for an
    ill one from which copying failed as often as it may, as its disk may be what ails it.
    """
    if desired.serving is None:
        return
    status = serving_status(record)
    takes_part = c.IN_SERVICE in builder.true or status.served
    others = ", ".join(desired.serving.others(desired.node))
    builder.set(c.SERVING_DEGRADED, status.without or not takes_part, f"{others} may not serve without it")
    builder.set(c.SERVING_RESTORED, status.whole, ITEM)
    if (sync := desired.serving.sync) is not None:
        fresh = status.copied is not None and now < status.copied + FRESH
        ill = any(signal.effect in (Effect.ISOLATES, Effect.REPAIRS) for signal in signals)
        lost = c.HOST_UP not in builder.true or (ill and failed_often(record, SYNC, "", now))
        needless = c.SERVING_DEGRADED in builder.true or lost
        builder.set(c.SERVING_SYNCED, fresh or needless, f"{others} may lack {sync.named}")


def serving_items(desired: Desired, state: c.Conditions) -> Iterable[DriftItem]:
    """Yield the drift of a node in service that its group was not told to serve with again."""
    if desired.serving is not None and c.IN_SERVICE in state.true and c.SERVING_RESTORED in state.because:
        group = ", ".join(desired.serving.group)
        yield DriftItem(
            desired.node, Concern.CLUSTER, ITEM, DriftClass.DRIFTED, f"{group} serve together", "they may not",
            source=Source.LEDGER,
        )  # fmt: skip
