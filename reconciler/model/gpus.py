"""The GPUs as nvidia-smi describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reconciler.model.privacy import FreeText, Identifier, Privacy, PublicText


@dataclass(frozen=True, slots=True)
class MigDevice:
    gpu: int
    profile: PublicText  # "1g.10gb"
    uuid: Identifier


@dataclass(frozen=True, slots=True)
class GpuCells:
    """The state of a GPU as the driver reports it: cells of nvidia-smi -q -x that equal GPUs have in common.

    None: this driver has no such cell, or the cell is N/A. `unread`: cells that are there and held neither a value nor
    N/A ("ERR!", "Unknown Error", nothing), by the names of these fields and of those of `Gpu`.
    """

    recovery_action: PublicText | None = None  # "None"; from 570 on "Reset", "Reboot", "Drain P2P", "Drain and Reset"
    sram_threshold_exceeded: bool | None = None
    unrepairable_memory: bool | None = None  # from 590 on, as the two below
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    fabric_state: PublicText | None = None  # "Completed", "In Progress", "Not Started"
    fabric_status: Annotated[str | None, Privacy.FABRIC_STATUS] = None  # "Success", or the error
    fabric_health: FreeText | None = None  # "" or what is wrong: "bandwidth Degraded, route_unhealthy True"
    thermal_slowdown: bool | None = None  # by the hardware, now
    over_limit: bool | None = None  # hotter than where the hardware slows it, by its margin (T.Limit) to that
    power_brake: bool | None = None
    pcie_width: int | None = None  # lanes now
    pcie_width_max: int | None = None  # of this board in this slot
    pcie_gen: int | None = None  # idle GPUs lower it
    pcie_gen_max: int | None = None
    persistence: bool | None = None
    loaded: bool | None = None  # whether it works now: utilisation of BUSY_PERCENT and more
    unread: tuple[PublicText, ...] = ()


@dataclass(frozen=True, slots=True)
class SmiAnswer:
    """The end of nvidia-smi -q -x, and the GPUs that it counts and describes: a whole document can contradict both."""

    exit_status: int
    attached: int | None
    described: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One <gpu> of nvidia-smi -q -x. None: the cell was not a value ('N/A', '[GPU is lost]', ...)."""

    index: int
    pci: PublicText  # normalised: 8-digit domain, upper case
    uuid: Identifier | None
    name: PublicText | None
    serial: Identifier | None
    vbios: PublicText | None
    ecc_enabled: bool | None
    ecc_uncorrectable: int | None  # volatile: since the driver loaded
    remap_pending: bool | None
    remap_failed: bool | None
    mig_current: bool | None
    mig_pending: bool | None
    mig_devices: tuple[MigDevice, ...] = ()
    lost: bool = False
    cells: GpuCells = GpuCells()
    ecc_uncorrectable_ever: int | None = None  # aggregate: over the life of the board
    remapped_uncorrectable: int | None = None  # rows remapped for uncorrectable errors, over the life of the board
    pcie_replays: int | None = None  # since the driver loaded
