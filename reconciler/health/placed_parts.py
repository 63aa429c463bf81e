"""The parts of a node by slot and serial number, and those that its signals speak against.

Sources are read one by one: what the BMC does not list, the host may. A part whose serial number nobody tells is known
by its place alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from reconciler.health.parts import (
    NARROW,
    cell_signals,
    dimm_signals,
    disk_signals,
    gpu_signals,
    nvme_signals,
    record_signals,
)
from reconciler.health.table import table_of
from reconciler.health.telemetry import OF_AMD, amd_signals
from reconciler.health.xids import signal_of
from reconciler.model.desired import Profile
from reconciler.model.gpus import Gpu
from reconciler.model.observed import AmdGpu, HostFacts, Observed, RedfishInventory, Silent
from reconciler.model.repairs import FaultyPart, PlacedPart
from reconciler.model.vocab import Health

# Kinds of parts as the BMC names them, which a person can exchange -> the signal of one that is critical.
_OF_BMC: Final[Mapping[str, str]] = {"dimm": "dimm_failed", "power_supply": "psu_failed", "fan": "fan_failed"}
# Signals that are only reported, since a node serves without the part: a person exchanges it all the same.
ONLY_REPORTED: Final = frozenset(
    f"health.{name}" for name in ("psu_failed", "fan_failed", "drive_failed", "drive_failing")
)
Counts = Callable[[str], bool]  # of the name of a signal


def placed_parts(observed: Observed) -> tuple[PlacedPart, ...]:
    """Return all parts whose serial numbers are known now, each once."""
    inventory, facts = _read(observed)
    found: dict[tuple[str, str], PlacedPart] = {}
    for part in (*_of_inventory(inventory), *_of_facts(facts)):
        if part.serial:
            found.setdefault((part.kind, part.serial), part)
    return tuple(sorted(found.values()))


def kinds_read(observed: Observed) -> frozenset[str]:
    """Return the kinds of parts of which at least one source was read, so that one that is not listed is not there."""
    inventory, facts = _read(observed)
    kinds: set[str] = set()
    if inventory is not None:
        kinds |= {part.kind for part in inventory.parts or ()}
        kinds |= {"drive"} if inventory.drives is not None else set()
        kinds |= {"nic"} if inventory.nics is not None else set()
    if facts is not None and facts.gpus is not None and (facts.gpus or facts.amd_gpus is not None):
        kinds.add("gpu")
    return frozenset(kinds)


def faulty_parts(profile: Profile, observed: Observed, paths: Collection[str]) -> tuple[FaultyPart, ...]:
    """Return the parts that these signals (value paths) speak against, with the evidence against each."""

    def counts(name: str) -> bool:
        return f"health.{name}" in paths

    inventory, facts = _read(observed)
    found: dict[PlacedPart, dict[str, None]] = {}
    modules = {_slot_name(one.id): one for one in (inventory.parts or () if inventory else ()) if one.kind == "dimm"}
    for part, why in (*_ill_of_bmc(inventory, counts), *_ill_of_host(profile, facts, counts)):
        if part.kind == "dimm" and not part.serial and (same := modules.get(_slot_name(part.place))) is not None:
            part = PlacedPart("dimm", same.id, same.serial)
        found.setdefault(_known(part, found), {})[why] = None
    return tuple(FaultyPart(part, tuple(why)) for part, why in sorted(found.items()))


def _known(part: PlacedPart, found: Collection[PlacedPart]) -> PlacedPart:
    """Return the same part under the place that another source gave it: BMC and host share the serial number alone."""
    same = (one for one in found if one.kind == part.kind and part.serial and one.serial == part.serial)
    return next(same, part)


def _slot_name(place: str) -> str:
    """Return the name of a memory slot as both sources may write it: firmware gives the kernel what the board calls it.

    The names of the kernel's own drivers (CPU_SrcID#1_MC#2_Chan#0_DIMM#0) are no board's, and match nothing.
    """
    return re.sub(r"[\W_]", "", place).casefold()


def _read(observed: Observed) -> tuple[RedfishInventory | None, HostFacts | None]:
    inventory = None if isinstance(observed.inventory, Silent) else observed.inventory.value
    return inventory, None if isinstance(observed.host, Silent) else observed.host.value


def _of_inventory(inventory: RedfishInventory | None) -> Iterator[PlacedPart]:
    if inventory is None:
        return
    for part in inventory.parts or ():
        if part.kind in _OF_BMC:
            yield PlacedPart(part.kind, part.id, part.serial)
    for drive in inventory.drives or ():
        yield PlacedPart("drive", drive.id, drive.serial)
    for nic in inventory.nics or ():
        yield PlacedPart("nic", nic.id, nic.mac)


def _of_facts(facts: HostFacts | None) -> Iterator[PlacedPart]:
    if facts is None:
        return
    for gpu in facts.gpus or ():
        yield _gpu(gpu)
    for amd in facts.amd_gpus or ():
        yield _amd(amd)
    for drive in facts.nvme or ():
        yield PlacedPart("drive", drive.device, drive.serial)
    for disk in facts.disks or ():
        yield PlacedPart("drive", disk.device, disk.serial)


def _gpu(gpu: Gpu) -> PlacedPart:
    return PlacedPart("gpu", gpu.pci, gpu.serial or gpu.uuid)


def _amd(gpu: AmdGpu) -> PlacedPart:
    return PlacedPart("gpu", gpu.pci or f"GPU {gpu.index}", gpu.serial)


def _ill_of_bmc(inventory: RedfishInventory | None, counts: Counts) -> Iterator[tuple[PlacedPart, str]]:
    if inventory is None:
        return
    for part in inventory.parts or ():
        if part.kind in _OF_BMC and part.health is Health.CRITICAL and counts(_OF_BMC[part.kind]):
            yield PlacedPart(part.kind, part.id, part.serial), f"{_OF_BMC[part.kind]}: the BMC judges it critical"
    for drive in inventory.drives or ():
        placed = PlacedPart("drive", drive.id, drive.serial)
        if drive.health is Health.CRITICAL and counts("drive_failed"):
            yield placed, "drive_failed: the BMC judges it critical"
        if drive.failing and counts("drive_failing"):
            yield placed, "drive_failing: it predicts its own failure"


def _ill_of_host(profile: Profile, facts: HostFacts | None, counts: Counts) -> Iterator[tuple[PlacedPart, str]]:
    if facts is None:
        return
    table = table_of(profile)
    for gpu in facts.gpus or ():
        for why in _of_gpu(profile, facts, gpu, counts):
            yield _gpu(gpu), why
    for amd in facts.amd_gpus or ():
        for why in _of_amd(facts, amd, counts):
            yield _amd(amd), why
    drives = [
        *((PlacedPart("drive", one.device, one.serial), nvme_signals(one, table)) for one in facts.nvme or ()),
        *((PlacedPart("drive", one.device, one.serial), disk_signals(one, table)) for one in facts.disks or ()),
        *(
            (PlacedPart("dimm", one.label or one.place), dimm_signals(one, facts.uptime_s, table))
            for one in facts.dimm_errors or ()
        ),
        *(
            (PlacedPart("dimm", one.label or one.place), (shown,))
            for one, shown in record_signals(facts.dimm_records or (), table)
        ),
    ]
    for part, shown in drives:
        for name, detail in shown:
            if counts(name):
                yield part, f"{name}: {detail}"


def _of_gpu(profile: Profile, facts: HostFacts, gpu: Gpu, counts: Counts) -> Iterator[str]:
    """Yield what speaks against one GPU. Codes of the kernel log name it by its PCI address."""
    if gpu.lost and counts("gpu_missing"):
        yield "gpu_missing: it does not answer"
    shown = () if gpu.lost else (*gpu_signals(gpu, table_of(profile)), *cell_signals(gpu.cells))
    for name, detail in shown:
        if counts(name) or (name == NARROW and counts("pcie_width")):
            yield f"{name}: {detail}"
    for xid in facts.xids or ():
        name = "" if xid.switch or _slot(xid.device) != _slot(gpu.pci) else signal_of(xid)
        if name and counts(name):
            yield f"{name}: {xid.count} times in the kernel log" if xid.count > 1 else name


def _slot(address: str) -> str:
    """Return a PCI address without its function and the leading zeros of its domain: drivers write both differently."""
    return address.partition(".")[0].lstrip("0").casefold()


def _of_amd(facts: HostFacts, gpu: AmdGpu, counts: Counts) -> Iterator[str]:
    """Yield what speaks against one GPU of AMD's, by amd-smi and by the kernel log, which names its PCI address."""
    for name, detail in amd_signals(gpu):
        if counts(name):
            yield f"{name}: {detail}"
    for event in facts.kernel_events or ():
        of_it = gpu.pci is not None and _slot(event.device) == _slot(gpu.pci)
        if of_it and event.kind in OF_AMD and counts(event.kind.value):
            yield f"{event.kind.value}: in the kernel log"
