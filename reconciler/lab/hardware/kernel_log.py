"""Kernel log lines as the NVIDIA driver prints them, without time stamps (as `journalctl -o cat` shows them)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconciler.lab.hardware.state import GpuState
from reconciler.model import gpu_reset

MMU_FAULT: Final = 31

# Kind of event -> (description, kernel line). Each names its own device.
EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "gpu_init_failed": ("00000000:1B:00.0", "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x24:0x65:1185)"),
    "pcie_fatal": (
        "00000000:5D:00.0",
        "pcieport 0000:58:01.0: AER: Uncorrectable (Fatal) error message received from 0000:5d:00.0",
    ),
    "memory_ue": ("MC0", "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)"),
    "machine_check": ("CPU 18", "[Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010091"),
    "nic_failed": (
        "00000000:5E:00.0",
        "mlx5_core 0000:5e:00.0: poll_health:174: device's health compromised - reached miss count.",
    ),
    "task_hung": ("nvidia-smi", "INFO: task nvidia-smi:41204 blocked for more than 362 seconds."),
    "fs_read_only": ("nvme1n1p1", "EXT4-fs (nvme1n1p1): Remounting filesystem read-only"),
    "nvme_timeout": ("nvme1", "nvme nvme1: I/O tag 713 (12c9) opcode 0x1 (I/O Cmd) QID 4 timeout, reset controller"),
    "md_degraded": ("md0", "md/raid1:md0: Disk failure on nvme1n1p2, disabling device."),
    "amd_uncorrectable": (
        "00000000:1B:00.0",
        "amdgpu 0000:1b:00.0: amdgpu: {4}socket: 0, die: 2, 1 new uncorrectable hardware errors detected in umc block",
    ),
    "amd_reset_failed": ("00000000:1B:00.0", "amdgpu 0000:1b:00.0: amdgpu: GPU reset end with ret = -110"),
    "amd_bad_pages": (
        "00000000:1B:00.0",
        "amdgpu 0000:1b:00.0: amdgpu: Saved bad pages 257 reaches threshold value 256",
    ),
    "amd_ring_timeout": (
        "00000000:1B:00.0",
        "amdgpu 0000:1b:00.0: amdgpu: ring sdma0 timeout, signaled seq=16060, emitted seq=16062",
    ),
    "nic_module": (
        "00000000:5E:00.0",
        "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, High Temperature",
    ),
}


def line_of(fault: Mapping[str, object]) -> str:
    """Return the line of a fault of kind kernel_event."""
    return str(fault["line"]) or EVENTS[str(fault["event"])][1]


def short_pci(pci: str) -> str:
    """Return nvidia-smi's PCI address "00000000:1B:00.0" as the kernel writes it in Xid lines, "0000:1b:00"."""
    domain, bus, device = pci.lower().split(":")
    return f"{domain[-4:]}:{bus}:{device.split('.')[0]}"


def driver_loaded(driver: str, switches: int) -> list[str]:
    if not driver:
        return []
    lines = [f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {driver}  Fri Feb 28 06:35:17 UTC 2025"]
    lines += [f"nvidia-nvswitch{at}: open (major=507)" for at in range(switches)]
    return lines


def _gpu_at(gpu: GpuState) -> list[str]:
    return [
        f"NVRM: GPU at PCI:{short_pci(gpu.pci)}: {gpu.uuid}",
        f"NVRM: GPU Board Serial Number: {gpu.serial}",
    ]


def _xid(gpu: GpuState, code: int, text: str) -> str:
    return f"NVRM: Xid (PCI:{short_pci(gpu.pci)}): {code}, pid='<unknown>', name=<unknown>, {text}"


def fallen_off_bus(gpu: GpuState) -> list[str]:
    return [
        *_gpu_at(gpu),
        _xid(gpu, 79, "GPU has fallen off the bus."),
        f"NVRM: GPU {short_pci(gpu.pci)}.0: GPU has fallen off the bus.",
    ]


def xid(gpu: GpuState, code: int, text: str) -> str:
    return _xid(gpu, code, text)


def mmu_fault(gpu: GpuState, uptime_s: float) -> str:
    """Return the line of an illegal access of a program, with its time: as two of them are bursts if they are apart."""
    text = "channel 0x0000001e, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_8 faulted @ 0x803c_cfe00000"
    return f"[{uptime_s:12.6f}] {_xid(gpu, MMU_FAULT, text)}"


def unanswered(lines: list[str]) -> list[str]:
    """Return the lines but for messages of GPUs that a reset has answered, by the lines that the reset left."""
    left = list(lines)
    for at, line in enumerate(lines):
        reset = gpu_reset.read(line)
        if reset is None or reset[0] != gpu_reset.DONE:
            continue
        begin = max(
            (before for before in range(at) if lines[before] == gpu_reset.line(gpu_reset.BEGINS, reset[1])), default=0
        )
        gone = tuple(f"Xid (PCI:{short_pci(pci)})" for pci in reset[1] if pci != gpu_reset.SWITCHES)
        left = [one for one in left if not any(word in one for word in gone) or one in lines[begin:]]
    return left


def uncorrectable_ecc(gpu: GpuState) -> list[str]:
    address = "0x12bac1c3e0"
    return [
        *_gpu_at(gpu),
        _xid(
            gpu,
            48,
            "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer "
            f"at physAddr {address} partition 2, subpartition 1.",
        ),
        _xid(gpu, 63, "Row Remapper: New row (0x00000012bac1c3e0) marked for remapping, reset gpu to activate."),
        _xid(gpu, 94, "Contained: SM (0x1). RST: No, D-RST: No"),
    ]


def nvlink_error(gpu: GpuState, link: int) -> list[str]:
    return [
        *_gpu_at(gpu),
        _xid(gpu, 74, f"NVLink: fatal error detected on link {link}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
    ]
