"""Say whether a node writes an image itself, into the slot that does not run, or needs the installer for it.

In place, a change of image takes one reboot, and no byte of the running system changes. It takes a system that is well
and trusted: what it writes is verified by a program that runs in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from reconciler.diff import normalise
from reconciler.health.signals import Signal
from reconciler.model.desired import Desired, DesiredImage
from reconciler.model.observed import HostFacts, RedfishInventory, Slot
from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import Provision
from reconciler.planner.node.disks import matching_drives
from reconciler.planner.node.possible import IN_PLACE, at
from reconciler.planner.node.record import is_admission


def why_installer(
    desired: Desired, facts: HostFacts | None, record: NodeRecord, signals: Sequence[Signal], tampered: str
) -> str | None:
    """Return why the installer is needed: "" where it is not, None where there is no other way."""
    image = desired.profile.image
    if image is None or image.layout is None:
        return None
    if not image.in_place:
        return "the image asks for it" + at(desired, "image.in_place")
    if desired.provision is Provision.BLANK:
        return f"provision: {Provision.BLANK}" + at(desired, "provision")
    if facts is None:
        return "no system answers"
    if facts.image is None or facts.image.slot is None:
        return "no slot of a layout runs"
    if signals or tampered:
        return "the node is not well: " + (tampered or signals[0].detail)
    attempt = _last_attempt(record)
    if attempt is not None and attempt.outcome == "started":
        return "" if attempt.target == IN_PLACE else "an install by it was begun"
    if why := _of_slot(desired, image, facts.image.slot):
        return why
    return "" if attempt is None or attempt.outcome == "done" else "the last attempt failed"


def fell_back(desired: Desired, facts: HostFacts | None, record: NodeRecord) -> str:
    """Return that the wanted image was proved here and did not come up later; "" if that is not so.

    Written anew, it would be proved again, and fail again when it boots the next time.
    """
    image, found = desired.profile.image, None if facts is None else facts.image
    if image is None or found is None or found.slot is None or found.slot.newer != f"{image.name} {image.version}":
        return ""
    tried = (one for one in reversed(record.attempts) if one.action == "reimage" and one.outcome != "refused")
    last = next(tried, None)
    if last is None or last.outcome != "done":
        return ""  # the attempt failed, which counts by itself
    return "" if record.is_seen_to(last) else found.fallback


def why_lost(desired: Desired, facts: HostFacts | None, found: RedfishInventory) -> str:
    """Return why an installer would refuse the disk, as what it is to keep would be lost; "" if that is not known.

    It is told of the disk that the system runs from, so it counts only where that is the one to be written.
    """
    image, runs = desired.profile.image, None if facts is None else facts.image
    if image is None or image.layout is None or not image.preserve or facts is None or runs is None or not runs.image:
        return ""
    rule, disk = desired.root_disk or image.root_disk, runs.booted_disk or runs.root_disk
    drives = () if rule is None else matching_drives(rule, found.drives or ())
    if disk is None or [normalise.text(drive.serial or "") for drive in drives] != [normalise.text(disk)]:
        return ""
    wanted = asdict(image.layout)
    if runs.slot is None:
        why = "" if "image.slot" in facts.unknown else "the disk has no layout"
    else:
        has = runs.slot.layout
        others = [name for name in wanted if name in has and has[name] != wanted[name]]
        why = f"the disk was laid out with another {' and '.join(others)}" if others else ""
    lost = f"{why}; {' and '.join(image.preserve)} would be lost" + at(desired, "image.preserve")
    return why and f"{lost}: save what is needed, and leave it out of `preserve` for one install"


def _of_slot(desired: Desired, image: DesiredImage, slot: Slot) -> str:
    assert image.layout is not None, "only an image with a layout has slots"
    wanted = asdict(image.layout)
    if differing := [name for name in wanted if slot.layout.get(name) != wanted[name]]:
        return f"the disk was laid out with another {' and '.join(differing)}" + at(desired, "image.layout")
    anew = [point for point in ("/state", *(["/data"] if image.layout.data else [])) if point not in image.preserve]
    if anew:
        return f"{' and '.join(anew)} would be made anew" + at(desired, "image.preserve")
    if slot.newer == f"{image.name} {image.version}":
        return f"{slot.newer} was installed and did not come up: slot {slot.name} runs"
    if slot.lacks:
        return f"the host lacks {', '.join(slot.lacks)}" + at(desired, "image.in_place")
    return ""


def _last_attempt(record: NodeRecord) -> Attempt | None:
    """Return the last attempt at this change: what failed in place is not tried so again."""
    for attempt in reversed(record.attempts):
        if is_admission(attempt):
            return None
        if attempt.action == "reimage" and attempt.outcome != "refused":
            return attempt
    return None
