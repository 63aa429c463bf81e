"""What each signal leads to: a closed table, reviewed like code.

A signal that is not listed here can't be raised (`effect_of` raises KeyError, and a test raises every signal). What
isolates does so on hard evidence alone: a part that is gone, memory that can't be contained or repaired, a code whose
remedy is a repair. A fault of telemetry must never cordon a fleet, so whatever may be one repairs or reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a signal leads to."""

    ISOLATES = (
        "isolates"  # cordoned and marked at once, whatever budget, wave or brake say; repaired as the budget allows
    )
    REPAIRS = "repairs"  # unhealthy: drained and repaired as budget and brake allow
    REPORTS = "reports"  # told as drift; nothing is done, and the node may serve


@dataclass(frozen=True, slots=True)
class Row:
    """`latched`: one read is evidence: an event, or a state that only a repair or a reset clears. Otherwise two are."""

    effect: Effect
    why: str
    latched: bool = False


# By the signal's name; a name that ends in "_" stands for all that begin so and have no row of their own.
TABLE: Mapping[str, Row] = {
    "gpu_missing": Row(Effect.ISOLATES, "jobs that ask for all GPUs of the node fail on it"),
    "ecc": Row(Effect.REPAIRS, "an uncorrectable error was contained or has ended a job; a reset retires the row"),
    "row_remap_failed": Row(Effect.ISOLATES, "memory that can't be repaired any more (XID 64)", latched=True),
    "row_remap_pending": Row(Effect.REPAIRS, "a reset brings the spare row in"),
    "nvlink_down": Row(Effect.REPAIRS, "collectives are slow or fail; a reset may train the link anew"),
    "xid_": Row(Effect.REPAIRS, "a code whose remedy is a reset, a restart or a look"),
    # What the BMC says (health/bmc.py). Its inventory is up to a day old, and read again soon while something is wrong.
    "dimm_ue": Row(
        Effect.ISOLATES,
        "the BMC has logged an uncorrectable error of memory, of which firmware may tell the host nothing; healed by a "
        "new module and a cleared or repaired log entry",
        latched=True,
    ),
    "dimm_failed": Row(Effect.ISOLATES, "the BMC judges a memory module that is in use as critical"),
    "dimm_missing": Row(Effect.ISOLATES, "memory that the node is declared to have is gone: jobs are sized for it"),
    "drive_missing": Row(Effect.ISOLATES, "a drive that the node is declared to have is gone, and what was on it"),
    "nic_missing": Row(Effect.ISOLATES, "a port that the node is declared to have is gone: collectives fail or crawl"),
    "processor_missing": Row(Effect.ISOLATES, "a processor that the node is declared to have is gone"),
    "leak": Row(
        Effect.ISOLATES,
        "coolant destroys what it reaches, and nothing but a person stops it: no new work starts there meanwhile",
    ),
    "drive_failed": Row(
        Effect.REPORTS,
        "BMCs judge drives of other makes as critical that serve (iLO 5); a drive that fails in earnest goes missing, "
        "and its own SMART log is read over SSH",
    ),
    "drive_failing": Row(Effect.REPORTS, "it predicts its failure: to be swapped at the next outage"),
    "psu_failed": Row(Effect.REPORTS, "supplies are redundant; with none left the node would be off"),
    "fan_failed": Row(Effect.REPORTS, "fans are redundant; what gets too hot throttles, which the host tells"),
    "sensor_critical": Row(Effect.REPORTS, "a threshold of the vendor's: one sensor may be broken or badly set"),
    "subsystem_health": Row(
        Effect.REPORTS, "a roll-up of a board, chassis, GPU or switch: what is behind it has a signal of its own"
    ),
    "bmc_health": Row(Effect.REPORTS, "a roll-up of everything: a dead redundant supply makes it critical"),
    "bmc_event_critical": Row(Effect.REPORTS, "vendors log an open lid as critical: for a person to read"),
    "condition_": Row(Effect.ISOLATES, "the policy names this condition of the cluster's node object"),
}


def row_of(name: str) -> Row:
    """KeyError when no row speaks of this signal."""
    found = TABLE.get(name)
    if found is None:
        prefixes = [known for known in TABLE if known.endswith("_") and name.startswith(known)]
        if not prefixes:
            raise KeyError(f"signal {name!r} has no row in health/table.py")
        found = TABLE[max(prefixes, key=len)]
    return found


def effect_of(name: str) -> Effect:
    return row_of(name).effect
