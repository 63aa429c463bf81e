"""Cells of nvidia-smi -q -x that a fault can change: the texts a GPU may print there, and their meanings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NOT_OFFERED: Final = "N/A"
RECOVERING: Final = "Full, and a route is being recovered"  # the one text that two elements tell
_YES_NO: Final[Mapping[str, object]] = {"Yes": True, "No": False}
_ON_OFF: Final[Mapping[str, object]] = {"Enabled": True, "Disabled": False}
_ACTIVE: Final[Mapping[str, object]] = {"Active": True, "Not Active": False}
_LANES: Final[Mapping[str, object]] = {f"{lanes}x": lanes for lanes in (1, 2, 4, 8, 16)}
_COUNTS: Final[Mapping[str, object]] = {str(count): count for count in range(1001)}

# Cell -> text -> its value. Any other text ("ERR!", NOT_OFFERED) has no value.
CELLS: Final[Mapping[str, Mapping[str, object]]] = {
    "recovery_action": {text: text for text in ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")},
    "sram_threshold_exceeded": _YES_NO,
    "unrepairable_memory": _YES_NO,
    "channel_repair_pending": _YES_NO,
    "tpc_repair_pending": _YES_NO,
    "fabric_state": {text: text for text in ("Completed", "In Progress", "Not Started")},
    "fabric_status": {text: text for text in ("Success", "Insufficient Resources", "Timeout")},
    "fabric_health": {"Full": "", "Degraded": "bandwidth Degraded", RECOVERING: "route_recovery_in_progress True"},
    "loaded": {"97 %": True, "0 %": False},  # its utilisation
    "thermal_slowdown": _ACTIVE,
    "over_limit": {"-5 C": True, "38 C": False},  # its margin to the limit, where it slows itself below -2 C
    "power_brake": _ACTIVE,
    "pcie_width": _LANES,
    "pcie_gen": _COUNTS,
    "persistence": _ON_OFF,
    "ecc_enabled": _ON_OFF,
    "remap_pending": _YES_NO,
    "remap_failed": _YES_NO,
    "ecc_uncorrectable_ever": _COUNTS,
    "remapped_uncorrectable": _COUNTS,
    "pcie_replays": _COUNTS,
}
NEWER: Final = ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory")


def newer_cells(driver: str) -> tuple[str, ...]:
    """Return the cells that only drivers from 590 on print."""
    return NEWER if int(driver.split(".")[0]) >= 590 else ()
