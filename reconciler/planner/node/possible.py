"""Say which actions a node's BMC can't do, from the spec and the inventory, before anything is done to the node.

Only what was read rules an action out: a BMC of which an ability is not known is asked when its turn comes. The
functions take the value paths that are to change, with IMAGE among them where an image is to be written: firmware lists
a disk only when a system is on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from reconciler.diff.boot_order import NoSuchEntry, options_of, resolve
from reconciler.model.abilities import FETCHES, ONLY_SENT, Abilities, Ability
from reconciler.model.boot_ways import choose, passed_over
from reconciler.model.cosign import read_bundle
from reconciler.model.desired import Desired
from reconciler.model.observed import RedfishInventory
from reconciler.model.vocab import Activation, VerifiedBy
from reconciler.planner.node.disks import no_single_match

Refusals = Mapping[str, str]  # by the target of an action, "" for one without: why this BMC can't do it
IMAGE: Final = "image"
IN_PLACE: Final = "slot"  # the target of a reimage that the running system does
_NOTHING: Final = Abilities()


def none(_desired: Desired, _found: RedfishInventory, _changes: Collection[str]) -> Refusals:
    return {}


def power(_desired: Desired, found: RedfishInventory, _changes: Collection[str]) -> Refusals:
    return _whole(_lack(found, Ability.POWER))


def mains(desired: Desired, _found: RedfishInventory, _changes: Collection[str]) -> Refusals:
    """Refuse before the drain what can't be done, or would cut off one that can't be: the spec alone tells outlets."""
    profile = desired.profile
    ladder = () if profile.remediation is None else profile.remediation.ladder
    asked = any(item.activation is Activation.AC_CYCLE for item in profile.firmware)
    if not asked and all(rung.action != "ac_cycle" for rung in ladder):
        return {}
    if not desired.outlets:
        return _whole("the spec names no `outlets` for it" + at(desired, "node"))
    return _whole(f"{_shared(desired)}, and {desired.uncut}; cut them off by hand" if desired.uncut else "")


def _shared(desired: Desired) -> str:
    return f"its outlets give {', '.join(desired.cut_with)} power, too{at(desired, 'outlets')}"


def bmc_reset(desired: Desired, found: RedfishInventory, _changes: Collection[str]) -> Refusals:
    if not any(item.activation is Activation.BMC_RESET for item in desired.profile.firmware):
        return {}
    return _whole(_lack(found, Ability.BMC_RESET))


def bios(desired: Desired, found: RedfishInventory, changes: Collection[str]) -> Refusals:
    return _whole("; ".join(_bios(desired, found, changes)))


def boot(desired: Desired, found: RedfishInventory, changes: Collection[str]) -> Refusals:
    return _whole("; ".join(_boot(desired, found, changes)))


def firmware(desired: Desired, found: RedfishInventory, changes: Collection[str]) -> Refusals:
    """Updateable is no reason: NVIDIA's boards bring in the firmware of such items with that of others."""
    lack, ways = _lack(found, Ability.FIRMWARE), (found.abilities or _NOTHING).firmware_ways
    only_sent = ways is not None and FETCHES not in ways
    refusals = {}
    for item in desired.profile.firmware:
        why = lack or (ONLY_SENT if only_sent and item.verified_by is VerifiedBy.BMC else "")
        if not why and item.activation is Activation.AC_CYCLE and desired.cut_with:
            why = f"{_shared(desired)}, and others are cut off for an illness alone: flash it by hand"
        if why and (path := f"firmware.{item.component}") in changes:
            refusals[item.component] = why + at(desired, path)
    return refusals


def image(desired: Desired, found: RedfishInventory, _changes: Collection[str]) -> Refusals:
    """An installer boots once, from off, by one of its ways, and writes to the one disk that the rule matches.

    The running system needs no more than the disk.
    """
    if desired.profile.image is None:
        return {}
    both = _image(desired, found)
    no_way = desired.profile.boot_ways and choose(desired, found.abilities) is None
    lacks = [passed_over(desired, found.abilities)] if no_way else []
    lacks += [why] if (why := _lack(found, Ability.POWER)) else []
    return _whole("; ".join([*lacks, *both])) | ({IN_PLACE: "; ".join(both)} if both else {})


def _image(desired: Desired, found: RedfishInventory) -> list[str]:
    image, why = desired.profile.image, []
    rule = desired.root_disk or (image.root_disk if image is not None else None)
    if rule is not None and found.drives and (other := no_single_match(rule, found.drives)):
        why.append(other + at(desired, "image.root_disk"))
    if image is not None and _is_cosigned(image.signature or ""):
        why.append("installers verify minisign signatures alone" + at(desired, "image.key"))
    return why


def trust(desired: Desired, found: RedfishInventory, _changes: Collection[str]) -> Refusals:
    """Components that are not listed rule nothing out: a GPU is missing while the machine is off."""
    declared = desired.profile.measurements
    lack = _lack(found, Ability.MEASUREMENTS)
    if declared is None or not declared.components or not lack:
        return {}
    return _whole(lack + at(desired, "measurements.components"))


def _is_cosigned(signature: str) -> bool:
    try:
        read_bundle(signature)
    except ValueError:
        return False
    return True


def at(desired: Desired, path: str) -> str:
    """Return where the spec sets a value, in brackets; "" if it does not say."""
    for table in (desired.provenance, desired.profile.provenance):
        if path in table:
            return f" ({table[path]})"
    return ""


def _bios(desired: Desired, found: RedfishInventory, changes: Collection[str]) -> Iterator[str]:
    lack = _lack(found, Ability.BIOS)
    limits = (found.abilities or _NOTHING).bios or {}
    for name, value in desired.profile.bios.items():
        why = lack or (f"BIOS {name} {refused}" if name in limits and (refused := limits[name].refuses(value)) else "")
        if why and f"bios.{name}" in changes:
            yield why + at(desired, f"bios.{name}")


def _boot(desired: Desired, found: RedfishInventory, changes: Collection[str]) -> Iterator[str]:
    if "boot.secure_boot" in changes and (why := _lack(found, Ability.SECURE_BOOT)):
        yield why + at(desired, "boot.secure_boot")
    if "boot.order" not in changes:
        return
    missing = "" if IMAGE in changes else missing_entry(desired, found)
    if why := missing or _lack(found, Ability.BOOT_ORDER):
        yield why + at(desired, "boot.order")


def missing_entry(desired: Desired, found: RedfishInventory) -> str:
    """Return which entry of the boot order the BMC lacks; "" if it has all, or that is not known."""
    order, options = desired.profile.boot_order, options_of(found)
    if order is None or options is None:
        return ""
    try:
        resolve(order, options)
    except NoSuchEntry as error:
        return "" if error.hidden else str(error)
    return ""


def _lack(found: RedfishInventory, ability: Ability) -> str:
    return (found.abilities or _NOTHING).why_not(ability)


def _whole(why: str) -> dict[str, str]:
    return {"": why} if why else {}
