"""The acceptance tests of a node as the spec resolves them: phases, tests, bars and peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Peers:
    """The figures of a metric on `n` certified peers of a node, by one version of the tool."""

    tool_version: str
    n: int
    median: float
    mad: float  # median absolute deviation


@dataclass(frozen=True, slots=True)
class Cohort:
    """A bound by peers: a node fails that is below their median by this share, and by this modified z-score."""

    below: float
    modified_z: float
    peers: tuple[Peers, ...] = ()  # one for each version of the tool of which the spec has a reference


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound of a metric, named as the test's parser names it. `min` and `max` are inclusive."""

    metric: str
    min: float | None = None
    max: float | None = None
    cohort: Cohort | None = None


@dataclass(frozen=True, slots=True)
class GateTest:
    name: str
    tool: str  # dcgmi-diag | nvbandwidth | nccl-tests | fio | inventory | xid
    args: Mapping[str, str | int | bool]  # by tool, see gate/tools.py
    thresholds: tuple[Threshold, ...]
    timeout_s: float
    versions: tuple[str, ...] = ()  # allowed tool versions, by prefix; () = the parser's own list
    allow_skip: tuple[str, ...] = ()  # sub-tests that this hardware may skip
    validity_s: float | None = None  # None: that of the profile


@dataclass(frozen=True, slots=True)
class GatePhase:
    name: str
    tests: tuple[GateTest, ...]


@dataclass(frozen=True, slots=True)
class Revalidation:
    """When a result is renewed before it expires: how long before, and whether a node with work is drained for it."""

    before_s: float
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Acceptance:
    name: str
    phases: tuple[GatePhase, ...]
    validity_s: float | None  # None: a certificate does not age
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what was done -> names of the tests it costs
    revalidate: Revalidation | None = None

    @property
    def tests(self) -> tuple[GateTest, ...]:
        return tuple([test for phase in self.phases for test in phase.tests])


@dataclass(frozen=True, slots=True)
class AskedGate:
    """A gate that a person asks for by hand: no certificate of before `since` counts.

    `other`: the tests of another profile than the node's own, which certify nothing and admit nobody.
    """

    since: datetime
    by: str
    other: Acceptance | None = None
