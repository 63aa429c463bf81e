"""The answers of a host's own programs: about themselves, and about the hardware that they watch."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.privacy import FreeText, Identifier, PublicText, Unpublished


@dataclass(frozen=True, slots=True)
class Daemons:
    """The daemons that a GPU node needs, whatever the spec manages. Names are those of systemd's units."""

    nvswitches: int  # on the PCI bus
    fabric_manager: bool | None  # whether it runs; None: it has no unit here (a container may run it)


@dataclass(frozen=True, slots=True)
class ClockState:
    """The system's clock. None: the program that was asked does not tell."""

    synchronised: bool | None
    offset_s: float | None = None  # from the time that its sources agree on


@dataclass(frozen=True, slots=True)
class DcgmIncident:
    """One finding of DCGM's health watches. `health`: Warning | Failure."""

    entity: PublicText  # "GPU 3"
    system: PublicText  # "Memory system"
    health: PublicText
    text: Unpublished[FreeText] = ""


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """A GPU of AMD's, with the errors of memory that amd-smi counts since its driver was loaded."""

    index: int
    correctable: int | None
    uncorrectable: int | None
    deferred: int | None = None  # found and set aside, not yet used
    pci: Unpublished[PublicText | None] = None  # as nvidia-smi writes it: 00000000:1B:00.0
    serial: Identifier | None = None  # of the board, or else of the chip
    model: PublicText | None = None
