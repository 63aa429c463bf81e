"""Decide what can be destroyed on a node that leaves the fleet for good, and what was destroyed already.

What an attempt of ours proved stays true until the node is installed or serves again. A drive is known by its serial
number alone, compared as it is: nothing here matches by model, size or place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from reconciler.diff.normalise import text
from reconciler.model.boot_ways import choose
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, HostFacts, Observed, RedfishInventory
from reconciler.model.plan import BlockCode, Blocked
from reconciler.model.records import FLEET, TOMBSTONE, Hold, NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.planner.node import conditions as c
from reconciler.planner.node.corroboration import canonical_uuid
from reconciler.planner.node.holds import Holds, is_active
from reconciler.planner.node.record import is_done_since_service

# Attributes by which a BIOS clears its TPM at the next POST, as NVIDIA's libredfish sets them: Dell, HPE, Lenovo. What
# Supermicro calls it begins with PendingOperation, followed by digits that differ from board to board.
_CLEARS: Final[Mapping[str, str]] = {
    "Tpm2Hierarchy": "Clear",
    "Tpm2Operation": "Clear",
    "TrustedComputingGroup_DeviceOperation": "Clear",
}
_PREFIX, _WORD = "PendingOperation", "TPM Clear"
_WAY_OUT = (
    "erase it with the vendor's tools, or pull it, and take its serial number out of erase.serials: then a new plan"
)


@dataclass(frozen=True, slots=True)
class Leaving:
    """The losses that are left to a decommissioned node, and the way to each.

    `drives`: all that are declared. `offline`: those that no running system can erase, since it is on them, or none
    runs: our installer does where it `boots`, or else the BMC. `impossible`: why a drive can't be erased. `kept`:
    drives that the machine has and nobody declared. `no_tpm`: why its TPM can't be cleared; "" if it can.
    """

    drives: tuple[str, ...] = ()
    offline: frozenset[str] = frozenset()
    boots: bool = False
    impossible: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    no_tpm: str = ""

    def key(self) -> tuple[object, ...]:
        return self.drives, self.offline, self.boots, tuple(self.impossible.items()), self.kept, self.no_tpm

    @property
    def sentence(self) -> str:
        kept = f"; drives that nobody declared stay as they are: {', '.join(self.kept)}" if self.kept else ""
        tpm = f"; its TPM can't be cleared: {self.no_tpm}" if self.no_tpm else ""
        return f"to leave the fleet for good: this needs `apply --plan` and a typed confirmation{kept}{tpm}"


def assess_leaving(
    builder: c.ConditionBuilder, desired: Desired, observed: Observed, record: NodeRecord, *, clustered: bool
) -> Leaving | None:
    """Set the conditions of a decommissioned node. None: it is none."""
    if desired.state is not NodeState.DECOMMISSIONED:
        return None
    inventory = observed.inventory.value if isinstance(observed.inventory, Answered) else None
    facts = observed.host.value if isinstance(observed.host, Answered) else None
    if not clustered:
        builder.set(c.LEFT, True)
    elif isinstance(observed.member, Answered):
        builder.set(c.LEFT, observed.member.value is None, "its node object is still in the cluster")
    else:
        builder.unknown[c.LEFT] = f"cluster {observed.member.why}"
    builder.set(c.REVOKED, is_done_since_service(record, "revoke"), "what it was trusted for still counts")
    if c.POWER_ON in builder.unknown:
        builder.unknown[c.OFF] = builder.unknown[c.POWER_ON]
    else:
        builder.set(c.OFF, c.POWER_ON not in builder.true, "it is on")
    builder.because[c.BURIED] = ("its serial number has no tombstone yet",)
    no_tpm = _tpm(builder, desired, inventory, record)
    left = [serial for serial in desired.erase if not is_done_since_service(record, "erase", serial)]
    for serial in desired.erase:
        builder.set(c.erased(serial), serial not in left, f"erase.serials names {serial}")
    boots = inventory is not None and choose(desired, inventory.abilities) is not None
    offline, impossible = _ways(builder, left, inventory, facts, boots=boots)
    found = sorted(_found(inventory, facts) - set(desired.erase))
    return Leaving(desired.erase, offline, boots, impossible, tuple(found), no_tpm)


def _found(inventory: RedfishInventory | None, facts: HostFacts | None) -> set[str]:
    """Return the serial numbers of all drives that BMC or host list."""
    listed = [drive.serial for drive in (inventory.drives if inventory is not None else None) or ()]
    listed += [drive.serial for drive in (facts.nvme if facts is not None else None) or ()]
    return {serial for serial in listed if serial is not None}


def _ways(
    builder: c.ConditionBuilder,
    left: Collection[str],
    inventory: RedfishInventory | None,
    facts: HostFacts | None,
    *,
    boots: bool,
) -> tuple[frozenset[str], dict[str, str]]:
    """Return the drives that no running system can erase, and why others can't be erased; the rest is unknown.

    `boots`: whether our installer can be booted, which erases any NVMe or SATA drive of the machine.
    """
    if not left:
        return frozenset(), {}
    offline, impossible = set(), {}
    found = _found(inventory, facts)
    drives = {drive.serial: drive for drive in (inventory.drives if inventory is not None else None) or ()}
    root = facts.image.booted_disk if facts is not None and facts.image is not None else None
    dead = facts is None and c.HOST_UP not in builder.true and (boots or c.POWER_ON in builder.true)
    for serial in left:
        if inventory is None or (inventory.drives is None and serial not in found):
            builder.because.pop(c.erased(serial), None)
            builder.unknown[c.erased(serial)] = "the BMC does not list the drives"
        elif serial not in found:
            listed = ", ".join(sorted(found)) or "none"
            impossible[serial] = f"no drive has the serial number {serial}; found: {listed}"
        elif serial == root or dead:
            offline.add(serial)
            if boots:
                continue
            if serial not in drives or not drives[serial].erasable:
                why = "the running system is on it" if serial == root else "no system runs that could erase it"
                no_boot = "no installer can be booted, and the BMC offers no Drive.SecureErase for it"
                impossible[serial] = f"{why}, {no_boot}: {_WAY_OUT}"
    return frozenset(offline), impossible


def _tpm(builder: c.ConditionBuilder, desired: Desired, inventory: RedfishInventory | None, record: NodeRecord) -> str:
    if is_done_since_service(record, "clear_tpm", desired.serial or ""):
        builder.set(c.TPM, True)
        return ""
    if inventory is None:
        builder.unknown[c.TPM] = "the BMC does not give its inventory"
        return ""
    if tpm_attribute(inventory) is None:
        return "no BIOS attribute that is known to clear it; do it in the firmware's setup"
    builder.because[c.TPM] = ("its TPM still holds keys",)
    return ""


def tpm_attribute(inventory: RedfishInventory) -> tuple[str, str] | None:
    """Return the BIOS attribute that clears the TPM at the next POST, and the value to set; None where none is."""
    limits = (inventory.abilities.bios if inventory.abilities is not None else None) or {}
    for name in sorted(inventory.bios or {}):
        word = _CLEARS.get(name) or (_WORD if name.startswith(_PREFIX) else None)
        if word is not None and not (name in limits and limits[name].refuses(word)):
            return name, word
    return None


# --- the tombstone ---------------------------------------------------------------------------------------------------


def tombstones_of(serials: Iterable[str | None], uuids: Iterable[str | None]) -> tuple[str, ...]:
    """Return the subjects of the holds that keep a machine with one of these from coming back.

    A machine may be declared by its UUID alone, whose bytes BMC and host may order differently.
    """
    found = [text(serial) for serial in serials if serial]
    found += [f"uuid/{canonical_uuid(uuid)}" for uuid in uuids if uuid]
    return tuple(dict.fromkeys(TOMBSTONE + name for name in found))


def buried(desired: Desired, record: NodeRecord, holds: Holds, now: datetime) -> Blocked | None:
    """Return why nothing is done to a machine that was decommissioned, under whatever name the spec has it now."""
    for subject in tombstones(desired, record):
        for hold in holds.get(subject, ()):
            if is_active(hold, now) and isinstance(hold, Hold):
                way_back = f"`reconciler release {subject}` is the consent to take the machine back"
                detail = f"decommissioned on {hold.since:%Y-%m-%d} by {hold.owner}: {hold.reason} ({way_back})"
                return Blocked(BlockCode.DECOMMISSIONED, detail)
    return None


def tombstones(desired: Desired, record: NodeRecord) -> tuple[str, ...]:
    """Return the tombstones that count for a node: by its UUID alone where it has no serial number.

    Boards of some makers share one UUID; a machine with a serial number of its own is not the one that left.
    """
    serials = (desired.serial, record.serial)
    return tombstones_of(serials, () if any(serials) else (desired.uuid, record.uuid))


def subjects(desired: Desired, record: NodeRecord) -> tuple[str, ...]:
    """Return the subjects of all holds that concern this node alone, its pool or the fleet."""
    return (FLEET, f"pool/{desired.pool}", desired.node, *tombstones(desired, record))
