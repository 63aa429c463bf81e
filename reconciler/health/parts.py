"""Signals of one part: a GPU, the RDMA ports, a drive. Each is the name of a signal with its evidence in words.

Some values are evidence under load alone: ASPM lowers the PCIe generation of an idle GPU, and an idle GPU always slows
its clocks. The PCIe width is the same in any state.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from reconciler.health.table import Effect, HealthTable
from reconciler.health.xids import signal_of
from reconciler.model.desired import DesiredInventory
from reconciler.model.gpus import Gpu, GpuCells
from reconciler.model.observed import DimmErrors, DimmRecord, DiskHealth, Link, NvmeHealth, Xid

NameAndDetail = tuple[str, str]

RDMA: Final = "infiniband"  # kind of Link, whatever its link layer
INFOROM_CORRUPT: Final = 14  # exit status of nvidia-smi
# Bits of NVMe's Critical Warning: spare 0x01, temperature 0x02; reliability, read-only, backup, memory region.
_HOT, _BROKEN = 0x02, 0x3C
# Boards that are shipped with ECC on; on others it is a matter of configuration.
_ECC_ON = re.compile(r"\b(A100|A800|A30|H100|H800|H200|H20|GH200|G?B[123]00)\b")

NARROW: Final = "pcie_narrow"
# Reports of a fabric that recovers by itself, and those that may come with them.
_RECOVERS: Final = frozenset({"route_recovery_in_progress True"})
_MOVING: Final = _RECOVERS | {"summary Limited Capacity"}

# Cells of Gpu and GpuCells -> the signals that are read from them.
GPU_SIGNALS: Final[Mapping[str, tuple[str, ...]]] = {
    "ecc_uncorrectable": ("ecc",),
    "remap_pending": ("row_remap_pending",),
    "remap_failed": ("row_remap_failed",),
    "ecc_enabled": ("ecc_disabled",),
    "ecc_uncorrectable_ever": ("ecc_ever",),
    "remapped_uncorrectable": ("rows_remapped",),
    "recovery_action": ("gpu_recovery",),
    "sram_threshold_exceeded": ("sram_threshold",),
    "unrepairable_memory": ("unrepairable_memory",),
    "channel_repair_pending": ("repair_pending",),
    "tpc_repair_pending": ("repair_pending",),
    "fabric_state": ("fabric",),
    "fabric_status": ("fabric",),
    "fabric_health": ("fabric", "fabric_recovers"),
    "thermal_slowdown": ("thermal_slowdown",),
    "over_limit": ("thermal_margin",),
    "power_brake": ("power_brake",),
    "pcie_width": ("pcie_width", "pcie_narrow"),
    "pcie_width_max": ("pcie_width", "pcie_narrow"),
    "pcie_gen": ("pcie_gen",),
    "pcie_gen_max": ("pcie_gen",),
    "pcie_replays": ("pcie_replays",),
    "persistence": ("persistence_off",),
}


def gpu_signals(gpu: Gpu, table: HealthTable) -> Iterator[NameAndDetail]:
    """Yield the signals of a GPU that is not lost, without those of its cells."""
    if gpu.ecc_uncorrectable:
        yield "ecc", f"{gpu.ecc_uncorrectable} uncorrectable ECC errors since the driver loaded"
    if gpu.remap_failed:
        yield "row_remap_failed", "row remapping failed"
    if gpu.remap_pending:
        yield "row_remap_pending", "a row remap waits for a reset"
    if gpu.ecc_enabled is False and _ECC_ON.search(gpu.name or ""):
        yield "ecc_disabled", "ECC is off"
    if gpu.ecc_uncorrectable_ever:
        yield "ecc_ever", f"{gpu.ecc_uncorrectable_ever} uncorrectable ECC errors in its life"
    if gpu.remapped_uncorrectable:
        yield "rows_remapped", f"{gpu.remapped_uncorrectable} rows are remapped for uncorrectable errors"
    if _replays_often(gpu, table):
        yield "pcie_replays", f"{gpu.pcie_replays} PCIe replays since the driver loaded"


def ill_gpus(gpus: Sequence[Gpu], xids: Sequence[Xid], table: HealthTable) -> tuple[Gpu, ...]:
    """Return the GPUs that show a signal which takes the node out, of their own or in the kernel log."""
    told = {(xid.device, signal_of(xid)) for xid in xids if not xid.switch}
    logged = {device for device, name in told if name and table.effect_of(name) is not Effect.REPORTS}
    return tuple([gpu for gpu in gpus if gpu.lost or gpu.pci in logged or _is_ill(gpu, table)])


def _is_ill(gpu: Gpu, table: HealthTable) -> bool:
    shown = (*gpu_signals(gpu, table), *cell_signals(gpu.cells))
    return any(table.effect_of(name) is not Effect.REPORTS for name, _ in shown)


def has_own_signals(gpu: Gpu, table: HealthTable) -> bool:
    """Return whether `gpu_signals` yields anything: a fast test, as nearly all GPUs are healthy."""
    return bool(
        gpu.ecc_uncorrectable
        or gpu.remap_failed
        or gpu.remap_pending
        or gpu.ecc_enabled is False
        or gpu.ecc_uncorrectable_ever
        or gpu.remapped_uncorrectable
        or _replays_often(gpu, table)
    )


def _replays_often(gpu: Gpu, table: HealthTable) -> bool:
    """Return whether it has replayed more since the driver loaded than training the link takes."""
    return bool(gpu.pcie_replays) and (gpu.pcie_replays or 0) >= table.threshold("pcie_replays")


@lru_cache(maxsize=4096)
def cell_signals(cells: GpuCells) -> tuple[NameAndDetail, ...]:
    return tuple(_cell_signals(cells))


def _cell_signals(cells: GpuCells) -> Iterator[NameAndDetail]:
    if cells.recovery_action not in (None, "None"):
        yield "gpu_recovery", f"the driver asks for: {cells.recovery_action}"
    if cells.sram_threshold_exceeded:
        yield "sram_threshold", "uncorrectable errors of its SRAM have exceeded the threshold"
    if cells.unrepairable_memory:
        yield "unrepairable_memory", "its memory can't be repaired"
    for name, waits in (("channel", cells.channel_repair_pending), ("TPC", cells.tpc_repair_pending)):
        if waits:
            yield "repair_pending", f"a {name} repair waits for a reset"
    yield from _of_fabric(cells)
    if cells.loaded and cells.thermal_slowdown:
        yield "thermal_slowdown", "the hardware slows its clocks under load, as it is too hot"
    if cells.over_limit:
        yield "thermal_margin", "it is hotter than where its hardware slows it: no margin (T.Limit) is left"
    if cells.loaded and cells.power_brake:
        yield "power_brake", "its power brake is on under load: see power supplies and PDU"
    if is_narrow(cells):
        yield NARROW, f"PCIe runs at {cells.pcie_width} of {cells.pcie_width_max} lanes"
    if cells.loaded and cells.pcie_gen and cells.pcie_gen_max and cells.pcie_gen < cells.pcie_gen_max:
        yield "pcie_gen", f"PCIe runs at generation {cells.pcie_gen} of {cells.pcie_gen_max} under load"
    if cells.persistence is False:
        yield "persistence_off", "persistence mode is off"


def _of_fabric(cells: GpuCells) -> Iterator[NameAndDetail]:
    """Yield the signal of the NVLink fabric. A fabric that is being set up ("In Progress") is no fault yet."""
    if (cells.fabric_state or "").lower() == "not started":
        yield "fabric", "it has not been registered with the NVLink fabric: see the fabric manager"
    elif (cells.fabric_state or "").lower() == "completed" and (cells.fabric_status or "Success") != "Success":
        yield "fabric", f"registration with the NVLink fabric ended with {cells.fabric_status}"
    if cells.fabric_health:
        reports = set(cells.fabric_health.split(", "))
        name = "fabric_recovers" if reports & _RECOVERS and reports <= _MOVING else "fabric"
        yield name, f"NVLink fabric: {cells.fabric_health}"


def is_narrow(cells: GpuCells) -> bool:
    return bool(cells.pcie_width and cells.pcie_width_max and cells.pcie_width < cells.pcie_width_max)


def narrower(gpus: Sequence[Gpu]) -> frozenset[int]:
    """Return the indexes of GPUs with fewer PCIe lanes than another GPU of their model on the node.

    The greatest width that nvidia-smi reports is the board's: it does not always know how many lanes the slot has.
    """
    widest: dict[str | None, int] = {}
    for gpu in gpus:
        widest[gpu.name] = max(widest.get(gpu.name, 0), gpu.cells.pcie_width or 0)
    return frozenset(
        gpu.index for gpu in gpus if is_narrow(gpu.cells) and (gpu.cells.pcie_width or 0) < widest[gpu.name]
    )


def port_signals(inventory: DesiredInventory, links: Sequence[Link]) -> Iterator[NameAndDetail]:
    ports = [link for link in links if link.kind == RDMA]
    wanted = inventory.rdma_ports
    up = [link for link in ports if link.up]
    known = len(up) + sum(link.up is None for link in ports)
    if wanted is not None and known < wanted:
        down = [link.name for link in ports if link.up is False]
        which = f"; down: {', '.join(down)}" if down else ""
        yield "port_missing", f"{len(up)} of {wanted} RDMA ports are up{which}"
    declared = inventory.rdma_rate_gbps
    usual = None if declared else _usual_rate(up)
    for link in up:
        if link.rate_gbps is None:
            continue
        if declared and link.rate_gbps < declared:
            yield "port_slow", f"RDMA port {link.name} runs at {link.rate_gbps:g} of {declared:g} Gb/s"
        elif usual is not None and link.rate_gbps < usual:
            seen = f"RDMA port {link.name} runs at {link.rate_gbps:g} Gb/s, all others at {usual:g}"
            yield "port_uneven", f"{seen}: hardware.rdmaRateGbps is not set"


def _usual_rate(up: Sequence[Link]) -> float | None:
    """Return the rate in Gb/s that all ports but one have; None without such a rate, as with ports of two kinds."""
    rates = [link.rate_gbps for link in up if link.rate_gbps is not None]
    if len(set(rates)) < 2:  # none is slower than another
        return None
    rate, count = Counter(rates).most_common(1)[0]
    return rate if count >= 2 and count == len(up) - 1 else None


def nvme_signals(drive: NvmeHealth, table: HealthTable) -> Iterator[NameAndDetail]:
    warning = drive.critical_warning or 0
    if warning & _BROKEN:
        yield "nvme_critical", f"critical warning {warning:#04x}: its reliability, memory backup or writing has failed"
    if warning & _HOT:
        yield "nvme_hot", f"critical warning {warning:#04x}: its temperature is out of bounds"
    if drive.percentage_used is not None and drive.percentage_used >= table.threshold("nvme_worn"):
        yield "nvme_worn", f"{drive.percentage_used} % of its rated writes are used up"
    if spare_is_low(drive, table):
        yield "nvme_spare", f"{drive.available_spare} % spare blocks are left"


def disk_signals(drive: DiskHealth, table: HealthTable) -> Iterator[NameAndDetail]:
    if drive.passed is False:
        yield "disk_failing", "its own verdict is that it fails"
    counts = ((drive.reallocated, "replaced"), (drive.pending, "can't be read"), (drive.uncorrectable, "uncorrectable"))
    bad = [f"{count} {words}" for count, words in counts if count and count >= table.threshold("disk_sectors")]
    if bad:
        yield "disk_sectors", f"sectors: {', '.join(bad)}"


def dimm_signals(dimm: DimmErrors, uptime_s: float | None, table: HealthTable) -> Iterator[NameAndDetail]:
    """Yield the signals of a module. Corrected errors are judged by their rate since the boot."""
    if dimm.uncorrected >= table.threshold("edac_ue"):
        yield "edac_ue", f"{dimm.uncorrected} uncorrectable errors since the boot"
    windows = None if uptime_s is None else max(1.0, uptime_s / table.window_s("edac_ce"))
    if windows is not None and dimm.corrected / windows >= table.threshold("edac_ce"):
        yield "edac_ce", f"{dimm.corrected} corrected errors since the boot"


def record_signals(records: Sequence[DimmRecord], table: HealthTable) -> Iterator[tuple[DimmRecord, NameAndDetail]]:
    """Yield the signals of rasdaemon's records by module: each name once, with one of the module's records.

    A module is told by label and place: labels may be missing, and places may be shared where firmware tells no slot.
    """
    rules = (
        ("ras_ue", ("Uncorrected", "Fatal"), True, "uncorrectable errors since the boot"),
        ("ras_ue_before", ("Uncorrected", "Fatal"), False, "uncorrectable errors before the boot"),
        ("ras_deferred", ("Deferred",), True, "deferred errors since the boot"),
        ("ras_ce", ("Corrected",), None, "corrected errors"),
    )
    for name, kinds, this_boot, words in rules:
        hours = table.window_s(name) / 3600.0 if table.rule_of(name).row.window else math.inf
        counts: dict[tuple[str | None, str], int] = {}
        last: dict[tuple[str | None, str], DimmRecord] = {}
        for one in records:
            if one.kind in kinds and one.this_boot is this_boot and one.hours_ago < hours:
                module = one.label, one.place
                counts[module] = counts.get(module, 0) + one.count
                last[module] = one if module not in last or one.hours_ago < last[module].hours_ago else last[module]
        for module, count in counts.items():
            if count >= table.threshold(name):
                when = f", the last {last[module].hours_ago} h ago" if last[module].hours_ago else ""
                yield last[module], (name, f"{count} {words}{when}, by rasdaemon")


def spare_is_low(drive: NvmeHealth, table: HealthTable) -> bool:
    least = table.threshold("nvme_spare") if drive.spare_threshold is None else drive.spare_threshold
    low = drive.available_spare is not None and drive.available_spare < least
    return low or bool((drive.critical_warning or 0) & 0x01)
