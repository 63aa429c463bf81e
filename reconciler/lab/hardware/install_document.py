"""Read the document that an installer fetches (DESIGN 7.5) for one machine: the drive to write and its image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.lab.hardware.software import installed
from reconciler.lab.hardware.state import DiskImage, MachineState

FRESH_SERVICES = {"ssh": True, "containerd": True, "nvidia-fabricmanager": True, "nvidia-persistenced": True}
NOT_YET_JOINED = {"kubelet": False}  # a new image has no cluster credentials until the host joins


def read_document(document: Mapping[str, Any], state: MachineState) -> tuple[str, DiskImage]:
    """Return the serial of the drive to write, and its image. Raise ValueError when the document does not fit."""
    try:
        image, serial = document["image"], document["root_disk"]["serial"]
        contents = image["contents"]
        fields = {key: str(image[key]) for key in ("name", "version", "sha256")}
        kernel, driver = str(contents["kernel"]), str(contents["driver"])
    except (KeyError, TypeError) as missing:
        raise ValueError(f"the document lacks {missing}") from None
    drive = next((drive for drive in state.drives if drive.serial == serial), None)
    if drive is None:
        raise ValueError(f"no drive here has the serial {serial!r}; nothing was written")
    services = FRESH_SERVICES | NOT_YET_JOINED
    known = {name: services.get(name, False) for disk in state.disks.values() for name in disk.services}
    nonce = document.get("nonce")
    return drive.serial, DiskImage(
        image=fields["name"],
        version=fields["version"],
        sha256=fields["sha256"],
        root_disk=drive.serial,
        nonce=None if nonce is None else str(nonce),
        kernel=kernel,
        driver=driver,
        hostname=str(document.get("hostname") or "localhost"),
        services=services | known,
        software=installed(contents),
    )
