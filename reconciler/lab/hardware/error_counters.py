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
OF_DCGM: Final = ("dcgm_202", "dcgm_310", "dcgm_1209", "dcgm_1212")  # those of slowed clocks follow the fault throttle
_ELSEWHERE: Final = ("restarts", *OF_NVLINK, *OF_DCGM)  # not the kernel's
COUNTERS: Final = (
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "aer_corrected", "aer_nonfatal", "aer_fatal",
    "restarts", "carrier_downs", "fcs_errors", "fec_uncorrected", "module_hot", "module_shorted",
    *OF_HARDWARE, *OF_NVLINK, *OF_DCGM,
)  # fmt: skip
_TRAINED_AGAIN: Final = 3  # times that a port with a dim module goes down in a boot before it carries anything
FIRST_TO_COUNT: Final = 595  # branch of the driver whose nvidia-smi tells for how long clocks were slowed


def error_counters(state: MachineState, now: float) -> dict[str, dict[str, int]]:
    """Return the counters of the kernel that are not zero, by device and counter."""
    faults = state.faults
    if not any(kind in faults for kind in ("cable", "flap", "error_counter", "optic")) or state.os is None:
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
    if optic := state.faults.get("optic"):
        hours = (now - max(booted, state.fault_since["optic"])) / 3600.0
        found[str(optic["interface"])] = {"carrier_downs": _TRAINED_AGAIN + int(float(optic["per_hour"]) * hours)}
    name, device, count = _of_fault(state, now)
    if count and name not in _ELSEWHERE:
        found.setdefault(device, {})[name] = count
    return found


def module_alarms(state: MachineState) -> dict[str, tuple[str, ...]]:
    """Return the alarms of modules, by interface: of one that is dim, whose port goes down more than twice a boot."""
    optic = state.faults.get("optic")
    return {str(optic["interface"]): (str(optic["alarm"]),)} if optic else {}


def nvlink_counters(state: MachineState, now: float) -> dict[str, dict[str, int]]:
    """Return the errors of NVLinks that are not zero, by link, as gpu2/link3."""
    name, device, count = _of_fault(state, now)
    return {device: {name: count}} if count and name in OF_NVLINK else {}


def dcgm_counters(state: MachineState, now: float) -> dict[str, dict[str, int]]:
    """Return the fields of DCGM that are not zero, by GPU, as gpu2: {dcgm_310: 7}. Times are in nanoseconds."""
    found: dict[str, dict[str, int]] = {}
    for gpu in state.gpus if "throttle" in state.faults else ():
        if gpu.lost:
            continue
        slowed = {"dcgm_241": _slowed(state, gpu, "thermal", now), "dcgm_1424": _slowed(state, gpu, "power_brake", now)}
        if shown := {name: seconds * 1_000_000_000 for name, seconds in slowed.items() if seconds}:
            found[f"gpu{gpu.index}"] = shown
    name, device, count = _of_fault(state, now)
    if count and name in OF_DCGM and device not in {f"gpu{gpu.index}" for gpu in state.gpus if gpu.lost}:
        found.setdefault(device, {})[name] = count
    return found


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
    return {
        gpu.pci: {
            "thermal_s": _slowed(state, gpu, "thermal", now),
            "power_brake_s": _slowed(state, gpu, "power_brake", now),
        }
        for gpu in state.gpus
        if not gpu.lost
    }


def _slowed(state: MachineState, gpu: GpuState, by: str, now: float) -> int:
    """Return for how many seconds since the boot the fault throttle has slowed a GPU: one by heat, all by the brake."""
    fault = state.faults.get("throttle", {})
    if (
        state.os is None
        or fault.get("by") != by
        or (by == "thermal" and not (gpu.index == fault["gpu"] and _works(gpu)))
    ):
        return 0
    return int(now - max(state.os.booted_at, state.fault_since["throttle"]))


def _works(gpu: GpuState) -> bool:
    """Return whether a GPU is under load: only then it gets hot."""
    return gpu.cells.get("loaded", "0 %") != "0 %"


def counts_slowed(driver: str) -> bool:
    branch = driver.split(".")[0]
    return branch.isdecimal() and int(branch) >= FIRST_TO_COUNT
