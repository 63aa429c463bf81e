"""Faults of parts: how the BMC reports parts under the fault `failed_part`, and faults of ports and drives."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from reconciler.lab.hardware.state import DriveState, MachineState, NicState
from reconciler.model.observed import DimmErrors, DimmRecord

FAILED = "failed_part"
PARTS = ("psu", "fan", "drive", "dimm", "leak", "nic", "processor", "board", "sensor")
HOW = ("critical", "missing", "logged", "predicted")
_FAILS = {
    "critical": ("psu", "fan", "leak", "drive", "dimm", "board", "sensor"),
    "missing": ("drive", "dimm", "nic", "processor"),
    "logged": ("dimm",),
    "predicted": ("drive",),
}
HOT_PLUGGED = ("psu", "fan", "drive")
SUPPLIES, FANS, DETECTORS = 6, 10, 2
MAX_RECORDS = 512  # of the BMC's log, which drops its oldest entries then


def _failure(state: MachineState, part: str, index: int) -> str | None:
    """Return how a part fails (one of HOW), or None when the fault is not on it."""
    fault = state.faults.get(FAILED)
    found = fault is not None and (fault["part"], fault["index"]) == (part, index)
    return str(fault["how"]) if fault is not None and found else None


def critical(state: MachineState, part: str, index: int) -> bool:
    return _failure(state, part, index) == "critical"


def missing(state: MachineState, part: str, index: int) -> bool:
    return _failure(state, part, index) == "missing"


def predicted(state: MachineState, part: str, index: int) -> bool:
    return _failure(state, part, index) == "predicted"


def dimm_serial(state: MachineState, slot: int) -> str:
    """Return the serial number of the DIMM in a slot, counted from 1."""
    return f"80CE{zlib.crc32(state.serial.encode()):08X}{slot + 0x100 * state.swapped.get(f'dimm/{slot - 1}', 0):06X}"


def supply_serial(state: MachineState, index: int) -> str:
    swapped = state.swapped.get(f"psu/{index}", 0)
    return f"P3K6{zlib.crc32(state.serial.encode()):08X}{index + 0x100 * swapped:04X}"


def swap(state: MachineState, fault: Mapping[str, Any]) -> None:
    """Have a technician swap the part that failed, and clear the log of the BMC. Drives keep their serial numbers."""
    if fault["part"] != "drive":
        _count(state, str(fault["part"]), int(fault["index"]))
    state.events.clear()


def _count(state: MachineState, part: str, index: int) -> int:
    name = f"{part}/{index}"
    state.swapped[name] = state.swapped.get(name, 0) + 1
    return state.swapped[name]


def exchange(state: MachineState, part: str, index: int) -> None:
    """Put another part in place of one, which is well. Raise ValueError where the machine has no such part."""
    counts = {
        "psu": SUPPLIES, "fan": FANS, "drive": len(state.drives), "dimm": state.dimms, "gpu": len(state.gpus),
        "nic": len(state.nics), "mainboard": 1,
    }  # fmt: skip
    if part not in counts or not 0 <= index < counts[part]:
        had = ", ".join(f"{number} {name}" for name, number in counts.items())
        raise ValueError(f"{state.name} has no {part} {index}; it has {had}, each counted from 0")
    if part in HOT_PLUGGED or state.power == "off":
        number = _count(state, part, index)
    else:
        raise ValueError(f"{state.name} is on: a {part} is exchanged while the machine is off")
    if part == "mainboard":  # a technician writes the old serial number into it, and no UUID
        state.uuid = f"b0a2d{number:03x}{state.uuid[8:]}"
    elif part == "gpu":
        gpu = state.gpus[index]
        gpu.serial, gpu.uuid = f"{gpu.serial.partition('-')[0]}-{number}", f"{gpu.uuid[:-2]}{number:02x}"
        gpu.ecc_uncorrectable, gpu.remap_pending, gpu.remap_failed, gpu.lost = 0, False, False, False
        gpu.ecc_deferred = 0
        gpu.nvlinks_down = gpu.nvlinks_slow = 0
        gpu.cells.clear()
    elif part == "drive":
        drive = state.drives[index]
        state.disks.pop(drive.serial, None)
        state.idle_slots.pop(drive.serial, None)
        drive.serial, drive.wwn = f"{drive.serial.partition('-R')[0]}-R{number}", f"{drive.wwn[:-2]}{number:02x}"
        drive.holds, drive.struck, drive.smart = False, False, True
        drive.media_errors, drive.percentage_used, drive.available_spare, drive.critical_warning = 0, 0, 100, 0
    elif part == "nic":
        nic = state.nics[index]
        nic.mac, nic.up, nic.slow_gbps, nic.struck = f"{nic.mac[:-2]}{0xE0 + number:02x}", True, 0.0, False


def of_part(kind: str, parameters: Mapping[str, Any], part: str, index: int) -> bool:
    """Return whether a fault is one of this part, so that it goes with it."""
    if kind == FAILED:
        return (parameters["part"], parameters["index"]) == (part, index)
    return part in ("gpu", "drive") and part in parameters and int(parameters[part]) == index


def listed_drives(state: MachineState) -> list[DriveState]:
    return [drive for at, drive in enumerate(state.drives) if not missing(state, "drive", at)]


def listed_nics(state: MachineState) -> list[NicState]:
    return [nic for at, nic in enumerate(state.nics) if nic.listed and not missing(state, "nic", at)]


def processors(state: MachineState) -> int:
    return sum(not missing(state, "processor", at) for at in range(state.processors))


def inlet(state: MachineState) -> tuple[float, bool]:
    """Return the temperature at the inlet in degrees Celsius, and whether its sensor calls that critical."""
    hot = critical(state, "sensor", 0)
    return (47.0 if hot else 23.0), hot


def dimm_errors(state: MachineState) -> tuple[DimmErrors, ...]:
    """Return the errors that EDAC has counted, of two modules a channel, as the kernel names them (mc0/dimm0)."""
    fault = state.faults.get("dimm_errors")
    if fault is None:
        return ()
    at = int(fault["dimm"])
    label = f"CPU_SrcID#{at // 16}_MC#{at // 4 % 4}_Chan#{at // 2 % 2}_DIMM#{at % 2}"
    return (DimmErrors(f"mc{at // 4}/dimm{at % 4}", label, int(fault["corrected"]), int(fault["uncorrectable"])),)


def record_errors(state: MachineState, fault: str, now: float) -> None:
    """Have rasdaemon record the errors that a module shows when the fault dimm_errors begins, and after each boot."""
    disk = state.disks.get(state.booted_disk or "")
    for one in dimm_errors(state) if fault == "dimm_errors" else ():
        place = (
            f"{one.place.partition('/')[0].removeprefix('mc')}:{int(one.place[-1]) // 2}:{int(one.place[-1]) % 2}:-1"
        )
        for kind, count in (("Corrected", one.corrected), ("Uncorrected", one.uncorrected)):
            if count and disk is not None:
                disk.memory_errors.append((now, one.label or "", place, kind, count))


def dimm_records(state: MachineState, now: float) -> tuple[DimmRecord, ...]:
    """Return what rasdaemon has recorded in a week: corrected errors by the hour, others by the boot, too."""
    disk = state.disks.get(state.booted_disk or "")
    if disk is None or state.os is None or not disk.memory_errors:
        return ()
    found: dict[tuple[str, str, str, int, bool | None], int] = {}
    for at, label, place, kind, count in disk.memory_errors:
        since_boot = None if kind == "Corrected" else at >= state.os.booted_at
        hours = int((int(now) - (at // 3600 * 3600 if kind == "Corrected" else at)) // 3600)
        if hours <= 7 * 24:
            found[label, place, kind, hours, since_boot] = found.get((label, place, kind, hours, since_boot), 0) + count
    return tuple(DimmRecord(*key, count) for key, count in sorted(found.items()))


def rollup(state: MachineState) -> str:
    """Return the BMC's health rollup. It sees devices that are gone, not errors that only the driver sees in them."""
    fault = state.faults.get(FAILED)
    if any(gpu.lost for gpu in state.gpus) or (fault is not None and fault["how"] == "critical"):
        return "Critical"
    return "Warning" if any(drive.media_errors for drive in state.drives) else "OK"


