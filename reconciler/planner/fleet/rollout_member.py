"""Rollout members: what a rollout needs to know of one node.

It is taken from the node's plan; for a node that was not looked at, from its record in the ledger and the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.gate.asked import TESTS
from reconciler.gate.certificate import judge_test, tests_changed, tests_digest
from reconciler.model.crash import of_its_own
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE, DriftClass
from reconciler.model.gate import Verdict
from reconciler.model.plan import BlockCode, Goal, NodePlan
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.fleet.budget_group import person_needed
from reconciler.planner.node.goals import FAILURES


@dataclass(frozen=True, slots=True)
class RolloutMember:
    """A node of a pool whose spec changes. It is settled when it is as desired, certified and in service.

    `pending`: path -> (desired, applied). `missing`: what it lacks to be settled, as the end of a sentence. `since`:
    since when it is settled; None when it is not.
    """

    node: str
    pending: Mapping[str, tuple[Any, Any]]
    missing: str
    since: datetime | None
    healthy: bool  # in service, without a fault, and read in full
    isolated: bool  # isolated: nothing more is done to it
    record: NodeRecord

    @property
    def settled(self) -> bool:
        return not self.missing

    def failed_since(self, begin: datetime) -> str:
        """Return what failed for good since `begin`; "" when nothing did, or the node is settled again."""
        if self.settled:
            return ""
        if self.isolated and not self.pending:
            return self.missing
        return next((why for at, why in _failures(self.record) if at >= begin), "")

    def had_values(self, values: Mapping[str, tuple[Any, ...]]) -> bool:
        """Return whether the node was once converged to these values."""
        applied = self.record.applied
        return all(path not in applied or applied[path].value in given for path, given in values.items())


def rollout_member(
    desired: Desired,
    values: Mapping[str, Any],
    plan: NodePlan | None,
    record: NodeRecord,
    in_service: bool | None,
    now: datetime,
) -> RolloutMember:
    """Return what a rollout needs to know of the node `desired`.

    `values`: what its profile asks for, by path. `plan` None: it was not looked at, so its record and the cluster
    count. When a bug of ours ends this for a node, nothing is pending on it, and its wave waits for it.
    """
    return of_its_own(
        desired.node,
        "judging its part in a rollout",
        lambda: _member(desired, values, plan, record, in_service, now),
        lambda crash: RolloutMember(
            desired.node, {}, crash.sentence, None, healthy=False, isolated=False, record=record
        ),
    )


def _member(
    desired: Desired,
    values: Mapping[str, Any],
    plan: NodePlan | None,
    record: NodeRecord,
    in_service: bool | None,
    now: datetime,
) -> RolloutMember:
    if plan is not None:
        changed = {i.path: (i.desired, i.applied) for i in plan.drift if i.kind is DriftClass.PENDING}
        missing = _missing_now(desired, plan)
    else:
        changed = {
            path: (value, record.applied[path].value)
            for path, value in values.items()
            if path in record.applied and record.applied[path].value != value
        }
        tests = [path for path in changed if path.startswith(TESTS)]
        if tests and (in_service is False or _is_certified(desired, record)):
            changed = {path: change for path, change in changed.items() if path not in tests}
        missing = _missing_on_record(desired, record, changed, in_service)
    return RolloutMember(
        node=desired.node,
        pending=changed,
        missing=missing,
        since=None if missing else _since(values, record, now),
        healthy=_healthy(plan) if plan is not None else in_service is True,
        isolated=plan is not None and plan.goal is Goal.ISOLATED,
        record=record,
    )


def _missing_now(desired: Desired, plan: NodePlan) -> str:
    """Return what a node that was just looked at lacks."""
    if plan.waits_for_person:
        why = f"is ill ({plan.illness[0].observed})" if plan.illness else "is out of service"
        return f"{why}; {person_needed([plan.node])}"
    if plan.illness:
        return f"is ill ({plan.illness[0].observed})"
    for item in plan.drift:
        if item.path == "gate.certificate" and desired.profile.acceptance is not None:
            return f"has no valid certificate ({item.observed or item.detail or 'none'})"
        if item.kind in ACTIONABLE:
            return f"has {item.path} still to change" if item.kind is DriftClass.PENDING else f"differs in {item.path}"
    if plan.incomplete:
        return f"can't be read in full ({plan.incomplete[0]})"
    return "" if plan.in_service or plan.goal is Goal.SPARE else "is not in service"


def _missing_on_record(
    desired: Desired, record: NodeRecord, changed: Mapping[str, object], in_service: bool | None
) -> str:
    if changed:
        return f"has {next(iter(changed))} still to change"
    if not _is_certified(desired, record):
        return "has no valid certificate on record"
    return "" if in_service else "is not in service"


def _is_certified(desired: Desired, record: NodeRecord) -> bool:
    """Return whether it needs no certificate, or has a valid one as far as shows without a look: image, tests, bars."""
    acceptance, image, certificate = desired.profile.acceptance, desired.profile.image, record.certificate
    if acceptance is None:
        return True
    if certificate is None or tests_changed(certificate, acceptance, tests_digest(acceptance)):
        return False
    if image is not None and certificate.binding.image_sha256 != image.sha256:
        return False
    results = {result.test: result for result in certificate.results}
    passed = [judge_test(test, results.get(test.name))[0] is Verdict.PASS for test in acceptance.tests]
    return certificate.adopted or all(passed)


_OF_ITS_OWN = frozenset({
    BlockCode.UNKNOWN, BlockCode.UNDER_WAY, BlockCode.IDENTITY, BlockCode.FOREIGN_CORDON, BlockCode.FOREIGN_MARK,
    BlockCode.FOREIGN_HOLD,
    BlockCode.NO_PATH, BlockCode.IMPOSSIBLE, BlockCode.ATTEMPTS, BlockCode.GATE, BlockCode.NO_DRAIN, BlockCode.CRASHED,
})  # fmt: skip


def _healthy(plan: NodePlan) -> bool:
    """Return whether a change may be tried on this node first: it serves, is well, and needs no person."""
    stuck = plan.blocked is not None and plan.blocked.code in _OF_ITS_OWN
    return plan.in_service is True and not plan.incomplete and not plan.illness and not stuck


def _since(values: Mapping[str, Any], record: NodeRecord, now: datetime) -> datetime:
    """Return when the last of its values, its certificate or its admission was recorded; now, if one is missing."""
    dated = set[datetime]()
    for path, value in values.items():
        applied = record.applied.get(path)
        if applied is None or applied.value != value:
            return now
        dated.add(applied.at)
    times = [record.by_clock_now(at) for at in dated]
    if record.certificate is not None:
        times.append(record.by_clock_now(record.certificate.issued_at, "run_gate".__eq__))
    times += [attempt.ended for attempt in record.attempts if attempt.action == "admit"][-1:]
    return max(times, default=now)


def _failures(record: NodeRecord) -> tuple[tuple[datetime, str], ...]:
    """Return (time, what failed) for actions that failed last, for good or too often in a row; newest first.

    An admission does not reset them: a node that was brought back without the change has still failed it. Releasing a
    hold on the node does, since a person has seen to it then.
    """
    found = []
    streaks: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in record.attempts:
        if attempt.outcome == "done":
            streaks.pop((attempt.action, attempt.target), None)
        elif attempt.outcome not in ("refused", "started"):
            streaks.setdefault((attempt.action, attempt.target), []).append(attempt)
    for (action, target), streak in streaks.items():
        last = streak[-1]
        if record.is_seen_to(last):
            continue
        if last.outcome == "permanent" or len(streak) >= FAILURES:
            name = f"{action}:{target}" if target else action
            found.append((last.ended, f"{name} failed ({last.detail})"))
    return tuple(sorted(found, reverse=True))
