"""What a forge holds: pull requests, what was said on them, issues, and the verdicts of checks on commits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Check(StrEnum):
    """The verdict on a commit, for the rules that protect a branch."""

    SUCCESS = "success"
    FAILURE = "failure"  # a person has to look
    ERROR = "error"  # nobody could judge


@dataclass(frozen=True, slots=True)
class Pull:
    number: int
    head: str  # commit
    fork: bool = False  # of another repository than it is made to


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment of ours, or an issue of ours with its number for `id`. `handle`: the forge's own name for it."""

    id: int
    text: str
    url: str
    handle: str = ""
