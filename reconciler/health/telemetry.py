"""Signals of what a host's own programs tell: daemons, clock, modules, DCGM's health watches, AMD's memory counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reconciler.health.table import HealthTable
from reconciler.model.observed import AmdGpu, ClockState, DcgmIncident, HostFacts
from reconciler.model.vocab import KernelEventKind as Kind

# Failures of these are evidence against a GPU. Heat, power, and what only warns, are for a person to read: the thermal
# watch fires on growth, without saying how far (DCGM 4.6.0).
_OF_GPU: Final = frozenset({"PCIe system", "NVLINK system", "PMU system", "MCU system", "Memory system", "SM system"})


# Events of the kernel log about a GPU of AMD's.
OF_AMD: Final = frozenset({Kind.AMD_UNCORRECTABLE, Kind.AMD_RESET_FAILED, Kind.AMD_BAD_PAGES, Kind.GPU_INIT_FAILED})


def telemetry_signals(facts: HostFacts, table: HealthTable) -> Iterator[tuple[str, str]]:
    daemons = facts.daemons
    if daemons is not None and daemons.nvswitches and daemons.fabric_manager is False:
        yield "fabric_manager_down", f"nvidia-fabricmanager does not run, and there are {daemons.nvswitches} NVSwitches"
    yield from clock_signals(facts.clock, table)
    for interface, alarms in (facts.module_alarms or {}).items():
        yield "module_alarm", f"the module of {interface} says: {', '.join(alarms)}"
    for incident in facts.dcgm or ():
        yield _of_dcgm(incident), f"{incident.entity}: {incident.system}: {incident.health}: {incident.text}"
    for gpu in facts.amd_gpus or ():
        for name, detail in amd_signals(gpu):
            yield name, f"GPU {gpu.index}: {detail}"


def clock_signals(clock: ClockState | None, table: HealthTable) -> Iterator[tuple[str, str]]:
    if clock is not None and clock.synchronised is False:
        yield "clock_free", "its clock is not synchronised with any source"
    if clock is not None and clock.offset_s is not None and abs(clock.offset_s) >= table.threshold("clock_off"):
        yield "clock_off", f"its clock is {abs(clock.offset_s):.3g} s off the time of its sources"


def unread_telemetry(facts: HostFacts | None) -> Iterator[str]:
    """Yield the names of these signals that can't be told, or what they begin with."""
    if facts is None or facts.daemons is None:
        yield "fabric_manager_down"
    if facts is None or facts.clock is None or facts.clock.synchronised is None:
        yield "clock_"
    if facts is None or facts.module_alarms is None or any(key.startswith("module_alarms.") for key in facts.unknown):
        yield "module_alarm"
    if facts is None or facts.dcgm is None:
        yield "dcgm_"
    if facts is None or facts.amd_gpus is None or any(gpu.uncorrectable is None for gpu in facts.amd_gpus):
        yield "amd_"


def _of_dcgm(incident: DcgmIncident) -> str:
    return "dcgm_failure" if incident.health == "Failure" and incident.system in _OF_GPU else "dcgm_warning"


def amd_signals(gpu: AmdGpu) -> Iterator[tuple[str, str]]:
    if gpu.uncorrectable:
        yield "amd_ecc", f"{gpu.uncorrectable} uncorrectable errors since the driver was loaded"
    if gpu.deferred:
        yield "amd_deferred", f"{gpu.deferred} errors that were set aside before they were used"
