"""Heal faults by the right remedy alone: a restart of a service, a reset, a boot, power, mains.

A persistent fault comes back after any remedy.
"""

from __future__ import annotations

from typing import Final

from reconciler.lab.hardware import kernel_log
from reconciler.lab.hardware.state import GpuState, MachineState, OsState

LEVELS: Final = ("reset", "boot", "cold", "ac")  # each does what those before it do, and more
_FABRIC_MANAGER: Final = "nvidia-fabricmanager"
HOLDERS: Final = ("nvidia-dcgm", "nvidia-persistenced")  # they keep GPUs open
_TEXTS: Final = {
    119: "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL).",
    62: "Channel 0x00000004, ucode halt",
}


def show_xid(system: OsState, gpu: GpuState, code: int) -> None:
    system.kernel_log.append(kernel_log.xid(gpu, code, _TEXTS.get(code, "Unknown")))


def show_fabric(state: MachineState) -> None:
    for gpu in state.gpus:
        gpu.cells["fabric_state"] = "Not Started"


def boot(state: MachineState, *, cold: bool) -> None:
    """Heal what a boot heals; `state.mains_lost` tells whether the power was taken at the outlets before it."""
    level = "ac" if state.mains_lost else "cold" if cold else "boot"
    state.mains_lost = False
    _heal(state, level)
    _register(state)


def reset(state: MachineState, system: OsState, gpus: list[GpuState]) -> None:
    """Heal what a reset of these GPUs heals. What it does not heal is logged anew at once."""
    chosen = {gpu.index for gpu in gpus}
    for kind in ("ecc_errors", "gpu_cell"):
        fault = state.faults.get(kind)
        if fault is None or int(fault["gpu"]) not in chosen:
            continue
        gpu = state.gpus[int(fault["gpu"])]
        if kind == "gpu_cell":
            if (fault["cell"], fault["text"]) == ("recovery_action", "Reset") and not fault["persistent"]:
                del gpu.cells["recovery_action"], state.faults[kind]
        elif fault["persistent"]:
            gpu.ecc_uncorrectable, gpu.remap_pending = int(fault["count"]), True
            system.kernel_log += kernel_log.uncorrectable_ecc(gpu)
        else:
            del state.faults[kind]
    fault = state.faults.get("xid")
    if fault is not None and int(fault["gpu"]) in chosen:
        _heal(state, "reset")
        if "xid" in state.faults:
            show_xid(system, state.gpus[int(fault["gpu"])], int(fault["code"]))


def service_started(state: MachineState, name: str) -> None:
    if name == _FABRIC_MANAGER:
        _register(state)


def _heal(state: MachineState, level: str) -> None:
    fault = state.faults.get("xid")
    if fault is not None and not fault["persistent"] and LEVELS.index(level) >= LEVELS.index(str(fault["heals"])):
        del state.faults["xid"]


def _register(state: MachineState) -> None:
    """Let the fabric manager register the GPUs anew, which it does when it starts."""
    fault = state.faults.get("fabric_manager")
    if fault is not None and not fault["persistent"]:
        for gpu in state.gpus:
            gpu.cells.pop("fabric_state", None)
        del state.faults["fabric_manager"]
