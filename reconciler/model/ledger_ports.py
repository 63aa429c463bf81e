"""The Protocols of the ledger, one per role, and `Ledger`, which is all of them.

Calls are short and synchronous, and raise LedgerError when the ledger can't be read or written. A function takes the
narrowest role that it needs; only what wires the program together takes a whole `Ledger`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

from reconciler.model.fabric_report import FabricReport
from reconciler.model.gate import Certificate
from reconciler.model.install_progress import InstallAttempt
from reconciler.model.measurements import Attestation
from reconciler.model.notices import NoticeStore
from reconciler.model.period_report import ServiceStatus
from reconciler.model.records import Hold, Lease, LedgerPlace, NodeRecord, Rollout
from reconciler.model.repairs import Repair, RetiredPart
from reconciler.model.results import TestRun


class HoldReader(Protocol):
    def holds(self) -> Sequence[Hold]:
        """Return all holds that were not released. An expired one is still listed: the caller has the clock."""


class Recollection(HoldReader, Protocol):
    """The records that a plan is made from, besides an observation. A published copy of them needs no ledger."""

    @property
    def id(self) -> str:
        """The ledger's own id, which its marks in a cluster carry."""

    @property
    def place(self) -> LedgerPlace:
        """The place of the ledger, for the reader of a plan."""

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeRecord]:
        """Return a record for every name, empty for nodes never seen. One query per table, however many names."""

    def known(self) -> Sequence[str]:
        """Return the names of the nodes that applied values are on record for, sorted."""

    def rollouts(self) -> Mapping[str, Rollout]:
        """Return the newest rollout of each pool."""

    def durations(self, limit: int = 20_000) -> Sequence[tuple[str, str, str, float]]:
        """Return (node, action, target, seconds of fleet time) of the newest attempts that ended done."""


class Store(Protocol):
    """The base of all roles that write."""

    @property
    def id(self) -> str: ...

    def batch(self) -> AbstractContextManager[Any]:
        """Write everything inside the block in one transaction. No `await` inside."""


class NodeStore(Store, Protocol):
    """Saves what passes and actions learn about nodes."""

    def node(self, name: str) -> NodeRecord:
        """Return the node's record, an empty one for a node never seen."""

    def remember_identities(self, found: Mapping[str, tuple[str | None, str | None]], now: datetime) -> None:
        """Save (serial, UUID) by node. None keeps what is on record."""

    def note_silences(self, changes: Sequence[tuple[str, str, bool]], now: datetime) -> None:
        """Save (node, source, whether it is silent): ended silences first, so that one may end and begin again.

        A silence already on record keeps its start.
        """

    def note_clock(self, steps: Sequence[tuple[str, float]], now: datetime, ahead_of: datetime | None = None) -> None:
        """Save (node, by how many seconds the wall clock was set) for nodes whose attempts are counted within times.

        `ahead_of`: only times of attempts that are later than this move; None: all.
        """

    def forget(self, names: Sequence[str], now: datetime) -> None:
        """Drop the applied values of nodes that left the spec. Their holds, attempts and history stay."""

    def remember_applied(
        self, node: str, values: Mapping[str, Any], spec_digest: str, commit: str, now: datetime
    ) -> None:
        """Save the values, by path, that the node has converged to."""

    def remember_paths(self, names: Sequence[str], paths: frozenset[str]) -> None:
        """Save what the spec managed when these nodes were first read: a path it adds later is a change of the spec."""

    def set_nonce(self, node: str, nonce: str, now: datetime) -> None:
        """Save the nonce of the reimage that begins now."""

    def save_certificate(self, certificate: Certificate) -> None:
        """Save a certificate, which supersedes the node's earlier one."""

    def save_results(self, runs: Sequence[TestRun], outputs: Mapping[str, str]) -> None:
        """Save what the tests of a gate measured, and what their tools printed, by its digest."""

    def save_search(self, report: FabricReport, told: str) -> int:
        """Journal the report of a search of the fabric, and return the number of its row: the attempt of its results.

        `told`: a sentence for people who read the journal.
        """

    def bind_endorsement(self, node: str, fingerprint: str, now: datetime) -> str:
        """Enrol the endorsement key of the node's TPM, and return "" where it is the node's.

        Otherwise return why it is not: the node was enrolled with another one, or another node with this one. Both are
        incidents, which are journaled, and change nothing.
        """

    def save_attestation(self, node: str, attestation: Attestation, evidence: Mapping[str, Any]) -> None:
        """Save the boot that a quote proved, in place of the last one. `evidence`: JSON values for the journal."""

    def record_drift(
        self,
        run: str,
        items: Sequence[tuple[str, str, str, Any, Any]],
        nodes: Sequence[str],
        now: datetime,
        *,
        unread: Mapping[str, tuple[str, ...]] | None = None,
        under: str = "",
    ) -> Mapping[tuple[str, str], tuple[datetime, datetime]]:
        """Save the differences (node, path, class, desired, observed) found now.

        Return when each was first and last seen, by (node, path).

        Any other open difference of `nodes` has ended, unless it can't be read at present: an item whose class says
        so, or a path that begins with one of its node's `unread` prefixes, stays open as last seen. `under`: what all
        paths begin with that were looked at; others stay open, too.
        """

    def record_service_status(
        self, statuses: Mapping[str, ServiceStatus], now: datetime, *, within: timedelta, whole: bool
    ) -> None:
        """Save each node's status as of now, by node.

        A status that has not changed counts for the time in between if the last pass was at most `within` ago. `whole`:
        these are all nodes of the fleet, so the status of every other node has ended.
        """


