"""Summarise the GPUs of a node: what they have in common, which is compared, and which cells were not read."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

from reconciler.diff import normalise
from reconciler.diff.readings import Missing
from reconciler.model.gpus import Gpu, GpuCells, SmiAnswer
from reconciler.model.vocab import UnknownReason

# Boards for data centres since Ampere have ECC and remap rows ("GPU Memory Error Management", NVIDIA). So N/A there, if
# not in MIG mode, is a cell that could not be read.
_REMAPS_ROWS = re.compile(r"\b(A100|A800|A30|A10G?|A16|A2|A40|H100|H800|H200|H20|GH200|G?B[123]00|L4|L20|L40S?)\b")
_HAS_ECC = re.compile(rf"{_REMAPS_ROWS.pattern}|\b(Tesla|V100S?|P100|T4)\b")
_VIRTUAL = re.compile(r"-\d+[ABCQ]$")  # NVIDIA A40-48Q: a vGPU has no memory of its own to remap
# Counters and flags that the driver does not keep while ECC is off.
_OF_ECC = frozenset({"ecc_uncorrectable", "ecc_uncorrectable_ever", "sram_threshold_exceeded"})
# Meanings of nvidia-smi's exit status after a complete document (its manual, "Return value").
_EXITS: Final[Mapping[int, str]] = {
    4: "no permission",
    8: "a GPU's external power cables are not attached properly",
    10: "the kernel has detected an interrupt issue with a GPU",
    14: "an infoROM is corrupted",
    15: "a GPU has fallen off the bus or is otherwise inaccessible",
}
# Cells that show a GPU's working state rather than its health.
_NOT_HEALTH = frozenset({"loaded", "unread"})


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """The values of a node's GPUs that are compared with the spec.

    `answering` counts those that are not lost. `unread` names the cells that GPUs left out; "" when all were read.
    """

    answering: int
    model: Hashable
    layout: Hashable
    unread: str


@dataclass(frozen=True, slots=True)
class _GpuTraits:
    """The traits that GPUs of equal nodes share, without serial numbers and counters.

    `blank` names the cells without a value, `unread` those of them that can't be N/A.
    """

    index: int
    lost: bool
    name: str | None
    mig_current: bool | None
    mig_pending: bool | None
    profiles: tuple[str, ...]
    blank: tuple[str, ...]
    unread: tuple[str, ...]
    ecc_off: bool


def summarise_gpus(gpus: Iterable[Gpu]) -> GpuSummary:
    found = []
    last: GpuCells | None = None
    blank: tuple[str, ...] = ()
    addresses = set()
    for gpu in gpus:
        if gpu.cells is not last:  # equal cells are mostly one object
            last = gpu.cells
            blank = _blank(last)
        addresses.add(gpu.pci)
        found.append(
            (
                gpu.index,
                gpu.lost,
                gpu.name,
                gpu.mig_current,
                gpu.mig_pending,
                tuple([device.profile for device in gpu.mig_devices]) if gpu.mig_devices else (),
                blank + own if (own := _own_blank(gpu)) else blank,
                last.unread if last is not None else (),
                gpu.ecc_enabled is False,
            )
        )
    return _summarise(tuple(found), len(addresses) < len(found))


@lru_cache(maxsize=4096)
def _blank(cells: GpuCells) -> tuple[str, ...]:
    return tuple(name for name in _CELLS if getattr(cells, name) is None)


_CELLS: Final = tuple(field.name for field in fields(GpuCells) if field.name not in _NOT_HEALTH)
_OWN: Final = (
    "ecc_enabled",
    "ecc_uncorrectable",
    "remap_pending",
    "remap_failed",
    "ecc_uncorrectable_ever",
    "remapped_uncorrectable",
    "pcie_replays",
)


def _own_blank(gpu: Gpu) -> tuple[str, ...]:
    """Return the names of the cells of `Gpu` itself that have no value. Their values differ from board to board."""
    if (
        gpu.ecc_enabled is not None
        and gpu.ecc_uncorrectable is not None
        and gpu.remap_pending is not None
        and gpu.remap_failed is not None
        and gpu.ecc_uncorrectable_ever is not None
        and gpu.remapped_uncorrectable is not None
        and gpu.pcie_replays is not None
    ):
        return ()
    return tuple(name for name in _OWN if getattr(gpu, name) is None)


@lru_cache(maxsize=4096)
def _summarise(
    found: tuple[
        tuple[int, bool, str | None, bool | None, bool | None, tuple[str, ...], tuple[str, ...], tuple[str, ...], bool],
        ...,
    ],
    same_address: bool,
) -> GpuSummary:
    gpus = [_GpuTraits(*one) for one in found]
    present = [gpu for gpu in gpus if not gpu.lost]
    unread = "two GPUs give one PCI address, or several give none" if same_address else _unread(present)
    layout_found = _layout(present) if present or not gpus else Missing(UnknownReason.UNSUPPORTED, "no GPU answers")
    return GpuSummary(len(present), _model(gpus), layout_found, unread)


# --- cells that were not read ------------------------------------------------------------------------------------


def unread_cells(gpus: Iterable[Gpu]) -> str:
    """Return a sentence that names each GPU with the cells that could not be read; "" when all were read."""
    return summarise_gpus(gpus).unread


def lacks_ecc_counters(gpu: Gpu) -> bool:
    """Return whether a board that keeps ECC counters lacks them. A GeForce has none, nor has a board with ECC off."""
    if gpu.ecc_uncorrectable is not None or gpu.ecc_enabled is False:
        return False
    if gpu.ecc_enabled or gpu.name is None or "ecc_enabled" in gpu.cells.unread:
        return True
    return bool(_HAS_ECC.search(gpu.name)) and not _VIRTUAL.search(gpu.name)


def _unread(gpus: Sequence[_GpuTraits]) -> str:
    """Name the cells that were not read: malformed ones, and absent ones that the model or others of it have."""
    parts = []
    given: dict[str | None, set[str]] = {}
    for gpu in gpus:
        if not gpu.mig_current:
            given.setdefault(gpu.name, set()).update({*_CELLS, *_OWN} - set(gpu.blank))
    for gpu in gpus:
        missing = dict.fromkeys(gpu.unread)
        if gpu.name is None:
            missing["name"] = None
        if gpu.mig_current is None:
            missing["MIG mode"] = None
        elif not gpu.mig_current:
            blank = [name for name in gpu.blank if not (gpu.ecc_off and name in _OF_ECC)]
            missing |= dict.fromkeys(name for name in blank if name in given[gpu.name])
            if gpu.name is not None and _REMAPS_ROWS.search(gpu.name) and not _VIRTUAL.search(gpu.name):
                missing |= dict.fromkeys(name for name in _OWN[:4] if name in blank)
        if missing:
            parts.append(f"GPU {gpu.index} gives no {', no '.join(missing)}")
    return "; ".join(parts)


def contradiction(answer: SmiAnswer) -> str:
    """Return why a complete document of nvidia-smi can't be trusted; "" when it can."""
    if answer.exit_status not in (0, 14):
        meaning = _EXITS.get(answer.exit_status)
        because = f" ({meaning})" if meaning else ""
        return f"nvidia-smi ended with {answer.exit_status}{because} after a whole document"
    if answer.attached is None:
        return "nvidia-smi does not say how many GPUs are attached"
    if answer.attached != answer.described:
        return f"nvidia-smi says {answer.attached} attached GPUs and describes {answer.described}"
    return ""


