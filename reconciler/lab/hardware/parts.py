"""Parts as the BMC sees them: what the fault `failed_part` makes of each."""

from __future__ import annotations

from reconciler.lab.hardware.state import DriveState, MachineState

FAILED = "failed_part"
PARTS = ("psu", "fan", "drive", "dimm", "leak")
HOW = ("critical", "missing", "logged")
SUPPLIES, FANS, DETECTORS = 6, 10, 2


def _how(state: MachineState, part: str, index: int) -> str | None:
    fault = state.faults.get(FAILED)
    found = fault is not None and (fault["part"], fault["index"]) == (part, index)
    return str(fault["how"]) if fault is not None and found else None


def critical(state: MachineState, part: str, index: int) -> bool:
    return _how(state, part, index) == "critical"


def missing(state: MachineState, part: str, index: int) -> bool:
    return _how(state, part, index) == "missing"


def drives(state: MachineState) -> list[DriveState]:
    return [drive for at, drive in enumerate(state.drives) if not missing(state, "drive", at)]


def rollup(state: MachineState) -> str:
    """What the BMC makes of all its parts: it sees devices that are gone, not what the driver sees inside them."""
    fault = state.faults.get(FAILED)
    if any(gpu.lost for gpu in state.gpus) or (fault is not None and fault["how"] == "critical"):
        return "Critical"
    return "Warning" if any(drive.media_errors for drive in state.drives) else "OK"


def check(state: MachineState, part: str, index: int, how: str) -> None:
    """ValueError: no such part, or it can't fail like that."""
    counts = {
        "psu": SUPPLIES, "fan": FANS, "leak": DETECTORS, "drive": len(state.drives), "dimm": state.dimms,
    }  # fmt: skip
    if part not in counts or how not in HOW:
        raise ValueError(f"a part is {', '.join(PARTS)}, and fails {', '.join(HOW)}; not {part} {how}")
    if not 0 <= index < counts[part]:
        raise ValueError(f"{state.name} has {counts[part]} of {part}, numbered from 0; not {index}")
    if (how == "missing" and part not in ("drive", "dimm")) or (how == "logged" and part != "dimm"):
        raise ValueError(f"only a drive or dimm can be missing, and only a dimm logged; not {part} {how}")
