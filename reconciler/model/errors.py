"""The errors of the reconciler and their exit codes.

    ReconcilerError
    |- SpecError(diagnostics)     the spec is invalid; nothing was contacted           exit 3
    |- UsageError                 the command line makes no sense                      exit 64
    |- LeaseHeld(holder)          somebody else is writing                             exit 6
    |- StalePlan                  no selected node of the plan may still be applied    exit 5
    |- Refused                    a policy forbids it                                  exit 8
    |- Blind                      it is this machine that sees nothing                 exit 4
    |- LedgerError                the ledger can't be read or written                  exit 1
    `- DriverError(kind, detail)  a BMC, host or cluster did not do as asked; stays within its node

Problems of users are `Diagnostic` values, collected and shown together; exceptions abort. Programming errors
(TypeError, KeyError in our own code) in the work on one node end that node's work as "crashed" (model/crash.py), which
is exit 1; anywhere else they abort the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from reconciler.model.printable import visible, without_attempts
from reconciler.model.vocab import UnknownReason


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the spec. `line` and `column` count from 1; 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def read_position(text: str) -> Position:
    """Return the position that `str` wrote."""
    file, *numbers = text.rsplit(":", 2)
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        return Position(file, int(numbers[0]), int(numbers[1]))
    return Position(text)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem, printed as `file:line:column path: problem (hint)`."""

    at: Position
    path: str
    problem: str
    hint: str = ""
    severity: str = "error"  # error | warning

    def __str__(self) -> str:
        where = f"{self.at} {self.path}: " if self.path else f"{self.at}: "
        return visible(where + self.problem + (f" ({self.hint})" if self.hint else ""))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint: the nearest of the known words, or all of them where they are few."""
    words = sorted({str(word) for word in known})
    folded = {candidate.casefold(): candidate for candidate in words}
    near = get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    return f"known: {', '.join(words)}" if 0 < len(words) <= 12 else ""


class ReconcilerError(Exception):
    """The root of the errors that the command line turns into a message and an exit code."""

    def lines(self) -> tuple[str, ...]:
        """Return the message, one line for each problem, with control characters escaped."""
        return (visible(str(self)),)


class SpecError(ReconcilerError):
    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__("\n".join(map(str, diagnostics)))
        self.diagnostics = diagnostics

    def lines(self) -> tuple[str, ...]:
        return tuple(map(str, self.diagnostics))


class UsageError(ReconcilerError):
    pass


class LeaseHeld(ReconcilerError):
    def __init__(self, holder: str, message: str) -> None:
        super().__init__(message)
        self.holder = holder


class StalePlan(ReconcilerError):
    pass


class PartlyDone(ReconcilerError):
    """A command did a part of its work. The message says what is left; the same command goes on."""


class Refused(ReconcilerError):
    pass


class Blind(ReconcilerError):
    pass


class LedgerError(ReconcilerError):
    pass


class NoLedger(LedgerError, UsageError):
    """A command that makes no ledger was to open one that is not there. `name`: its file, or URL without password."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no ledger {name}")
        self.name = name


class BadLedgerUrl(LedgerError, UsageError):
    """The URL of a ledger can't be read, or names a database that no ledger can be kept in."""


class Failure(StrEnum):
    """Kinds of DriverError. AMBIGUOUS: a write may or may not have happened (pitfall A3)."""

    UNREACHABLE = "unreachable"
    AUTH = "auth"
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    REJECTED = "rejected"  # understood and refused: asking again changes nothing
    BUSY = "busy"  # refused for now: 429, 503, "not ready", a PodDisruptionBudget
    CONFLICT = "conflict"  # the object changed between read and write
    AMBIGUOUS = "ambiguous"


# Why a source is silent that failed so. A write of a read, such as a login, may have been done: its answer is late.
SILENT_BECAUSE: Final[Mapping[Failure, UnknownReason]] = {
    Failure.UNREACHABLE: UnknownReason.UNREACHABLE,
    Failure.AUTH: UnknownReason.AUTH,
    Failure.TIMEOUT: UnknownReason.TIMEOUT,
    Failure.MALFORMED: UnknownReason.MALFORMED,
    Failure.UNSUPPORTED: UnknownReason.UNSUPPORTED,
    Failure.REJECTED: UnknownReason.UNSUPPORTED,
    Failure.BUSY: UnknownReason.BUSY,
    Failure.CONFLICT: UnknownReason.UNREACHABLE,
    Failure.AMBIGUOUS: UnknownReason.TIMEOUT,
}


class DriverError(ReconcilerError):
    """A failure of a port: of a write, or of a read that does not return `Answered | Silent`.

    `retry_after`: seconds of wall-clock time, where the other side said so.
    """

    def __init__(self, kind: Failure, detail: str, *, retry_after: float | None = None) -> None:
        detail = without_attempts(detail)  # BMCs repeat the URL of a boot medium
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after


def first_of_ours(group: ExceptionGroup[Exception]) -> ReconcilerError | None:
    """Return the first error when all are ours, to report it once: a missing secret ends every task that wants it.

    Return None when one of them is a programming error.
    """
    told, others = group.split(ReconcilerError)
    found: Exception | None = told
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found if others is None and isinstance(found, ReconcilerError) else None