# --- values that are compared ------------------------------------------------------------------------------------


def _model(gpus: Iterable[_GpuTraits]) -> Hashable:
    names = sorted({normalise.text(gpu.name) for gpu in gpus if gpu.name})
    return " + ".join(names) if names else Missing(UnknownReason.MALFORMED, "no GPU gives its name")


def layout(mig: Mapping[str, int] | None) -> str:
    """Write a MIG layout, of a spec or a host, as text: "off", or "1g.10gb x4, 3g.40gb"."""
    if mig is None:
        return "off"
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(mig.items())) or "on, empty"


_PART: Final = re.compile(r"([^, ]+)(?: x(\d+))?")


def read_layout(text: str) -> Mapping[str, int] | None:
    """Return what `layout` was given. None for MIG that is off, and for a mode that is about to change."""
    if text == "on, empty":
        return {}
    parts = [_PART.fullmatch(part) for part in text.split(", ")]
    if text == "off" or not all(parts):
        return None
    return {part[1]: int(part[2] or 1) for part in parts if part is not None}


def layouts(wanted: str, found: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return both layouts as mappings, by GPU where the GPUs differ. None where one of them has no layout."""
    common = read_layout(wanted)
    texts = dict(part.partition(": ")[::2] for part in found.split("; ")) if "; " in found else {"": found}
    each = {gpu: read_layout(text) for gpu, text in texts.items()}
    if common is None or None in each.values():
        return None
    return (dict.fromkeys(each, common), each) if "; " in found else (common, each[""] or {})


def _layout(gpus: list[_GpuTraits]) -> Hashable:
    """Return the layout that all GPUs share, or that of each where they differ, with pending changes (pitfall A11)."""
    if any(gpu.mig_current is None for gpu in gpus):
        return Missing(UnknownReason.MALFORMED, "a GPU gives no MIG mode")
    each = [_layout_of(gpu) for gpu in gpus] or [layout(None)]  # a node without GPUs has none in MIG mode
    if len(set(each)) == 1:
        return each[0]
    return "; ".join(f"GPU {gpu.index}: {words}" for gpu, words in zip(gpus, each, strict=True))


def _layout_of(gpu: _GpuTraits) -> str:
    counts = {profile: gpu.profiles.count(profile) for profile in gpu.profiles}
    changing = "" if gpu.mig_pending in (None, gpu.mig_current) else " (mode change pending)"
    return layout(counts if gpu.mig_current else None) + changing
