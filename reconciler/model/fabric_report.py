"""The report of a search for what is at fault in a fabric (`gate fabric`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

FABRIC_FORMAT: Final = "1.0"


@dataclass(frozen=True, slots=True)
class BlamedPart:
    """A part and its account: `lows` of `runs` that passed it were low, with these partners.

    `kind`, such as "NIC" or "leaf", `name` of its node, leaf or rack, and `rail` as the test calls it; "" for all.
    """

    kind: str
    name: str
    rail: str
    lows: int
    runs: int
    partners: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.name))) + (f", rail {self.rail}" if self.rail else "")


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A part that a search named, and that no later one has found well. `nodes`: those that it is about.

    `incident`: nodes share it. `run`: the last search that named it. `since`: when the first one did.
    """

    part: BlamedPart
    incident: bool
    test: str
    nodes: tuple[str, ...]
    run: str
    since: datetime


@dataclass(frozen=True, slots=True)
class FabricReport:
    """The result of a search. `run`: its id, by which it is shown again.

    `at_fault`: parts of single nodes. `incidents`: causes that nodes share, which are no node's fault. `left_out` and
    `undecided`: node -> why. `accounts`: every part that was low, the worst first. `unrun`: why tests could not run.
    `open`: these parts, and those of earlier searches that nothing has found well since.
    """

    format_version: str
    run: str
    fleet: str
    test: str
    nodes: tuple[str, ...]
    left_out: Mapping[str, str]
    at_fault: tuple[BlamedPart, ...]
    incidents: tuple[BlamedPart, ...]
    good: tuple[str, ...]
    undecided: Mapping[str, str]
    accounts: tuple[BlamedPart, ...]
    unrun: tuple[str, ...]
    rounds: int
    started_at: datetime
    ended_at: datetime
    open: tuple[OpenPart, ...] = ()
