"""The records that installs leave of slots, and the root that a kernel is booted with."""

from __future__ import annotations

import json
from typing import Any

from reconciler.lab.hardware.state import DiskImage, MachineState


def installed_last(state: MachineState) -> DiskImage:
    """Return the image that was installed last on the disk that runs, whether it came up or not."""
    assert state.booted_disk is not None, "only a running system has files"
    running, idle = state.disks[state.booted_disk], state.idle_slots.get(state.booted_disk)
    return idle if idle is not None and idle.newest and not running.newest else running


def record_of(disk: DiskImage) -> dict[str, Any]:
    values = {
        "image": disk.image,
        "version": disk.version,
        "sha256": disk.sha256,
        "root_disk": disk.root_disk,
        "nonce": disk.nonce,
    }
    return values | ({"slot": disk.slot} if disk.slot else {})


def root_id(disk: DiskImage) -> str:
    """Return the id of the image's root, which its contents decide."""
    digits = (disk.sha256 + disk.image.encode().hex() + "0" * 32)[:32]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def command_line(disk: DiskImage) -> str:
    return f"root=PARTUUID={root_id(disk)} ro quiet\n"


def files(state: MachineState) -> dict[str, str]:
    """Return the records of the slots by path, as the running system has them."""
    assert state.booted_disk is not None, "only a running system has files"
    found = (state.disks[state.booted_disk], state.idle_slots.get(state.booted_disk))
    return {
        f"/etc/reconciler/slot-{disk.slot}.json": json.dumps(
            record_of(disk) | {"root": root_id(disk), "layout": disk.layout}, indent=2
        )
        + "\n"
        for disk in found
        if disk is not None and disk.slot
    }
