"""The consequence of each signal: a closed table, reviewed like code.

A signal that is not listed here can't be raised (`effect_of` raises KeyError, and a test raises every signal). Only
hard evidence isolates a node: a missing part, memory that can't be contained or repaired, a code whose remedy is a
repair. A fault of telemetry must never cordon a fleet, so signals that may be such a fault repair or report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Effect(StrEnum):
    """The consequence of a signal."""

    ISOLATES = "isolates"  # cordoned and marked at once, without budget, wave or brake; repaired as the budget allows
    REPAIRS = "repairs"  # unhealthy: drained and repaired as budget and brake allow
    REPORTS = "reports"  # reported as drift; nothing is done, and the node may serve


class Remedy(StrEnum):
    """The kind of repair that may heal the cause of a signal."""

    LADDER = "ladder"  # every rung of the ladder
    POWER = "power"  # a reboot or a power cycle; wiping a disk brings no part back
    PERSON = "person"  # no rung: a person must replace a part, and further tries would harm the node or its data


@dataclass(frozen=True, slots=True)
class SignalRule:
    """The consequence of a signal, why, and what may heal it.

    A `latched` signal is evidence after one reading: an event, or a state that only a repair or a reset clears. Others
    need two readings. `remedy` matters for signals that isolate or repair.
    """

    effect: Effect
    why: str
    latched: bool = False
    remedy: Remedy = Remedy.LADDER


# By the name of the signal. A name that ends in "_" is for all signals that begin with it and have no row of their own.
SIGNAL_RULES: Mapping[str, SignalRule] = {
    "gpu_missing": SignalRule(Effect.ISOLATES, "jobs that ask for all GPUs of the node fail on it"),
    "gpu_recovery": SignalRule(Effect.REPAIRS, "the driver itself asks for a reset or a boot; a boot answers both"),
    "gpu_init_failed": SignalRule(
        Effect.REPAIRS, "a GPU that the driver can't initialise; without power it may", latched=True
    ),
    "inforom_corrupt": SignalRule(
        Effect.REPORTS, "the board's record of itself is damaged; nvidia-smi calls it a warning"
    ),
    "ecc": SignalRule(
        Effect.REPAIRS, "an uncorrectable error was contained or has ended a job; a reset retires the row"
    ),
    "ecc_disabled": SignalRule(Effect.REPORTS, "a setting: errors pass unseen, and no repair turns it on"),
    "ecc_ever": SignalRule(Effect.REPORTS, "a count over the life of the board, of errors that were dealt with"),
    "rows_remapped": SignalRule(Effect.REPORTS, "rows that were repaired; the board has spare ones for them"),
    "row_remap_failed": SignalRule(
        Effect.ISOLATES, "memory that can't be repaired any more (XID 64)", latched=True, remedy=Remedy.PERSON
    ),
    "row_remap_pending": SignalRule(Effect.REPAIRS, "a reset brings the spare row in"),
    "sram_threshold": SignalRule(
        Effect.ISOLATES, "NVIDIA's own bar for SRAM: the board is to be replaced", latched=True, remedy=Remedy.PERSON
    ),
    "unrepairable_memory": SignalRule(
        Effect.ISOLATES, "memory that can't be repaired any more", latched=True, remedy=Remedy.PERSON
    ),
    "repair_pending": SignalRule(Effect.REPAIRS, "a reset brings the repair of a channel or a TPC in"),
    "fabric": SignalRule(Effect.REPAIRS, "NVLink between GPUs does not work; a reboot registers them anew"),
    "fabric_recovers": SignalRule(
        Effect.REPORTS, "the fabric moves routes by itself: what it can't mend, it calls unhealthy"
    ),
    "thermal_slowdown": SignalRule(Effect.REPORTS, "it slows the node and hurts no result; mostly the room or a fan"),
    "power_brake": SignalRule(
        Effect.REPORTS, "all GPUs at once: a power supply or a PDU, which no repair of the node mends"
    ),
    "pcie_width": SignalRule(
        Effect.REPAIRS,
        "slower than its siblings; a boot trains the link anew, else the board wants reseating",
        remedy=Remedy.POWER,
    ),
    "pcie_narrow": SignalRule(
        Effect.REPORTS, "all GPUs of its model alike: slots are wired so (AWS g4dn and g5 give 8 lanes of 16)"
    ),
    "pcie_gen": SignalRule(Effect.REPORTS, "one look under load: slow at most, and telemetry may err"),
    "pcie_replays": SignalRule(
        Effect.REPORTS, "a counter without a rate: wear of a riser or a cable, errors were repaired"
    ),
    "persistence_off": SignalRule(Effect.REPORTS, "a setting: the driver unloads between jobs"),
    "nvlink_down": SignalRule(Effect.REPAIRS, "collectives are slow or fail; a reset may train the link anew"),
    "nvlink_slow": SignalRule(Effect.REPAIRS, "collectives are as slow as the link; a reset may train it anew"),
    "port_missing": SignalRule(Effect.ISOLATES, "jobs that use all ports of the node fail on it", remedy=Remedy.POWER),
    "port_slow": SignalRule(
        Effect.REPAIRS,
        "collectives are as slow as the port; a boot may train it anew, else the cable",
        remedy=Remedy.POWER,
    ),
    "port_uneven": SignalRule(
        Effect.REPORTS, "no rate is declared, and nodes have storage ports and DPUs of other rates"
    ),
    "nvme_critical": SignalRule(
        Effect.REPAIRS, "the drive says that it fails: read-only, unreliable or without backup", remedy=Remedy.PERSON
    ),
    "nvme_hot": SignalRule(Effect.REPORTS, "passes; mostly the room or a fan"),
    "nvme_worn": SignalRule(
        Effect.REPORTS, "the warranty's writes are used up; the drive works until it says otherwise"
    ),
    "nvme_spare": SignalRule(Effect.REPORTS, "to be replaced soon; the drive works until it says otherwise"),
    "pcie_fatal": SignalRule(
        Effect.REPAIRS, "a device was cut off from the bus; a boot brings it back", latched=True, remedy=Remedy.POWER
    ),
    "memory_ue": SignalRule(Effect.ISOLATES, "a DIMM has lost data, and will again", latched=True, remedy=Remedy.POWER),
    "machine_check": SignalRule(
        Effect.REPAIRS, "a processor has met an error that it could not correct", latched=True, remedy=Remedy.POWER
    ),
    "nic_failed": SignalRule(
        Effect.REPAIRS, "firmware of an adapter hangs, though its port may read up", latched=True, remedy=Remedy.POWER
    ),
    "nic_module": SignalRule(
        Effect.REPORTS, "a cable or a module at fault; where the port goes down, port_missing says so"
    ),
    "boot_refuted": SignalRule(
        Effect.ISOLATES,
        "its TPM shows that it booted something else than what is declared, or is another machine's; a boot is asked "
        "anew",
        latched=True,
    ),
    "xid_64": SignalRule(Effect.ISOLATES, "row remapping failed: memory that can't be repaired any more", latched=True),
    "xid_79": SignalRule(Effect.ISOLATES, "the GPU has fallen off the bus", latched=True),
    "xid_95": SignalRule(
        Effect.ISOLATES, "an uncontained memory error: what runs on this GPU may be wrong", latched=True
    ),
    "xid_": SignalRule(Effect.REPAIRS, "a code whose remedy is a reset, a reboot or a look", latched=True),
    "condition_": SignalRule(
        Effect.ISOLATES, "the policy names this condition, which a detector has set on the node object", latched=True
    ),
    # Signals of the BMC (health/bmc.py). Its inventory is up to a day old, and read sooner while something is wrong.
    "dimm_ue": SignalRule(
        Effect.ISOLATES,
        "the BMC has logged an uncorrectable error of memory, of which firmware may tell the host nothing; healed by a "
        "new module and a cleared or repaired log entry",
        latched=True,
        remedy=Remedy.PERSON,
    ),
    "dimm_failed": SignalRule(
        Effect.ISOLATES, "the BMC judges a memory module that is in use as critical", remedy=Remedy.PERSON
    ),
    "dimm_missing": SignalRule(
        Effect.ISOLATES, "memory that the node is declared to have is gone: jobs are sized for it", remedy=Remedy.PERSON
    ),
    "drive_missing": SignalRule(
        Effect.ISOLATES, "a drive that the node is declared to have is gone, and what was on it", remedy=Remedy.POWER
    ),
    "nic_missing": SignalRule(
        Effect.ISOLATES,
        "a port that the node is declared to have is gone: collectives fail or crawl",
        remedy=Remedy.POWER,
    ),
    "processor_missing": SignalRule(
        Effect.ISOLATES, "a processor that the node is declared to have is gone", remedy=Remedy.PERSON
    ),
    "leak": SignalRule(
        Effect.ISOLATES,
        "coolant destroys what it reaches, and nothing but a person stops it: no new work starts there meanwhile",
        remedy=Remedy.PERSON,
    ),
    "drive_failed": SignalRule(
        Effect.REPORTS,
        "BMCs judge drives of other makes as critical that serve (iLO 5); a drive that fails in earnest goes missing, "
        "and its own SMART log is read over SSH",
    ),
    "drive_failing": SignalRule(Effect.REPORTS, "it predicts its failure: to be swapped at the next outage"),
    "psu_failed": SignalRule(Effect.REPORTS, "supplies are redundant; with none left the node would be off"),
    "fan_failed": SignalRule(Effect.REPORTS, "fans are redundant; what gets too hot throttles, which the host tells"),
    "sensor_critical": SignalRule(Effect.REPORTS, "a threshold of the vendor's: one sensor may be broken or badly set"),
    "subsystem_health": SignalRule(
        Effect.REPORTS, "a roll-up of a board, chassis, GPU or switch: what is behind it has a signal of its own"
    ),
    "bmc_health": SignalRule(Effect.REPORTS, "a roll-up of everything: a dead redundant supply makes it critical"),
    "bmc_event_critical": SignalRule(Effect.REPORTS, "vendors log an open lid as critical: for a person to read"),
}


def rule_of(name: str) -> SignalRule:
    """Return the rule for a signal. Raise KeyError when there is none."""
    found = SIGNAL_RULES.get(name)
    if found is None:
        prefixes = [known for known in SIGNAL_RULES if known.endswith("_") and name.startswith(known)]
        if not prefixes:
            raise KeyError(f"signal {name!r} has no row in health/table.py")
        found = SIGNAL_RULES[max(prefixes, key=len)]
    return found


def remedy_of(names: Iterable[str]) -> Remedy:
    """Return the strictest remedy of these signals: a node returns to service only when all of them are healed."""
    found = {rule_of(name).remedy for name in names}
    return next((one for one in (Remedy.PERSON, Remedy.POWER) if one in found), Remedy.LADDER)


def effect_of(name: str) -> Effect:
    return rule_of(name).effect


def for_a_person(paths: Iterable[str]) -> tuple[str, ...]:
    """Return those value paths whose signals no rung of the ladder heals."""
    return tuple(path for path in paths if (row := _rule_at(path)) is not None and row.remedy is Remedy.PERSON)


def isolating(paths: Iterable[str]) -> tuple[str, ...]:
    """Return those value paths (health.NAME) whose signals isolate. `host_down` and others without a rule do not."""
    return tuple(path for path in paths if (row := _rule_at(path)) is not None and row.effect is Effect.ISOLATES)


@cache
def _rule_at(path: str) -> SignalRule | None:
    name = path.removeprefix("health.")
    try:
        return None if name == path else rule_of(name)
    except KeyError:
        return None
