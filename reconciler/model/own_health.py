"""The health of drives, memory modules and links, as their own logs and counters tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.model.privacy import Identifier, PublicText, Unpublished

# Device -> counter -> its value. What is not there is zero.
Counters = Mapping[PublicText, Mapping[PublicText, int]]


@dataclass(frozen=True, slots=True)
class NvmeHealth:
    """A drive and its SMART log. `critical_warning` is None: the log could not be read."""

    device: Unpublished[PublicText]
    serial: Identifier | None
    model: Unpublished[PublicText | None]
    critical_warning: int | None
    media_errors: int | None
    percentage_used: int | None
    available_spare: int | None  # percent
    spare_threshold: int | None = None  # percent, below which the drive itself warns


@dataclass(frozen=True, slots=True)
class DiskHealth:
    """A SATA or SAS drive and what it says of itself. None: it does not say, or its log could not be read."""

    device: Unpublished[PublicText]
    serial: Identifier | None
    model: Unpublished[PublicText | None]
    passed: bool | None  # its own verdict
    reallocated: int | None = None  # sectors; of a SATA drive
    pending: int | None = None  # sectors that could not be read
    uncorrectable: int | None = None  # sectors that could not be read in a scan of its own


@dataclass(frozen=True, slots=True)
class DimmRecord:
    """Errors of a memory module that rasdaemon has recorded, of one kind and age. Its records outlive a boot.

    `this_boot`: whether they are of the present boot; None for corrected ones, which are recorded by the hour.
    """

    label: Unpublished[PublicText | None]  # of the slot, where the firmware tells
    place: Unpublished[PublicText]  # controller and layers of the kernel's driver: 2:0:0:-1
    kind: PublicText  # Corrected | Deferred | Uncorrected | Fatal
    hours_ago: int  # by the host's own clock
    this_boot: bool | None
    count: int


@dataclass(frozen=True, slots=True)
class DimmErrors:
    """A memory module with errors since the boot. `label`: of its slot, where the firmware tells."""

    place: Unpublished[PublicText]  # controller and module, as the kernel numbers them: mc0/dimm1
    label: Unpublished[PublicText | None]
    corrected: int
    uncorrected: int
