"""Rows of what gates measured: one for each attempt, test, part and metric, with unit and the key of its peers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from reconciler.model.gate import Verdict

SEARCH: Final = "gate fabric"  # as the profile of what a search of the fabric measured: no profile has such a name

RUNS: Final = "runs"  # of a search with a node, and how many of them were low
LOW_RUNS: Final = "low_runs"
NODES: Final = "nodes"  # with how many a node was measured together, itself among them
COUNTS: Final = frozenset({RUNS, LOW_RUNS, NODES})  # that are no figures of a node


class Measurement(NamedTuple):  # made by the million, four times as fast as a frozen dataclass
    """One figure. `part`: of the node, "" for the node or its worst part. `unit`: "" of a count or a ratio."""

    metric: str
    part: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class TestRun:
    """One test of one attempt at a gate, as it was judged then.

    `attempt`: in the journal. `profile`: the AcceptanceProfile, if it was another than the node's own, or SEARCH.
    `key`: digest of what peers have in common, as for references. `output`: digest of what the tool printed; "" =
    nothing is kept.
    """

    __test__ = False  # not a pytest class

    node: str
    attempt: int
    profile: str
    test: str
    tool: str
    tool_version: str
    verdict: Verdict
    reasons: tuple[str, ...]
    key: str
    started_at: datetime
    ended_at: datetime
    output: str
    measurements: tuple[Measurement, ...]


class ResultRow(NamedTuple):  # as Measurement
    """One row of results, with the words that the ledger has. `value` None: the test has measured nothing."""

    node: str
    attempt: int
    profile: str
    test: str
    tool: str
    tool_version: str
    verdict: str
    key: str
    started_at: datetime
    ended_at: datetime
    output: str
    metric: str
    part: str
    value: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of results. `nodes`: their names. "" and None select all."""

    nodes: tuple[str, ...]
    test: str = ""
    metric: str = ""
    since: datetime | None = None
