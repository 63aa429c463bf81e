"""The ledger's records of nodes, as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from reconciler.model.gate import Certificate
from reconciler.model.host_certificate import HostCertificate
from reconciler.model.json_text import parse_json
from reconciler.model.measurements import Attestation
from reconciler.model.privacy import (
    FreeText,
    FreeValue,
    Identifier,
    NodeName,
    PublicText,
    SpecValue,
    Unpublished,
    ValuePath,
)
from reconciler.model.repairs import Repair
from reconciler.model.values import MARK_TAINT as MARK_TAINT

OWNER_ANNOTATION = "reconciler.dev/owner"  # JSON of Mark
BMC_SCOPE = "bmc/"  # of leases on BMCs; each belongs to the run that holds its fleet's
FLEET = "fleet/*"  # subject of a hold that stops everything; no node and no pool can be called so
STORM = "fleet/storm"  # of a hold that forbids whatever disrupts: the storm brake
RETRACTED = "isolation/"  # subject of a hold, before a signal's name: nobody is isolated or repaired for it
ISOLATED = "isolated: "  # before the signals, as the reason of a mark and the cause of the attempt that set it
SPARE = "spare of persona "  # before the persona, as the reason of a mark: certified, and kept out of the work
IN_PLACE_OF = "in place of "  # before the name of the node that failed, as the cause of a spare's admission
TAKEN_ALONG = "cut off from mains with "  # before the node that was treated, as the cause of the attempt of another
REFUTED = "its TPM refutes this boot: "  # before the reasons, as the detail of the attempt that asked it
UNPROVED = "its TPM does not prove this boot: "  # the same, where no quote came that could be judged
UNHEALED = "unhealed "  # before a signal's value path, in a key beside a node's silences: an event that was seen
HEALED = "healed "  # in its place: what heals the signal has happened, and the node is still out
IDLE = "idle"  # a key beside a node's silences: since when no work is on it
BAD = "bad"  # the same: since when it has been bad, for the storm brake
NO_CLUSTER = "no cluster"  # the same: since when a teardown took K3s from it, and no join began
COUNTED = "counted "  # before a look at counters, in a key beside a node's silences (planner/node/counted.py)
LOG_READ = "log read"  # a key beside a node's silences: when its BMC's log was last read, about
LASTS = "lasts "  # the same, before the path of a signal that has to last: since when it is shown
IN_BOOT = " in boot "  # after that path, and before a digest of the boot that it was seen in; "" = not known
SHARED = "shared "  # before a path, beside a node's silences: since when it shows what its failure domain may cause
WAS_SHARED, BEGUN = "was shared ", " begun "  # before a path, before when it began: since when it shows that no more
# Events of a node's journal, before and after which its attempts are counted.
RELEASE, REPAIR, CLOCK_SET = "release", "repair", "clock set"
TOMBSTONE = "decommissioned/"  # subject of a hold, before a chassis' serial: that machine does not come back by itself
CHANGES = (
    "changes/"  # before a fleet's name: the record that keeps since when version, spec and drivers are what they are
)


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The place of a ledger. `kind`: a database, "published", or "none": nobody has made one at `name` yet.

    `name`: a file, or a URL without its password.
    """

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """The owner annotation on a cluster node. `cordoned`: our patch set `unschedulable`, so ours to lift."""

    ledger: str
    plan: str
    reason: str
    at: str
    cordoned: bool
    workloads: tuple[str, ...] = ()  # of which pods ran there when it was set, by name; budgets count them
    adjusted: tuple[str, ...] = ()  # keys of objects that may have been changed for its drain (model/adjustments.py)