def check(state: MachineState, part: str, index: int, how: str) -> None:
    """Raise ValueError when the machine has no such part, or the part can't fail like that."""
    counts = {
        "psu": SUPPLIES, "fan": FANS, "leak": DETECTORS, "drive": len(state.drives), "dimm": state.dimms,
        "nic": len(state.nics), "processor": state.processors, "board": 1, "sensor": 1,
    }  # fmt: skip
    if part not in counts or how not in HOW:
        raise ValueError(f"a part is {', '.join(PARTS)}, and fails {', '.join(HOW)}; not {part} {how}")
    if not 0 <= index < counts[part]:
        raise ValueError(f"{state.name} has {counts[part]} of {part}, numbered from 0; not {index}")
    if part not in _FAILS[how]:
        raise ValueError(f"only these can be {how}: {', '.join(_FAILS[how])}; not {part}")


def rdma_ports(state: MachineState) -> list[NicState]:
    return [nic for nic in state.nics if nic.rdma]


def break_port_or_drive(kind: str, state: MachineState, parameters: Mapping[str, Any]) -> None:
    """Apply the fault `kind`, port or drive, to the part that its parameters name."""
    if kind == "port":
        nic, gbps = rdma_ports(state)[int(parameters["port"])], float(parameters["gbps"])
        nic.up, nic.slow_gbps, nic.struck = gbps > 0, gbps, True
        return
    drive = state.drives[int(parameters["drive"])]
    drive.critical_warning = int(parameters["critical_warning"])
    drive.percentage_used, drive.available_spare = int(parameters["percentage_used"]), int(parameters["spare"])
    drive.media_errors = int(parameters["pending"])
    drive.smart, drive.struck = bool(parameters["readable"]), True


def repair_ports(state: MachineState) -> None:
    for nic in state.nics:
        if nic.struck:
            nic.up, nic.slow_gbps, nic.struck = True, 0.0, False


def repair_drives(state: MachineState) -> None:
    for drive in state.drives:
        if drive.struck:
            drive.critical_warning, drive.available_spare, drive.percentage_used = 0, 100, 3
            drive.smart, drive.struck, drive.media_errors = True, False, 0
