"""The cells of nvidia-smi -q -x about a GPU's health, for drivers from 450 to 595.

A cell is absent (an older driver), N/A (not offered by this board, or not in MIG mode), a value, or unreadable: "ERR!",
"Unknown Error", "GPU requires reset", empty. Unreadable cells are listed, as they are no evidence of health.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

from reconciler.drivers.ssh.facts.fact import excerpt, whole_number
from reconciler.model.gpus import GpuCells
from reconciler.model.observed import BUSY_PERCENT

T = TypeVar("T")

_NOT_OFFERED = re.compile(
    r"\[?(n/a|not (supported|available|specified)|requested functionality has been deprecated)\]?", re.IGNORECASE
)
_REQUIRES_RESET = re.compile(r"\[?GPU requires reset\.?\]?", re.IGNORECASE)
_WORDS: Mapping[str, bool] = {"yes": True, "no": False, "enabled": True, "disabled": False}
_REASONS: Mapping[str, bool] = {"active": True, "not active": False}
_RECOVERY = re.compile(r"None|(GPU )?Reset|(Node )?Reboot|Drain P2P|Drain and Reset", re.IGNORECASE)
_FABRIC_STATE = re.compile(r"Completed|In Progress|Not Started", re.IGNORECASE)
_FABRIC_STATUS = re.compile(r"[A-Z][\w ,.():-]{1,80}")
_NO_STATUS = re.compile(
    r"err!?|unknown error|nan|no reading|skip|waived|unknown|none|function not found|gpu .*", re.IGNORECASE
)
# Values of a healthy fabric in fabric/health: summary, bandwidth, and flags that are not set.
_HEALTHY_WORDS = frozenset({"healthy", "full", "false", "no", "none", "not active", "0"})
_UNHEALTHY_WORDS = frozenset({"unhealthy", "limited capacity", "degraded", "true", "yes", "active", "incorrect"})
_CELSIUS = re.compile(r"(-?\d{1,3}) C")
_COOL = 60  # °C: no card slows itself below it. gpud takes a margin of 0 and less from an H100 for none at all.
_WIDTH = re.compile(r"(\d{1,2})x")
_PERCENT = re.compile(r"(\d{1,3}) %")

# Field of GpuCells, or of Gpu -> the path where drivers print it.
_YES_NO: Mapping[str, str] = {
    "sram_threshold_exceeded": "ecc_errors/aggregate/sram_threshold_exceeded",
    "unrepairable_memory": "ecc_errors/unrepairable_memory",
    "channel_repair_pending": "ecc_errors/channel_repair_pending",
    "tpc_repair_pending": "ecc_errors/tpc_repair_pending",
    "persistence": "persistence_mode",
}
_REASON: Mapping[str, str] = {"thermal_slowdown": "hw_thermal_slowdown", "power_brake": "hw_power_brake_slowdown"}
_LINK: Mapping[str, str] = {
    "pcie_width": "link_widths/current_link_width",
    "pcie_width_max": "link_widths/max_link_width",
    "pcie_gen": "pcie_gen/current_link_gen",
    "pcie_gen_max": "pcie_gen/max_link_gen",
}
_LEVELS = 4  # of the longest path; what a damaged document nests deeper is not read
# Cells that gpu.py decodes; here they are only checked for being readable.
_ELSEWHERE: Mapping[str, str] = {
    "ecc_enabled": "ecc_mode/current_ecc",
    "remap_pending": "remapped_rows/remapped_row_pending",
    "remap_failed": "remapped_rows/remapped_row_failure",
}


@dataclass(slots=True)
class _Cells:
    """Reads the cells of one GPU, and collects those that could not be read. `texts`: by path, the first of each."""

    element: ET.Element
    texts: Mapping[str, str]
    unread: list[str] = field(default_factory=list)

    def read(self, name: str, path: str, value_of: Callable[[str], T | None], *others: str) -> T | None:
        """Return the value at the first of these paths that exists."""
        found = self.texts.get(path)
        for place in others:
            found = self.texts.get(place) if found is None else found
        if found is None or _is_not_offered(found):
            return None
        value = value_of(found.strip())
        if value is None:
            self.unread.append(name)
        return value


@lru_cache(maxsize=1024)  # GPUs say the same few words over and over
def _is_not_offered(text: str) -> bool:
    return _NOT_OFFERED.fullmatch(text.strip()) is not None


def _texts(element: ET.Element, found: dict[str, str], within: str = "", levels: int = _LEVELS) -> dict[str, str]:
    """Add the text of each element below this one by its path: one walk costs less than a search for each path."""
    for child in element:
        path = within + child.tag
        found.setdefault(path, child.text or "")
        if levels > 1 and len(child):
            _texts(child, found, f"{path}/", levels - 1)
    return found


def health_cells(element: ET.Element, *, seems_to_need_reset: bool = True) -> GpuCells:
    """Return the cells. `seems_to_need_reset`: whether any of them may hold "GPU requires reset"."""
    cells = _Cells(element, _texts(element, {}))
    read = cells.read
    flags: dict[str, Any] = {name: read(name, path, _word) for name, path in _YES_NO.items()}
    reasons: dict[str, Any] = {
        name: read(
            name,
            f"clocks_event_reasons/clocks_event_reason_{word}",
            lambda text: _REASONS.get(text.lower()),
            f"clocks_throttle_reasons/clocks_throttle_reason_{word}",  # before 535
        )
        for name, word in _REASON.items()
    }
    link: dict[str, Any] = {
        name: read(name, f"pci/pci_gpu_link_info/{path}", _lanes_or_generation) for name, path in _LINK.items()
    }
    for name, path in _ELSEWHERE.items():
        read(name, path, _word)
    for name, whole in (("ecc_uncorrectable", "volatile"), ("ecc_uncorrectable_ever", "aggregate")):
        for cell in element.iterfind(f"ecc_errors/{whole}/*"):
            if "uncorrectable" in cell.tag and name not in cells.unread:
                read(name, f"ecc_errors/{whole}/{cell.tag}", whole_number)
    read("remapped_uncorrectable", "remapped_rows/remapped_row_unc", whole_number)
    read("pcie_replays", "pci/replay_counter", whole_number)
    return GpuCells(
        recovery_action=_recovery(cells, seems_to_need_reset),
        fabric_state=read("fabric_state", "fabric/state", partial(_like, _FABRIC_STATE)),
        fabric_status=read("fabric_status", "fabric/status", _status),
        fabric_health=_fabric_health(cells),
        over_limit=_is_over_limit(cells),
        loaded=read("loaded", "utilization/gpu_util", _is_loaded),
        **flags,
        **reasons,
        **link,
        unread=tuple(dict.fromkeys(cells.unread)),
    )


def _word(text: str) -> bool | None:
    return _WORDS.get(text.lower())


def _like(pattern: re.Pattern[str], text: str) -> str | None:
    return text if pattern.fullmatch(text) else None


def _status(text: str) -> str | None:
    """Return "Success" or the driver's error text, None for no status."""
    return text if _FABRIC_STATUS.fullmatch(text) and not _NO_STATUS.fullmatch(text) else None


