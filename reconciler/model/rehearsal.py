"""The forecast of a rehearsal, as a document. Data only; render/ makes it text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reconciler.model.desired import SpecSource
from reconciler.model.plan import Scope

REHEARSAL_FORMAT = "1.0"


@dataclass(frozen=True, slots=True)
class PeakOut:
    """One limit, and how many nodes were out under it at once, at most, in any of the runs."""

    scope: str  # "fleet", "pool train-a", "rack r1", "persona training"
    limit: int
    total: int
    at_start: int
    peak: int


@dataclass(frozen=True, slots=True)
class RehearsedWave:
    """Seconds from the start of the rollout: the median of the runs that reached it. None: none of them did."""

    pool: str
    number: int  # from 1
    nodes: int
    start_s: float | None
    end_s: float | None  # when the last of its nodes was done
    reached: int  # in how many runs its first node began
    finished: int  # and in how many all of them were done


@dataclass(frozen=True, slots=True)
class RehearsedHalt:
    pool: str
    wave: int  # from 1
    runs: int  # that ended so
    why: str  # of one of them


@dataclass(frozen=True, slots=True)
class BrokenInvariant:
    """This must never happen. `at`: of the rehearsal's own time."""

    invariant: str
    node: str
    evidence: str
    at: datetime
    seed: int


@dataclass(frozen=True, slots=True)
class RehearsedRun:
    """`seconds`: to the end of the last action. `failed_in`: action -> nodes that it brought to a failed end."""

    seed: int
    seconds: float
    converged: int
    failed: int
    not_reached: int
    peak_out: int
    actions: int
    failed_in: Mapping[str, int]
    halted: tuple[str, ...]  # pools


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`failure_rates`: action -> share of nodes on which it fails each time; "*" = of every other action.

    `seen_in`: the file of the observation, or "" when the nodes were read now. `changes`: there was anything to do.
    """

    format_version: str
    tool_version: str
    fleet: str
    source: SpecSource
    base: SpecSource | None
    scope: Scope
    seen_at: datetime
    seen_in: str
    starts_at: datetime
    failure_rates: Mapping[str, float]
    nodes_with_changes: int
    refused: tuple[str, ...]  # by which guards: nothing was played then
    runs: tuple[RehearsedRun, ...]
    p50_s: float | None
    p90_s: float | None
    limits: tuple[PeakOut, ...]
    waves: tuple[RehearsedWave, ...]
    halted: tuple[RehearsedHalt, ...]
    broken: tuple[BrokenInvariant, ...]
    left: Mapping[str, int]  # why nodes were not reached, or failed, in words -> nodes, of the first run
    supposed: tuple[str, ...]  # what the rehearsal takes for granted, in sentences
    insecure: tuple[str, ...] = ()
