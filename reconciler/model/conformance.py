"""Hold what a conformance suite checks of a machine, and what it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

FORMAT: Final = "1.0"


class CheckResult(StrEnum):
    """How one check ended. Only `fail` is an error: what is not offered the reconciler does without."""

    PASS = "pass"
    FAIL = "fail"
    NOT_OFFERED = "not offered"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is checked.

    `clause`: where the standard asks for it. `pitfalls`: IDs of ours that it stands for. `without`: what the reconciler
    does where it fails or is not offered. `writes`: what it changes and puts back; "" for a check that only reads.
    """

    name: str
    clause: str
    without: str
    pitfalls: tuple[str, ...] = ()
    writes: str = ""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """`unanswered`: it is not tried since the subject went away in its midst, or before."""

    check: Check
    result: CheckResult
    detail: str = ""
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """The outcome of a suite, in the order of its checks. `about`: what the subject says of itself, by name."""

    suite: str
    address: str
    outcomes: tuple[CheckOutcome, ...]
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[CheckResult, int]:
        found = Counter(outcome.result for outcome in self.outcomes)
        return {result: found[result] for result in CheckResult}

    @property
    def broken_off(self) -> bool:
        """Say whether the subject went away before all checks were tried."""
        return any(one.unanswered for one in self.outcomes)

    @property
    def answered(self) -> bool:
        """Say whether the subject answered at all: one check passed or was found to be not offered."""
        return any(one.result in (CheckResult.PASS, CheckResult.NOT_OFFERED) for one in self.outcomes)
