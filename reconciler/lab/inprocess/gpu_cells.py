"""GpuCells straight from a GPU's state, equal to those that the parser reads from nvidia-smi's text.

`cells`: name of a cell -> the text in it, for those that a fault has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Final

from reconciler.lab.hardware.gpu_cells import CELLS, NOT_OFFERED, newer_cells
from reconciler.lab.wire.facts.skus import sku
from reconciler.model.gpus import Gpu, GpuCells

_SHARED: Final = frozenset(field.name for field in fields(GpuCells))
_ROWS: Final = frozenset({"remap_pending", "remap_failed", "remapped_uncorrectable"})  # hidden in MIG mode


@lru_cache(maxsize=1024)
def as_read(name: str, driver: str, mig: bool, cells: tuple[tuple[str, str], ...]) -> GpuCells:
    """Return the cells as read. `driver`: versions from 590 on print more cells."""
    newer: dict[str, Any] = dict.fromkeys(newer_cells(driver), False)
    generation = sku(name).pcie_gen
    read = GpuCells(
        recovery_action="None",
        sram_threshold_exceeded=False,
        fabric_state="Completed",
        fabric_status="Success",
        thermal_slowdown=False,
        over_limit=False,
        power_brake=False,
        pcie_width=16,
        pcie_width_max=16,
        pcie_gen=generation,
        pcie_gen_max=generation,
        persistence=True,
        loaded=None if mig else False,
        **newer,
    )
    told = {cell: text for cell, text in cells if not (mig and cell in _ROWS)}
    changed: dict[str, Any] = {cell: CELLS[cell].get(text) for cell, text in told.items() if cell in _SHARED}
    blank = [cell for cell, text in told.items() if text not in CELLS[cell] and text != NOT_OFFERED]
    return replace(read, **changed, unread=tuple(blank))


def with_own_cells(gpu: Gpu, cells: Mapping[str, str]) -> Gpu:
    """Return the GPU with the changed cells that are fields of `Gpu` itself."""
    changed: dict[str, Any] = {
        cell: CELLS[cell].get(text)
        for cell, text in cells.items()
        if cell not in _SHARED and not (gpu.mig_current and cell in _ROWS)
    }
    return replace(gpu, **changed) if changed else gpu
