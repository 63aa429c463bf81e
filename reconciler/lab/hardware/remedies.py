"""Heal faults by the right remedy alone: a restart of a service, a reset, a boot, power, mains, a new system.

A persistent fault comes back after any remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.lab.hardware import kernel_log
from reconciler.lab.hardware.state import GpuState, MachineState, OsState

LEVELS: Final = ("reset", "boot", "cold", "ac")  # each does what those before it do, and more
INSTALL: Final = "install"  # of a new system, which does what none of them does
_FABRIC_MANAGER: Final = "nvidia-fabricmanager"
HOLDERS: Final = ("nvidia-dcgm", "nvidia-persistenced")  # they keep GPUs open
_TEXTS: Final = {
    119: "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL).",
    62: "Channel 0x00000004, ucode halt",
    145: "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
}


def show_xid(system: OsState, gpu: GpuState, code: int) -> None:
    system.kernel_log.append(kernel_log.xid(gpu, code, _TEXTS.get(code, "Unknown")))


def show_fabric(state: MachineState) -> None:
    for gpu in state.gpus:
        gpu.cells["fabric_state"] = "Not Started"


def ends(fault: Mapping[str, Any], level: str) -> bool:
    """Return whether a remedy of this level, or INSTALL, ends a fault that names the mildest one that does."""
    heals = str(fault["heals"])
    if not heals or fault.get("persistent") or INSTALL in (heals, level):
        return bool(heals) and heals == level and not fault.get("persistent")
    return LEVELS.index(level) >= LEVELS.index(heals)


def ended(state: MachineState, level: str) -> list[str]:
    """Return the faults that a remedy ends because they name it."""
    return [kind for kind, fault in state.faults.items() if ends(fault, level)]


def boot_level(state: MachineState, *, cold: bool) -> str:
    """Return the level of a boot; `state.mains_lost` tells whether the power was taken at the outlets before it."""
    level = "ac" if state.mains_lost else "cold" if cold else "boot"
    state.mains_lost = False
    return level


def reset(state: MachineState, system: OsState, gpus: list[GpuState]) -> None:
    """Heal what a reset of these GPUs heals. What it does not heal is logged anew at once."""
    chosen = {gpu.index for gpu in gpus}
    for kind in ("ecc_errors", "gpu_cell", "xid"):
        fault = state.faults.get(kind)
        if fault is None or int(fault["gpu"]) not in chosen:
            continue
        gpu = state.gpus[int(fault["gpu"])]
        if _ended_by_reset(kind, fault):
            if kind == "gpu_cell":
                gpu.cells.pop(str(fault["cell"]), None)
            del state.faults[kind]
        elif kind == "ecc_errors":
            show_ecc(system, gpu, fault)
        elif kind == "xid":
            show_xid(system, gpu, int(fault["code"]))


def show_ecc(system: OsState, gpu: GpuState, fault: Mapping[str, Any]) -> None:
    """Count errors of memory. NVIDIA's driver logs them, and a row waits to be remapped; AMD's retires pages itself."""
    gpu.ecc_uncorrectable = int(fault["count"])
    if gpu.amd:
        gpu.ecc_deferred = int(fault["deferred"])
        return
    gpu.remap_pending = True
    system.kernel_log += kernel_log.uncorrectable_ecc(gpu)


def clear_ecc(gpu: GpuState) -> None:
    gpu.ecc_uncorrectable, gpu.ecc_deferred, gpu.remap_pending = 0, 0, False


def _ended_by_reset(kind: str, fault: Mapping[str, Any]) -> bool:
    if fault["heals"] or fault["persistent"]:
        return ends(fault, "reset")
    return kind == "ecc_errors" or (fault["cell"], fault["text"]) == ("recovery_action", "Reset")


def service_started(state: MachineState, name: str) -> None:
    if name == _FABRIC_MANAGER:
        register(state)


def register(state: MachineState) -> None:
    """Let the fabric manager register the GPUs anew, which it does when it starts."""
    fault = state.faults.get("fabric_manager")
    if fault is not None and not fault["persistent"] and not fault["heals"]:
        for gpu in state.gpus:
            gpu.cells.pop("fabric_state", None)
        del state.faults["fabric_manager"]
