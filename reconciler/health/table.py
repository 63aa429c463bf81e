"""What each signal leads to: a closed table, reviewed like code.

A signal that is not listed here can't be raised (`effect_of` raises KeyError, and a test raises every signal). What
isolates does so on hard evidence alone: a part that is gone, memory that can't be contained or repaired, a code whose
remedy is a repair. A fault of telemetry must never cordon a fleet, so whatever may be one repairs or reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


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
    "condition_": Row(
        Effect.ISOLATES, "the policy names this condition, which a detector has set on the node object", latched=True
    ),
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


def isolating(paths: Iterable[str]) -> tuple[str, ...]:
    """Of value paths (health.NAME), those of signals that isolate. `host_down` and the like are no signals."""
    return tuple(path for path in paths if _isolates(path))


@cache
def _isolates(path: str) -> bool:
    name = path.removeprefix("health.")
    try:
        return name != path and effect_of(name) is Effect.ISOLATES
    except KeyError:
        return False
