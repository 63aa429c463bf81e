"""The image that a host runs, and the slot that it runs from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.model.privacy import Identifier, PublicText


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of a layout that a system runs from, by its kernel's command line."""

    name: PublicText
    layout: Mapping[PublicText, int]  # sizes in bytes of the partitions, as they were installed; data: 1 or 0
    newer: PublicText | None  # image and version that were installed later, and are not what runs
    lacks: tuple[PublicText, ...]  # programs that writing the other slot from here takes


@dataclass(frozen=True, slots=True)
class ImageIdentity:
    """The record of the image that runs, with os-release as a second source. None: the record lacks the key.

    The record is /etc/reconciler/image.json, or that of the slot whose root was booted.
    """

    image: PublicText | None
    version: PublicText | None
    sha256: PublicText | None
    root_disk: Identifier | None  # serial of the disk that the installer wrote
    nonce: Identifier | None
    os_release_id: PublicText | None = None  # IMAGE_ID
    os_release_version: PublicText | None = None  # IMAGE_VERSION
    booted_disk: Identifier | None = None  # serial of the disk that / is on now (pitfall L1)
    slot: Slot | None = None  # None: the image has no layout, or it is not known what runs

    @property
    def fallback(self) -> str:
        """Return that what was installed last did not come up, and what runs instead; "" if that is not so."""
        if self.slot is None or self.slot.newer is None:
            return ""
        slot, runs = self.slot, f"{self.image} {self.version}"
        return f"{slot.newer} did not come up: the boot loader fell back to slot {slot.name}, {runs}"
