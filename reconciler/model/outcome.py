"""The outcomes of an action: a closed union, matched exhaustively."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Begins the detail of a drain that waits for what is of others: it is told from the journal, too.
UNPREPARED: Final = "nothing was evicted: "
TOGETHER: Final = "nobody was cut off: "  # so does that of a cut which waits for those that share the outlets
WAITED: Final = (UNPREPARED, TOGETHER)


@dataclass(frozen=True, slots=True)
class Done:
    detail: str = ""
    changed: bool = True  # False: it was already so


@dataclass(frozen=True, slots=True)
class Transient:
    detail: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Permanent:
    detail: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """The write may have happened. Observe again; never repeat blindly (pitfall A3)."""

    detail: str


@dataclass(frozen=True, slots=True)
class Declined:
    """Not tried: a precondition, a hold, the budget, or the identity check forbade it. Nothing is changed."""

    code: str
    detail: str

    @property
    def waits(self) -> bool:
        """Return whether it waits for what is of others, as a Deployment that nobody may raise: no node failed."""
        return self.detail.startswith(WAITED)


Outcome = Done | Transient | Permanent | Ambiguous | Declined


def outcome_word(outcome: Outcome) -> str:
    """Return the word that reports and the ledger use: done, transient, permanent, ambiguous, refused."""
    return "refused" if isinstance(outcome, Declined) else type(outcome).__name__.lower()