class AttemptStore(Store, Protocol):
    """The write-ahead journal of actions."""

    def begin(
        self,
        run: str,
        node: str,
        action: str,
        target: str,
        cause: str,
        intent: Mapping[str, Any],
        token: int,
        now: datetime,
    ) -> int:
        """Journal an intent and count the attempt, in one transaction; return the attempt's id.

        LeaseHeld when the lease with this fencing token is lost or ran out.
        """

    def resume(self, attempt: int, run: str, token: int, now: datetime) -> None:
        """Continue an attempt whose run died. It is not counted again."""

    def amend(self, attempt: int, intent: Mapping[str, Any], now: datetime) -> None:
        """Add what was learnt while the attempt runs (a task's URI, pitfall F8) to its intent."""

    def finish(self, attempt: int, outcome: str, detail: str, now: datetime) -> None:
        """Journal the outcome: done, transient, permanent, ambiguous or refused."""

    def before(self, attempt: int) -> Mapping[str, Any]:
        """Return the intent, with amendments, of the previous attempt at the same action, target and node; else {}."""

    def erasures(self, node: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the newest record of each drive of a node whose erase has ended, by serial number.

        Attempts keep it in their intents: as `erasure` that of the drive they are for, as `erasures` those of others.
        """

    def unfinished(self) -> Sequence[tuple[int, str, str, str, Mapping[str, Any]]]:
        """Return (attempt, node, action, target, intent with amendments) of all attempts without an outcome."""


class InstallStore(Store, Protocol):
    """Attempts at an installation, so that any leader serves them. Tokens are in no journal."""

    def save_install(self, attempt: InstallAttempt, now: datetime, told: str = "") -> None:
        """Save an attempt, by its digest. `told`: journaled as an event of its node, "" for nothing."""

    def install(self, digest: str) -> InstallAttempt | None:
        """Return an attempt by the digest of its token, also one that was withdrawn."""

    def open_install(self, node: str) -> InstallAttempt | None:
        """Return the node's newest attempt that was not withdrawn."""

    def certified_install(self, node: str) -> InstallAttempt | None:
        """Return the node's newest attempt whose host key was certified, and is not revoked: its recorded key."""

    def revoked_host_keys(self) -> Sequence[str]:
        """Return the SSH host keys that are never trusted again, as lines of type and base64."""


class HoldStore(HoldReader, Store, Protocol):
    def hold(
        self, subject: str, reason: str, owner: str, until: datetime | None, now: datetime, *, position: str = ""
    ) -> Hold:
        """Set a hold. `position`: file and line of the spec that it is copied from; "" when a command sets it."""

    def release(self, subject: str, owner: str, now: datetime) -> int:
        """Lift all holds on a subject; return how many there were."""


class RepairStore(Store, Protocol):
    """Orders to exchange parts, which people give and whoever leads carries out."""

    def save_repair(self, repair: Repair, told: str, now: datetime) -> Repair:
        """Save a repair, a new one with its id, and journal `told` with all of it."""

    def repairs(self) -> Sequence[Repair]:
        """Return all repairs, oldest first, those that are closed too."""

    def retired_parts(self) -> Mapping[str, RetiredPart]:
        """Return the parts that repairs took out as faulty, by serial number."""


class RolloutStore(Store, Protocol):
    def start_rollout(self, rollout: Rollout, run: str) -> None:
        """Save a rollout, which supersedes the pool's earlier one. That one stays on record."""

    def redate_rollouts(self, began: Mapping[str, datetime]) -> None:
        """Save when the newest rollout of each of these pools began, by the wall clock as it is set now."""


class LeaseStore(Store, Protocol):
    """Exclusive leases with fencing tokens (pitfalls I3, M7). Scopes are fleets and BMCs."""

    def acquire(self, scope: str, holder: str, ttl_s: float, now: datetime) -> Lease:
        """Take a lease. LeaseHeld when another holder's lease has not run out."""

    def renew(self, lease: Lease, ttl_s: float, now: datetime) -> Lease:
        """Extend a lease, also one that ran out and that nobody took. LeaseHeld when it was lost."""

    def drop(self, lease: Lease) -> None:
        """Give a lease back. Nothing happens when it was lost."""

    def holder(self, scope: str, now: datetime) -> Lease | None:
        """Return the lease that excludes others from this scope now."""

    def prove(self, lease: Lease, now: datetime) -> None:
        """Raise LeaseHeld unless the lease is still held and has not run out."""

    def fence(self, lease: Lease | None) -> None:
        """Refuse each later write of this object with LeaseHeld once `lease` is lost. None ends that."""


class RunStore(Store, Protocol):
    """Runs, the plans they used up, and notes of what people did outside of any run."""

    def plan_used(self, plan_id: str) -> bool:
        """Say whether a run has already begun with this plan."""

    def use_plan(self, plan_id: str, now: datetime) -> None:
        """Mark the plan as used up."""

    def start_run(self, run: str, command: str, commit: str, plan: str, now: datetime) -> None:
        """Save that a command began to run. `commit` of the spec and `plan` may be ""."""

    def end_run(self, run: str, exit_code: int, summary: str, now: datetime) -> None:
        """Save how the run ended."""

    def note(self, node: str, event: str, detail: str, now: datetime) -> None:
        """Journal what a person did, outside of any run."""


class InstallLedger(NodeStore, InstallStore, Protocol):
    """The roles that the server of installers needs: it keeps attempts, and enrols TPMs."""


class Ledger(
    Recollection,
    NodeStore,
    AttemptStore,
    InstallStore,
    HoldStore,
    RepairStore,
    RolloutStore,
    LeaseStore,
    RunStore,
    NoticeStore,
    Protocol,
):
    """The reconciler's memory: every role, for what wires the program together."""

    def close(self) -> None: ...
