"""How one node stands towards the spec, as rollouts need to know.

Its plan tells; where it was not looked at, the ledger's record of it does, and the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.diff.facts import Managed
from reconciler.gate.certificate import judge_test, tests_digest
from reconciler.model.crash import of_its_own
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE, DriftClass
from reconciler.model.gate import Certificate, Verdict
from reconciler.model.plan import BlockCode, Goal, NodePlan
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.fleet.budget_group import person_needed
from reconciler.planner.node.goals import FAILURES


@dataclass(frozen=True, slots=True)
class RolloutMember:
    """`pending`: path -> (desired, applied). `missing`: what it lacks to be settled, as the end of a sentence.

    Settled is who is as desired, certified and in service; `since` says since when, and is None otherwise.
    """

    node: str
    pending: Mapping[str, tuple[Any, Any]]
    missing: str
    since: datetime | None
    sound: bool  # healthy, in service, and read in full
    given_up: bool  # isolated: nothing more is done to it
    record: NodeRecord

    @property
    def settled(self) -> bool:
        return not self.missing

    def failed_since(self, begin: datetime) -> str:
        """What failed for good since then; "" when nothing did, or all is well again."""
        if self.settled:
            return ""
        if self.given_up and not self.pending:
            return self.missing
        return next((why for at, why in _failures(self.record) if at >= begin), "")

    def had(self, values: Mapping[str, tuple[Any, ...]]) -> bool:
        """Whether it was once converged to these."""
        applied = self.record.applied
        return all(path not in applied or applied[path].value in given for path, given in values.items())


def rollout_member(
    desired: Desired,
    table: tuple[Managed, ...],
    plan: NodePlan | None,
    record: NodeRecord,
    in_service: bool | None,
    now: datetime,
) -> RolloutMember:
    """`table`: what its profile manages. `plan` None: it was not looked at, so the ledger and the cluster speak.

    Of a node that a bug of ours ends this for nobody knows anything: it changes nothing, and its wave waits for it.
    """
    return of_its_own(
        desired.node,
        "judging its part in a rollout",
        lambda: _member(desired, table, plan, record, in_service, now),
        lambda crash: RolloutMember(desired.node, {}, crash.sentence, None, sound=False, given_up=False, record=record),
    )


def _member(
    desired: Desired,
    table: tuple[Managed, ...],
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
            row.path: (row.shown, record.applied[row.path].value)
            for row in table
            if row.path in record.applied and record.applied[row.path].value != row.shown
        }
        missing = _missing_on_record(desired, record, changed, in_service)
    return RolloutMember(
        node=desired.node,
        pending=changed,
        missing=missing,
        since=None if missing else _since(table, record, now),
        sound=_sound(plan) if plan is not None else in_service is True,
        given_up=plan is not None and plan.goal is Goal.ISOLATED,
        record=record,
    )


def _missing_now(desired: Desired, plan: NodePlan) -> str:
    """What a node that was just looked at lacks."""
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
    return "" if plan.in_service else "is not in service"


def _missing_on_record(
    desired: Desired, record: NodeRecord, changed: Mapping[str, object], in_service: bool | None
) -> str:
    if changed:
        return f"has {next(iter(changed))} still to change"
    acceptance, certificate = desired.profile.acceptance, record.certificate
    if acceptance is not None and (certificate is None or not _passed(desired, certificate)):
        return "has no valid certificate on record"
    return "" if in_service else "is not in service"


def _passed(desired: Desired, certificate: Certificate) -> bool:
    """As far as it can be judged without a look at the node: for this image, by these tests, over these bars."""
    acceptance, image = desired.profile.acceptance, desired.profile.image
    assert acceptance is not None
    if certificate.binding.tests_digest != tests_digest(acceptance):
        return False
    if image is not None and certificate.binding.image_sha256 != image.sha256:
        return False
    results = {result.test: result for result in certificate.results}
    tests = [test for phase in acceptance.phases for test in phase.tests]
    return certificate.adopted or all(judge_test(t, results.get(t.name))[0] is Verdict.PASS for t in tests)


_OF_ITS_OWN = frozenset({
    BlockCode.UNKNOWN, BlockCode.IDENTITY, BlockCode.FOREIGN_CORDON, BlockCode.FOREIGN_MARK, BlockCode.NO_PATH,
    BlockCode.ATTEMPTS, BlockCode.GATE, BlockCode.NO_DRAIN, BlockCode.CRASHED,
})  # fmt: skip


def _sound(plan: NodePlan) -> bool:
    """Whether a change may be tried on it first: it serves, is well, and nobody has to see to it before it goes."""
    stuck = plan.blocked is not None and plan.blocked.code in _OF_ITS_OWN
    return plan.in_service is True and not plan.incomplete and not plan.illness and not stuck


def _since(table: tuple[Managed, ...], record: NodeRecord, now: datetime) -> datetime:
    """When the last of its values, its certificate and its admission came about; now, if the ledger has not seen it."""
    times = []
    for row in table:
        kept = record.applied.get(row.path)
        if kept is None or kept.value != row.shown:
            return now
        times.append(kept.at)
    if record.certificate is not None:
        times.append(record.certificate.issued_at)
    times += [attempt.ended_at or attempt.at for attempt in record.attempts if attempt.action == "admit"][-1:]
    return max(times, default=now)


def _failures(record: NodeRecord) -> tuple[tuple[datetime, str], ...]:
    """Actions whose latest attempts failed, for good or too often in a row; newest first.

    An admission resets nothing here: a node that was brought back without the change has still failed it. A hold that
    somebody lifted does: they have seen to it.
    """
    found = []
    seen_to = record.released_at
    streaks: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in record.attempts:
        if attempt.outcome == "done":
            streaks.pop((attempt.action, attempt.target), None)
        elif attempt.outcome not in ("refused", "started"):
            streaks.setdefault((attempt.action, attempt.target), []).append(attempt)
    for (action, target), streak in streaks.items():
        last = streak[-1]
        if seen_to is not None and seen_to >= (last.ended_at or last.at):
            continue
        if last.outcome == "permanent" or len(streak) >= FAILURES:
            name = f"{action}:{target}" if target else action
            found.append((last.ended_at or last.at, f"{name} failed ({last.detail})"))
    return tuple(sorted(found, reverse=True))
