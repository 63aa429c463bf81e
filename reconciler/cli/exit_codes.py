"""Exit codes, stable from the first version (DESIGN section 11)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from reconciler.model.errors import (
    Blind,
    LeaseHeld,
    PartlyDone,
    ReconcilerError,
    Refused,
    SpecError,
    StalePlan,
    UsageError,
)


class ExitCode(IntEnum):
    DONE = 0
    INTERNAL_ERROR = 1
    CHANGES = 2  # only with --detailed-exitcode
    SPEC_INVALID = 3  # nothing was contacted
    INCOMPLETE = 4
    STALE = 5
    LEASE_HELD = 6
    PARTLY_FAILED = 7
    REFUSED = 8
    USAGE = 64
    INTERRUPTED = 130


MEANING = {
    ExitCode.DONE: "done; nothing pending, or changes or waits present without --detailed-exitcode",
    ExitCode.INTERNAL_ERROR: "internal error",
    ExitCode.CHANGES: "only with --detailed-exitcode: drift, unknown values, changes or waits present",
    ExitCode.SPEC_INVALID: "spec invalid; nothing was contacted",
    ExitCode.INCOMPLETE: "observation incomplete beyond Fleet.observation.tolerate",
    ExitCode.STALE: "every selected node of the plan is stale, or the plan is used up or expired; nothing was done",
    ExitCode.LEASE_HELD: "lease held by someone else",
    ExitCode.PARTLY_FAILED: "apply partly failed, and the report names done, failed, not started; "
    "or a gate, a check of conformance or a signal played in the lab failed",
    ExitCode.REFUSED: "refused by policy: a guard, a halted rollout, or nothing may start and nothing will",
    ExitCode.USAGE: "usage error",
    ExitCode.INTERRUPTED: "interrupted; everything in flight is journaled",
}

_PRECEDENCE = (
    ExitCode.USAGE, ExitCode.INTERRUPTED, ExitCode.INTERNAL_ERROR, ExitCode.PARTLY_FAILED, ExitCode.STALE,
    ExitCode.LEASE_HELD, ExitCode.REFUSED, ExitCode.SPEC_INVALID, ExitCode.INCOMPLETE, ExitCode.CHANGES, ExitCode.DONE,
)  # fmt: skip


def strongest(codes: Iterable[ExitCode | int]) -> ExitCode:
    """Return the code that wins when several apply. The order is 64, 130, 1, 7, 5, 6, 8, 3, 4, 2, 0."""
    return min(map(ExitCode, codes), key=_PRECEDENCE.index, default=ExitCode.DONE)


def exit_code_of(error: ReconcilerError | KeyboardInterrupt) -> ExitCode:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    table: tuple[tuple[type[ReconcilerError], ExitCode], ...] = (
        (SpecError, ExitCode.SPEC_INVALID),
        (UsageError, ExitCode.USAGE),
        (LeaseHeld, ExitCode.LEASE_HELD),
        (StalePlan, ExitCode.STALE),
        (Refused, ExitCode.REFUSED),
        (Blind, ExitCode.INCOMPLETE),
        (PartlyDone, ExitCode.PARTLY_FAILED),
    )
    return next((code for kind, code in table if isinstance(error, kind)), ExitCode.INTERNAL_ERROR)
