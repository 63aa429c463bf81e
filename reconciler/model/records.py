"""What the ledger keeps about nodes, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from reconciler.model.gate import Certificate
from reconciler.model.json_text import parse_json

MARK_TAINT = "reconciler.dev/maintenance"
OWNER_ANNOTATION = "reconciler.dev/owner"  # JSON of Mark
BMC_SCOPE = "bmc/"  # of leases on BMCs; each belongs to the run that holds its fleet's
FLEET = "fleet/*"  # subject of a hold that stops everything; no node and no pool can be called so
STORM = "fleet/storm"  # of a hold that forbids whatever disrupts: the storm brake
RETRACTED = "isolation/"  # subject of a hold, before a signal's name: nobody is isolated or repaired for it
ISOLATED = "isolated: "  # before the signals, as the reason of a mark and the cause of the attempt that set it
CHANGES = (
    "changes/"  # before a fleet's name: the record that keeps since when version, spec and drivers are what they are
)


@dataclass(frozen=True, slots=True)
class Mark:
    """The owner annotation on a cluster node. `cordoned`: our patch set `unschedulable`, so ours to lift."""

    ledger: str
    plan: str
    reason: str
    at: str
    cordoned: bool


@dataclass(frozen=True, slots=True)
class Hold:
    """`position`: where the spec declared it, when it was copied; "" = it was set by a command."""

    id: int
    subject: str  # node name, "pool/<name>", FLEET, STORM or RETRACTED with a signal's name
    reason: str
    owner: str
    since: datetime
    until: datetime | None = None
    position: str = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A change of the spec on its way through a pool, as first admitted (DESIGN 7.2). Values are JSON values by path.

    `members`: in the order in which they go, canaries first. Nothing of its progress is kept: that is observed.
    """

    pool: str
    digest: str  # of `values`
    values: Mapping[str, tuple[Any, ...]]  # path -> what is desired now, one entry for each different value
    before: Mapping[str, tuple[Any, ...]]  # path -> what was applied when it began
    members: tuple[str, ...]
    rollback: bool
    started_at: datetime
    commit: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What a path of a node was last converged to."""

    value: Any
    spec_digest: str
    commit: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of one action on one node, counted before it is tried (pitfall I1).

    One that a later run went on with is still one; `at` is then when it did.
    """

    action: str
    target: str
    cause: str  # what it was for: "remediation" or the drift that it removes
    at: datetime
    outcome: str  # started | done | transient | permanent | ambiguous | refused
    detail: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """All the ledger knows about one node. `malformed`: a row could not be read; the node is left alone (M6)."""

    node: str
    serial: str | None = None  # identity last agreed between BMC and host
    uuid: str | None = None
    holds: tuple[Hold, ...] = ()
    applied: Mapping[str, Applied] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()  # oldest first
    certificate: Certificate | None = None
    nonce: str | None = None  # of the last reimage that we journaled
    silent_since: Mapping[str, datetime] = field(default_factory=dict)  # source, or what else ails it -> since when
    malformed: str = ""
    paths: frozenset[str] | None = None  # what the spec managed of it when it was first looked at
    released_at: datetime | None = None  # when a hold of the node was last lifted
    fleet: str = ""  # another one that shares the ledger, and that the node belongs to: it is left alone


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line of a node's story."""

    at: datetime
    run: str
    node: str
    event: (
        str  # intent | resume | outcome | drift | hold | release | certificate | rollout | run | forget | lease | ...
    )
    action: str
    detail: str
    commit: str = ""
    plan: str = ""
    attempt: int | None = None  # that an intent began, and what belongs to it
    seconds: float | None = None  # of an outcome: since its intent; of drift that is gone: since it was first seen
    evidence: Mapping[str, Any] = field(default_factory=dict)  # JSON values: what was read, measured or begun


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the journal's entries refer to it. `exit_code` None: it goes on, or died."""

    run: str
    command: str
    commit: str
    plan: str
    started_at: datetime
    ended_at: datetime | None
    exit_code: int | None
    summary: str


@dataclass(frozen=True, slots=True)
class Lease:
    scope: str
    holder: str
    token: int  # fencing token: grows with every holder
    expires_at: datetime
    since: datetime | None = None  # None: nobody wrote it down


def isolated_for(text: str) -> tuple[str, ...]:
    """The signals (value paths) of a mark's reason or an attempt's cause; () when it is of something else."""
    return tuple(text.removeprefix(ISOLATED).split(", ")) if text.startswith(ISOLATED) else ()


def write_mark(mark: Mark) -> str:
    """The annotation's text."""
    return json.dumps(asdict(mark), sort_keys=True, separators=(",", ":"))


def read_mark(annotation: str | None) -> Mark | None:
    """The mark in an annotation. One that can't be read is somebody else's: its ledger is then "?"."""
    if annotation is None:
        return None
    try:
        found = parse_json(annotation)
        mark = Mark(**{key: found[key] for key in ("ledger", "plan", "reason", "at", "cordoned")})
    except (ValueError, KeyError, TypeError):
        mark = None
    if mark is None or not all(isinstance(text, str) for text in (mark.ledger, mark.plan, mark.reason, mark.at)):
        return Mark(ledger="?", plan="", reason=annotation[:200], at="", cordoned=False)
    return replace(mark, cordoned=mark.cordoned is True)
