"""The counters of errors that a running system shows: of its ports and PCI devices, and the driver's of slowed clocks.

A boot sets them back, as it loads the drivers anew. A healthy lab machine has none above zero.
"""

from __future__ import annotations

from typing import Final

from reconciler.lab.hardware.parts import rdma_ports
from reconciler.lab.hardware.slowness import rail
from reconciler.lab.hardware.state import GpuState, MachineState

# Files of hw_counters, which the adapter's driver keeps; the others of a port are those of IBTA, in counters.
OF_HARDWARE: Final = ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart")
OF_NVLINK: Final = ("crc", "replay", "recovery")
COUNTERS: Final = (
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "aer_corrected", "aer_nonfatal", "aer_fatal",
    "restarts", "carrier_downs", "fcs_errors", *OF_HARDWARE, *OF_NVLINK,
)  # fmt: skip
FIRST_TO_COUNT: Final = 595  # branch of the driver whose nvidia-smi tells for how long clocks were slowed


def error_counters(state: MachineState, now: float) -> dict[str, dict[str, int]]:
    """Return the counters of the kernel that are not zero, by device and counter."""
    faults = state.faults
    if not any(kind in faults for kind in ("cable", "flap", "error_counter")) or state.os is None:
        return {}
    found: dict[str, dict[str, int]] = {}
    booted = state.os.booted_at
    for at, nic in enumerate(rdma_ports(state)):
        link = rail(state, at)
        since = max(booted, link.since)
        garbled, downs = link.errors(now) - link.errors(since), link.downs(now) - link.downs(since)
        counts = {
            "link_downed": downs, "link_error_recovery": downs, "symbol_error": garbled,
            "port_rcv_errors": garbled // 3, "local_link_integrity_errors": garbled // 40,
        }  # fmt: skip
        if shown := {name: count for name, count in counts.items() if count}:
            found[f"{nic.name}/1"] = shown
    name, device, count = _of_fault(state, now)
    if count and name != "restarts" and name not in OF_NVLINK:
        found.setdefault(device, {})[name] = count
    return found


def nvlink_counters(state: MachineState, now: float) -> dict[str, dict[str, int]]:
    """Return the errors of NVLinks that are not zero, by link, as gpu2/link3."""
    name, device, count = _of_fault(state, now)
    return {device: {name: count}} if count and name in OF_NVLINK else {}


def daemon_restarts(state: MachineState, now: float) -> dict[str, dict[str, int]]:
    """Return how often systemd has started units anew, by unit."""
    name, device, count = _of_fault(state, now)
    return {device: {name: count}} if count and name == "restarts" else {}


def _of_fault(state: MachineState, now: float) -> tuple[str, str, int]:
    """Return counter, device and value of the fault error_counter since the boot."""
    fault = state.faults.get("error_counter")
    if fault is None or state.os is None:
        return "", "", 0
    seconds = now - max(state.os.booted_at, state.fault_since["error_counter"])
    return str(fault["counter"]), str(fault["device"]), int(float(fault["per_hour"]) * seconds / 3600.0)


def slowed_seconds(state: MachineState, now: float) -> dict[str, dict[str, int]]:
    """Return for how many seconds the hardware slowed each GPU, by PCI address; {} where the driver counts none."""
    disk = state.disks.get(state.booted_disk or "")
    if state.os is None or disk is None or not counts_slowed(disk.driver):
        return {}
    fault = state.faults.get("throttle", {})
    seconds = int(now - max(state.os.booted_at, state.fault_since["throttle"])) if fault else 0
    braked = seconds if fault.get("by") == "power_brake" else 0
    hot = {
        gpu.index for gpu in state.gpus if fault.get("by") == "thermal" and gpu.index == fault["gpu"] and _works(gpu)
    }
    return {
        gpu.pci: {"thermal_s": seconds if gpu.index in hot else 0, "power_brake_s": braked}
        for gpu in state.gpus
        if not gpu.lost
    }


def _works(gpu: GpuState) -> bool:
    """Return whether a GPU is under load: only then it gets hot."""
    return gpu.cells.get("loaded", "0 %") != "0 %"


def counts_slowed(driver: str) -> bool:
    branch = driver.split(".")[0]
    return branch.isdecimal() and int(branch) >= FIRST_TO_COUNT
