"""The daemons and the clock of a running system, and the findings of DCGM's health watches."""

from __future__ import annotations

from typing import Final

from reconciler.lab.hardware.state import MachineState, of_nvidia
from reconciler.model.observed import AmdGpu, ClockState, Daemons, DcgmIncident

SYSTEMS: Final = ("PCIe system", "NVLINK system", "Memory system", "SM system", "Thermal system", "Power system")
_OFFSET_S = 0.000004127


def daemons(state: MachineState) -> Daemons:
    """Return the daemons. Boards of more than four GPUs have NVSwitches."""
    disk = state.disks.get(state.booted_disk or "")
    known = state.os is not None and disk is not None and "nvidia-fabricmanager" in disk.services
    runs = state.os is not None and bool(state.os.services_active.get("nvidia-fabricmanager"))
    return Daemons(4 if len(of_nvidia(state.gpus)) > 4 else 0, runs if known else None)


def amd_gpus(state: MachineState) -> tuple[AmdGpu, ...]:
    """Return the GPUs that amd-smi lists, with their errors since the driver was loaded."""
    there = [gpu for gpu in state.gpus if gpu.amd and not gpu.lost]
    return tuple(
        AmdGpu(gpu.index, 0, gpu.ecc_uncorrectable, gpu.ecc_deferred, gpu.pci, gpu.serial, gpu.name) for gpu in there
    )


def clock_state(state: MachineState) -> ClockState:
    fault = state.faults.get("clock")
    if fault is None:
        return ClockState(True, _OFFSET_S)
    return ClockState(True, float(fault["seconds"])) if fault["seconds"] else ClockState(False)


def dcgm_incidents(state: MachineState) -> tuple[DcgmIncident, ...]:
    fault = state.faults.get("dcgm")
    if fault is None:
        return ()
    text = f"Detected a fault of the {fault['system']} on GPU {fault['gpu']}."
    return (DcgmIncident(f"GPU {fault['gpu']}", str(fault["system"]), str(fault["health"]), text),)
