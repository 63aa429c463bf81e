"""Verdicts and certificates of the acceptance gate (DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from reconciler.model.privacy import FreeText, Identifier, NodeName, Privacy, PublicText, Unpublished


class Verdict(StrEnum):
    """The verdict of the gate. Only PASS admits. UNJUDGED and ERROR never count against the hardware."""

    PASS = "pass"
    FAIL = "fail"
    UNJUDGED = "unjudged"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of one command on a host. `timed_out`: it was killed at its deadline; exit_status is then -1."""

    exit_status: int
    stdout: str
    stderr: str = ""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class BootProof:
    """The result of asking a node's TPM what it booted. `evidence`: JSON values for the journal.

    `endorsement`: fingerprint of the endorsement key that the TPM proved to have; None where a rehearsal has no TPM.
    """

    judgement: GateJudgement
    endorsement: str | None = None
    phase: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComponentsProof:
    """The result of asking a node's components what they run. `evidence`: JSON values for the journal, by component."""

    judgement: GateJudgement
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test: its verdict, why, and the raw metrics that thresholds are judged from.

    `units`: of metrics whose tool prints the unit itself. `printed`: what the tool printed, until the ledger keeps that
    apart, by its digest `output`.
    """

    __test__ = False  # not a pytest class

    test: PublicText
    tool: PublicText
    verdict: Verdict
    reasons: tuple[FreeText, ...]
    metrics: Mapping[PublicText, float]
    tool_version: PublicText = ""
    evidence: Unpublished[FreeText] = ""  # an excerpt of the raw output, redacted, at most 4,000 characters
    units: Unpublished[Mapping[PublicText, FreeText]] = field(default_factory=dict)
    started_at: datetime | None = None  # None: certificates of earlier versions don't say
    ended_at: datetime | None = None
    printed: Unpublished[FreeText] = ""
    output: Unpublished[PublicText] = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """The hardware, software and tests that a gate found. What differs now voids the tests that depend on it."""

    serial: Identifier
    gpu_serials: Annotated[tuple[Identifier, ...], Privacy.UNORDERED]
    image_sha256: PublicText
    firmware: Mapping[PublicText, PublicText]
    bios_digest: PublicText
    tests_digest: PublicText
    # name -> digest; {} = issued when a certificate bound all tests as one
    tests: Mapping[PublicText, PublicText] = field(default_factory=dict)
    # serial numbers by kind of part (model.after.Exchanged); a kind that is not in it was not read
    parts: Unpublished[Mapping[PublicText, tuple[Identifier, ...]]] = field(default_factory=dict)
    software: Mapping[PublicText, PublicText] = field(
        default_factory=dict
    )  # versions of driver, CUDA and NCCL, if read
    fabric: Mapping[PublicText, PublicText] = field(default_factory=dict)  # the failure domains that are its switches


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof of some results of a certificate: for which tests, of which machine, and since when."""

    issued_at: datetime
    binding: Binding
    tests: tuple[PublicText, ...]


@dataclass(frozen=True, slots=True)
class FirstResult:
    """The metrics of a test when the node first passed it. `key`: digest of image, test, tool and its version.

    Later results with the same key are compared with them.
    """

    test: PublicText
    key: PublicText
    at: datetime
    metrics: Mapping[PublicText, float]


@dataclass(frozen=True, slots=True)
class Decline:
    """A metric with a lower limit that is less than when the node first passed the test, at `at`."""

    node: NodeName
    test: PublicText
    metric: PublicText
    unit: PublicText  # "" = a count, a ratio, or not known
    first: float
    at: datetime
    now: float

    @property
    def share(self) -> float:
        return 1 - self.now / self.first


@dataclass(frozen=True, slots=True)
class Peerless:
    """A bar by peers that does not count on some certified nodes: `min` and `max` alone decide. `why` is a sentence."""

    why: PublicText
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The newest result of each test of a node. Those that its latest gate ran prove what `binding` says.

    `earlier`: what the other results prove, which earlier gates measured and the latest one had no reason to repeat.
    """

    format_version: PublicText
    node: NodeName
    issued_at: datetime
    binding: Binding
    results: tuple[TestResult, ...]
    adopted: bool = False  # written by `adopt` for a node that served before we came; nothing was measured
    earlier: tuple[Proof, ...] = ()
    first: tuple[FirstResult, ...] = ()  # of earlier gates; a test whose first result is in this one has none

    @property
    def measured(self) -> tuple[TestResult, ...]:
        """The results of its own gate."""
        if not self.earlier:
            return self.results
        kept = {name for proof in self.earlier for name in proof.tests}
        return tuple(result for result in self.results if result.test not in kept)


@dataclass(frozen=True, slots=True)
class GateJudgement:
    """A certificate, read against today's profile and hardware. `by_test`: why each test has no valid result."""

    valid: bool
    verdict: Verdict
    reasons: tuple[str, ...] = field(default=())
    by_test: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