@dataclass(frozen=True, slots=True)
class Hold:
    """`position`: where the spec declared it, when it was copied; "" = it was set by a command."""

    id: int
    subject: PublicText  # node name, "pool/<name>", FLEET, STORM or RETRACTED with a signal's name
    reason: FreeText
    owner: FreeText
    since: datetime
    until: datetime | None = None
    position: Unpublished[PublicText] = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A change of the spec on its way through a pool, as first admitted (DESIGN 7.2). Values are JSON values by path.

    `members`: in the order in which they go, canaries first. Nothing of its progress is kept: that is observed.
    """

    pool: PublicText
    digest: PublicText  # of `values`
    values: Mapping[ValuePath, tuple[SpecValue, ...]]  # path -> what is desired now, one entry for each different value
    before: Mapping[ValuePath, tuple[SpecValue, ...]]  # path -> what was applied when it began
    members: tuple[PublicText, ...]
    rollback: bool
    started_at: datetime
    commit: PublicText


@dataclass(frozen=True, slots=True)
class Applied:
    """The value that a path of a node was last converged to."""

    value: SpecValue
    spec_digest: PublicText
    commit: PublicText
    at: datetime


TRUNCATED: Final = timedelta(seconds=1)  # a mark tells whole seconds
ATTEMPTS_KEPT: Final = 200  # newest per node in a record; policies count far fewer

LEAST_RETENTION: Final = timedelta(days=30)  # of rows of the journal: nobody prunes younger ones


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The wall clock was set. `ahead_of`: only times later than this move, which a clock that was ahead had written."""

    by: timedelta
    ahead_of: datetime | None = None

    def after(self, at: datetime, since_set: timedelta) -> timedelta:
        """Return by how much the clock was set since `at`, this step included; before it, it was by `since_set`."""
        moves = self.ahead_of is None or at + since_set > self.ahead_of
        return since_set + self.by if moves else since_set


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of one action on one node, counted before it is tried (pitfall I1).

    One that a later run went on with is still one; `at` is then when it did.
    """

    action: PublicText
    target: PublicText
    cause: PublicText  # what it was for: "remediation" or the drift that it removes
    at: datetime
    outcome: PublicText  # started | done | transient | permanent | ambiguous | refused
    detail: FreeText = ""
    ended_at: datetime | None = None
    boot_id: Unpublished[FreeText] = ""  # the boot that the host was seen in before; "" = it was not
    basis: Unpublished[FreeText] = ""  # digest of what its boot had to prove, and of the TPM that had to; "" = nothing
    treated: Unpublished[tuple[ValuePath, ...]] = ()  # of a rung: the signals that the node showed before it
    since_set: Unpublished[timedelta] = timedelta()  # by how much the wall clock was set since `at`, forward or back
    ended_since_set: Unpublished[timedelta] = timedelta()  # the same since `ended_at`: it may be set in between

    @property
    def begun(self) -> datetime:
        """When it began, by the wall clock as it goes now: what is counted within a time goes by it."""
        return self.at + self.since_set

    @property
    def ended(self) -> datetime:
        """When it ended, or began if it did not end, by the wall clock as it goes now."""
        return self.begun if self.ended_at is None else self.ended_at + self.ended_since_set

    @property
    def judged(self) -> bool:
        """Return whether it ended with a verdict on the node. One that failed in between says nothing of it."""
        return self.outcome in ("done", "permanent")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """All the ledger knows about one node. `malformed`: a row could not be read; the node is left alone (M6)."""

    node: NodeName
    serial: Identifier | None = None  # identity last agreed between BMC and host
    uuid: Identifier | None = None
    holds: tuple[Hold, ...] = ()
    applied: Mapping[ValuePath, Applied] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()  # oldest first
    certificate: Certificate | None = None
    newer: Unpublished[int | None] = None  # how many attempts came after the certificate; None: only their times tell
    after_release: Unpublished[int | None] = None  # how many attempts came after `released_at`; None: their times tell
    nonce: Identifier | None = None  # of the last reimage that we journaled
    silent_since: Mapping[PublicText, datetime] = field(
        default_factory=dict
    )  # source, or what else ails it -> since when
    idle_since: datetime | None = None  # when it was first seen without work; None: it has some, or nobody knows
    malformed: FreeText = ""
    paths: Unpublished[frozenset[PublicText] | None] = None  # what the spec managed of it when it was first looked at
    released_at: datetime | None = None  # when a hold of the node was last lifted
    endorsement: Identifier | None = None  # fingerprint of its TPM's endorsement key, as it was first enrolled
    attestation: Attestation | None = None  # the last boot that a quote proved
    host_certificate: HostCertificate | None = None  # of the key that its last installation recorded
    repair: Repair | None = None  # under way: a person exchanges parts
    fleet: FreeText = ""  # another one that shares the ledger, and that the node belongs to: it is left alone

    def by_clock_now(self, at: datetime, of: Callable[[str], bool] = lambda _action: True) -> datetime:
        """Return a time that was noted in an attempt, by the wall clock as it goes now.

        A mark, a certificate and an applied value are dated when they are made. `of`: by its name, whether an action
        can have made it. The time is returned as it is where no attempt explains it.
        """
        for one in reversed(self.attempts):
            if of(one.action) and one.at - TRUNCATED <= at <= (one.ended_at or at):
                return at + (one.since_set if one.ended_at is None else one.ended_since_set)
        return at

    @property
    def since_certificate(self) -> tuple[Attempt, ...]:
        """The attempts that came after the certificate was issued; all of them if there is none.

        The ledger's order tells, as a clock that is set back does not: what was done at 12:37 by it may well be older
        than a certificate of 12:05.
        """
        if self.certificate is None:
            return self.attempts
        if self.newer is not None:
            return self.attempts[max(0, len(self.attempts) - self.newer) :]
        return tuple([attempt for attempt in self.attempts if attempt.at >= self.certificate.issued_at])

    @property
    def since_release(self) -> tuple[Attempt, ...]:
        """The attempts that began or ended after a hold of the node was last lifted; all of them if none ever was.

        A person has seen to what came before. The ledger's order tells, as for a certificate.
        """
        if self.released_at is None:
            return self.attempts
        if self.after_release is not None:
            return self.attempts[max(0, len(self.attempts) - self.after_release) :]
        since = self.released_at
        return tuple([one for one in self.attempts if one.at >= since or (one.ended_at or since) > since])

    def is_seen_to(self, attempt: Attempt) -> bool:
        """Return whether a person has lifted a hold of the node since this attempt."""
        return self.released_at is not None and not any(one is attempt for one in self.since_release)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry of a node's history."""

    at: datetime
    run: PublicText
    node: PublicText
    event: PublicText  # intent | resume | outcome | drift | hold | release | certificate | rollout | run | ...
    action: PublicText
    detail: FreeText
    commit: PublicText = ""
    plan: PublicText = ""
    attempt: int | None = None  # that an intent began, and what belongs to it
    seconds: float | None = None  # of an outcome: since its intent; of drift that is gone: since it was first seen
    evidence: Mapping[PublicText, FreeValue] = field(
        default_factory=dict
    )  # JSON values: what was read, measured or begun


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the journal's entries refer to it. `exit_code` None: it goes on, or died."""

    run: PublicText
    command: PublicText
    commit: PublicText
    plan: PublicText
    started_at: datetime
    ended_at: datetime | None
    exit_code: int | None
    summary: FreeText


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