def _lanes_or_generation(text: str) -> int | None:
    """Return lanes or generation; None for 0, which no working link has."""
    match = _WIDTH.fullmatch(text)
    return (int(match[1]) if match else whole_number(text)) or None


def _recovery(cells: _Cells, seems_to_need_reset: bool) -> str | None:
    """Return the recovery action. Any cell with "GPU requires reset" means Reset, as newer drivers report it."""
    action = cells.read("recovery_action", "gpu_recovery_action", partial(_like, _RECOVERY))
    texts = cells.element.itertext() if seems_to_need_reset else ()
    if any(_REQUIRES_RESET.fullmatch(text.strip()) for text in texts):
        return "Reset" if action in (None, "None") else action
    return action or _before_570(cells)


def _before_570(cells: _Cells) -> str | None:
    """Return the recovery action that drivers 530 to 565 report, in the words of later drivers."""
    reset, drain = (
        cells.read("recovery_action", f"gpu_reset_status/{name}", _word)
        for name in ("reset_required", "drain_and_reset_recommended")
    )
    if reset is None and drain is None:
        return None
    return "Reset" if reset else "Drain and Reset" if drain else "None"


def _is_over_limit(cells: _Cells) -> bool | None:
    """Return whether the margin of a GPU is below that at which its hardware slows it: -2 C on H100 and H200.

    None where a card or driver lacks one of both (A100), and where a cool GPU contradicts its margin.
    """
    names = ("gpu_temp", "gpu_temp_tlimit", "gpu_temp_slow_tlimit_threshold")
    now, margin, slows = (cells.read("over_limit", f"temperature/{name}", _celsius) for name in names)
    if now is None or margin is None or slows is None:
        return None
    return None if margin < slows and now < _COOL else margin < slows


def _celsius(text: str) -> int | None:
    match = _CELSIUS.fullmatch(text)
    return int(match[1]) if match else None


def _fabric_health(cells: _Cells) -> str | None:
    """Return what is wrong with the fabric; "" when nothing is; None when it is not reported or not readable."""
    reported, faults = False, []
    for part in cells.element.iterfind("fabric/health/*"):
        text = (part.text or "").strip()
        if _NOT_OFFERED.fullmatch(text):
            continue
        reported = True
        if text.lower() in _HEALTHY_WORDS:
            continue
        if text.lower() not in _UNHEALTHY_WORDS:
            cells.unread.append("fabric_health")
            return None
        faults.append(f"{excerpt(part.tag, 40)} {text}")
    return ", ".join(faults) if reported else None


def _is_loaded(text: str) -> bool | None:
    match = _PERCENT.fullmatch(text)
    return int(match[1]) >= BUSY_PERCENT if match else None


# The time in which the hardware slowed the clocks since the driver was loaded: in version 13 of the document, as driver
# 595 prints it.
_SLOWED: Mapping[str, str] = {
    "thermal_s": "clocks_event_reasons_counters_hw_therm_slowdown",
    "power_brake_s": "clocks_event_reasons_counters_hw_power_brake",
}
_MICROSECONDS = re.compile(r"(\d{1,20}) us")


def slowed_seconds(element: ET.Element) -> dict[str, int]:
    """Return for how many seconds a GPU was slowed, by cause; {} where the driver does not count them."""
    counts = element.find("clocks_event_reasons_counters")
    cells = {} if counts is None else {name: counts.findtext(tag) or "" for name, tag in _SLOWED.items()}
    found = {name: _MICROSECONDS.fullmatch(text.strip()) for name, text in cells.items()}
    return {name: int(match[1]) // 1_000_000 for name, match in found.items() if match is not None}
