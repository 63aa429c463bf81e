"""The first line of a report, which a commit status shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict of a report, for whoever decides about a merge."""

    GOOD = "good"  # it may go on
    BAD = "bad"  # a person has to look first
    BROKEN = "broken"  # there is no report


@dataclass(frozen=True, slots=True)
class Headline:
    sign: str
    text: str
    verdict: Verdict
