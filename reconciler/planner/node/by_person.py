"""Decide how far a node without a BMC is that a person reimages: held, reimaged, or neither.

Our own attempts tell since when a person may write its image. That it was written is seen on the host: it runs the
image that the spec names, in another boot than before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reconciler.diff.normalise import same
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE
from reconciler.model.observed import HostFacts
from reconciler.model.plan import NodePlan
from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import Concern
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.record import is_admission

HOLD: Final = "hold_for_reimage"
AWAIT: Final = "await_reimage"


def open_hold(record: NodeRecord) -> Attempt | None:
    """Return the attempt since which a person may write the image; None where nobody may, or it is taken in."""
    for attempt in reversed(record.attempts):
        if attempt.outcome != "done":
            continue
        if attempt.action == HOLD:
            return attempt
        if attempt.action == AWAIT or is_admission(attempt):
            return None
    return None


def was_not_written(record: NodeRecord, facts: HostFacts | None) -> bool:
    """Return whether the host goes on in the boot in which it was held: nobody has written its disk since."""
    hold = open_hold(record)
    return hold is not None and facts is not None and bool(hold.boot_id) and facts.boot_id == hold.boot_id


def without_hold(record: NodeRecord) -> NodeRecord:
    """Return the record as if the node had not been held: what was lost before that still is."""
    hold = open_hold(record)
    return replace(record, attempts=tuple([one for one in record.attempts if one is not hold]))


def assess_by_person(
    builder: c.ConditionBuilder, desired: Desired, record: NodeRecord, facts: HostFacts | None
) -> None:
    """Set the conditions of a node that a person reimages. An image that was written meanwhile is to be taken in."""
    if not desired.by_person:
        return
    if facts is None or facts.serial is None:
        builder.set(c.HOST_IDENTITY, None, "the host does not tell its serial number")
    elif desired.serial is not None:
        why = f"the host is serial {facts.serial}, the spec says {desired.serial}: is this the right machine?"
        builder.set(c.HOST_IDENTITY, same(facts.serial, desired.serial), why)
    hold = open_hold(record)
    builder.set(c.HELD, hold is not None)
    if hold is not None and c.IMAGE in builder.true and facts is not None and facts.boot_id != hold.boot_id:
        builder.true.discard(c.IMAGE)
        builder.because[c.IMAGE] = ("a person has written it, which is not taken in yet",)


def waits_for_person(desired: Desired, plan: NodePlan) -> str:
    """Return what a person has to do before the next action; "" where the next one is ours."""
    image = desired.profile.image
    if not plan.actions or not spec_of(plan.actions[0].name).by_person or image is None:
        return ""
    if not any(item.concern is Concern.IMAGE and item.kind in ACTIONABLE for item in plan.drift):
        return ""
    return (
        f"drained and held until a person reimages it: write image {image.name} {image.version} (sha256 "
        f"{image.sha256}) and boot it; it goes on by itself when its host answers with that image"
    )