def is_spare(mark: Mark | None, persona: str) -> bool:
    """Return whether this mark says that its node is kept as a spare of this persona."""
    return mark is not None and mark.reason == SPARE + persona


def is_event_key(key: str) -> bool:
    """Return whether a key beside a node's silences is of what was seen, which a person may judge and let go."""
    return key.startswith((UNHEALED, HEALED, SHARED, COUNTED))


def events_since(silent_since: Mapping[str, datetime]) -> list[datetime]:
    """Return since when what was seen of a node is kept."""
    return [at for key, at in silent_since.items() if is_event_key(key)]


def is_wide(subject: str) -> bool:
    """Return whether a hold is of no node or pool: of the fleet, the storm brake, a signal, a machine by its serial."""
    return subject in (FLEET, STORM) or subject.startswith((RETRACTED, TOMBSTONE))


def after(now: datetime, *earlier: datetime | None) -> datetime:
    """Return now, or the moment after the last of what is known to be earlier, where the clock was set back since.

    A hold that is lifted ends what was seen before, and what is seen after it is new.
    """
    return max((now, *(one + timedelta(milliseconds=1) for one in earlier if one is not None)))


def unhealed_paths(keys: Iterable[str]) -> dict[str, str]:
    """Return those keys of `NodeRecord.silent_since` that are of events not proved healed, with their value paths."""
    return {key: key.removeprefix(UNHEALED).partition(IN_BOOT)[0] for key in keys if key.startswith(UNHEALED)}


def write_mark(mark: Mark) -> str:
    """The annotation's text."""
    said = {key: value for key, value in asdict(mark).items() if key not in ("workloads", "adjusted") or value}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


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
    workloads, adjusted = (_names(found, key) for key in ("workloads", "adjusted"))
    return replace(mark, cordoned=mark.cordoned is True, workloads=workloads, adjusted=adjusted)


def _names(found: Any, key: str) -> tuple[str, ...]:
    names = found.get(key) if isinstance(found, dict) else None
    return tuple([name for name in names if isinstance(name, str)]) if isinstance(names, list) else ()
