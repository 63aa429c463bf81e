"""Read from a node's record in the ledger what its earlier attempts mean for its conditions now."""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.gate.certificate import same_machine
from reconciler.health.ladder import REMEDIATION
from reconciler.model.desired import Acceptance, Desired
from reconciler.model.gate import Binding
from reconciler.model.observed import Answered, Observed
from reconciler.model.outcome import TOGETHER
from reconciler.model.records import (
    OWNER_ANNOTATION,
    TAKEN_ALONG,
    TRUNCATED,
    Attempt,
    Mark,
    NodeRecord,
    isolated_for,
)
from reconciler.model.vocab import UnknownReason
from reconciler.planner.node.actions import spec_of
from reconciler.spec.signals import PREFIX

DETECTOR_S = 600.0  # a detector runs in a container, on drivers in containers: after a boot it needs minutes
TOGETHER_MOST = timedelta(days=1)  # a window opens, jobs end and people answer within a day, or a person is to be told
_NO_TRY = frozenset({"refused", "started"})
_UNEVENTFUL = frozenset({"done", *_NO_TRY})


def is_admission(attempt: Attempt) -> bool:
    """Return whether this attempt put the node into service."""
    return attempt.action == "admit" and attempt.outcome == "done"


def treats(attempt: Attempt) -> bool:
    """Return whether an attempt treated the node, or did to a well one what treated another: the gate judges both."""
    return attempt.cause == REMEDIATION or attempt.cause.startswith(TAKEN_ALONG)


def _ends_service(action: str) -> bool:
    spec = spec_of(action)
    return spec.takes_out and not spec.on_others


def taken_out_for(attempt: Attempt) -> tuple[str, ...]:
    """Return the signals (value paths) for which an attempt marked, drained or treated its node."""
    if attempt.outcome == "refused":
        return ()
    named = attempt.treated
    if _ends_service(attempt.action):
        named = isolated_for(attempt.cause) or tuple(attempt.cause.split(", "))
    return tuple([path for path in named if path.startswith(PREFIX)])


def was_taken_out_for(record: NodeRecord) -> tuple[str, ...]:
    """Return the signals (value paths) that a node was taken out or treated for and that nobody has looked at since.

    Those since it was last admitted, and since a person last released it.
    """
    found: dict[str, None] = {}
    for attempt in reversed(record.since_release):
        if is_admission(attempt):
            break
        found |= dict.fromkeys(taken_out_for(attempt))
    return tuple(found)


def is_known_to_serve(desired: Desired, observed: Observed, record: NodeRecord) -> bool:
    """Return whether no reconciler has taken the node out of service, as far as cluster or ledger tell."""
    if isinstance(observed.member, Answered):
        member = observed.member.value
        return member is not None and OWNER_ANNOTATION not in member.annotations
    if desired.profile.membership is None or observed.member.reason is UnknownReason.NOT_ASKED:
        return not is_drained(record, None)
    for attempt in reversed(record.attempts):
        if is_admission(attempt):
            break
        if _ends_service(attempt.action) and attempt.outcome != "refused":
            return False
    return True


def is_done_since_service(record: NodeRecord, action: str, target: str = "") -> bool:
    """Return whether an action succeeded, and the node was neither installed nor admitted after it."""
    for attempt in reversed(record.attempts):
        if attempt.outcome != "done":
            continue
        if attempt.action == action and attempt.target == target:
            return True
        if is_admission(attempt) or spec_of(attempt.action).installs:
            return False
    return False


def used_at(record: NodeRecord) -> datetime | None:
    """Return when the node was last installed or admitted, after which its drives may hold data; None if never."""
    ends = (
        attempt.ended_at or attempt.at
        for attempt in reversed(record.attempts)
        if attempt.outcome == "done" and (is_admission(attempt) or spec_of(attempt.action).installs)
    )
    return next(ends, None)


def is_drained(record: NodeRecord, mark: Mark | None) -> bool:
    """Return whether a drain succeeded, under this mark if one is given, and no admission came after it.

    It is the only proof where the drain provider is a command or `none`. Without a mark, an installation is as good:
    a system that was just written serves nobody yet, and a blank machine has nothing to drain.
    """
    for attempt in reversed(record.attempts if mark is None else _since_mark(record, mark)):
        if is_admission(attempt):
            return False
        if mark is None and attempt.outcome == "done" and spec_of(attempt.action).installs:
            return True
        if attempt.action == "drain" and attempt.outcome == "done":
            return True
    return False


def place_of_mark(record: NodeRecord, mark: Mark) -> int | None:
    """Return which of the attempts set a mark of ours; None if the ledger does not know.

    The order after it tells what came later, as a clock that is set back makes a drain older than its mark.
    """
    try:
        at = datetime.fromisoformat(mark.at)
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    for place in range(len(record.attempts) - 1, -1, -1):
        one = record.attempts[place]
        if spec_of(one.action).marks and one.at - TRUNCATED <= at <= (one.ended_at or at):
            return place
    return None


def _since_mark(record: NodeRecord, mark: Mark) -> tuple[Attempt, ...]:
    place = place_of_mark(record, mark)
    if place is not None:
        return record.attempts[place + 1 :]
    return tuple([one for one in record.attempts if one.at.isoformat() >= mark.at])


def isolating_signals(record: NodeRecord, mark: Mark) -> tuple[str, ...]:
    """Return the signals for which our mark was set; () once the node has been drained or treated since."""
    signals = isolated_for(mark.reason)
    for attempt in reversed(record.attempts) if signals else ():
        spec = spec_of(attempt.action)
        if attempt.outcome == "refused" or spec.harmless or spec.on_others:
            continue
        if attempt.action == "admit" and attempt.outcome != "done":
            continue  # the mark is still there, and the jobs go on
        return signals if attempt.action == "mark" else ()
    return signals


def gate_failure(record: NodeRecord, binding: Binding | str, acceptance: Acceptance | None) -> str:
    """Return why the gate failed on this machine; "" if it did not fail, or a repair is on record since.

    A failure is evidence, so the gate does not run again before a repair (DESIGN 7.4): other hardware, a treatment, an
    installation, new firmware, or a hold that somebody set and released.
    """
    tried = [attempt for attempt in record.attempts if attempt.outcome not in _NO_TRY]
    gates = [at for at, one in enumerate(tried) if one.action == "run_gate" and not one.target]
    last = tried[gates[-1]] if gates else None
    if last is None or last.outcome != "permanent" or record.certificate is None:
        return ""
    if isinstance(binding, str) or acceptance is None or not same_machine(record.certificate, binding, acceptance):
        return ""
    repaired = any(a.cause == REMEDIATION or spec_of(a.action).overwrites for a in tried[gates[-1] + 1 :])
    return "" if repaired or record.is_seen_to(last) else last.detail


def waits_together_since(record: NodeRecord, mark: Mark) -> datetime | None:
    """Return since when an ill node under this mark may have waited for those that are to be cut off with it.

    While it waits, nothing is done to it. What drains it for a person, once that has lasted too long, is no new wait.
    """
    place, since = place_of_mark(record, mark), None
    for one in record.attempts[place:] if place is not None else ():
        if one.outcome == "refused" or one.detail.startswith(TOGETHER):
            continue
        marked = one.action == "mark" and since is None
        drained = one.action == "drain" and since is not None and one.begun - since <= TOGETHER_MOST
        if marked or drained or treats(one):
            since = one.ended
    return since if since is None or record.released_at is None else max(since, record.released_at)


def was_tested(record: NodeRecord, profile: str, since: datetime) -> bool:
    """Return whether the tests of another profile have run to their end since then, whatever they found."""
    return any(
        (attempt.action, attempt.target, attempt.outcome) == ("run_gate", profile, "done") and attempt.at >= since
        for attempt in record.attempts
    )


def stale_signals_until(record: NodeRecord, now: datetime) -> datetime | None:
    """Return until when conditions of the node object may date from before the latest treatment; None if they do not.

    Node objects outlive reboots: a detector's condition stays there until the detector runs again and clears it.
    """
    for attempt in reversed(record.attempts):
        if is_admission(attempt):
            return None
        if treats(attempt) and attempt.outcome != "refused":
            until = attempt.ended + timedelta(seconds=DETECTOR_S)
            return until if until > now else None
    return None


def is_uneventful(record: NodeRecord) -> bool:
    """Return whether no attempt failed and none was a treatment, so that earlier attempts decide nothing now."""
    return all(attempt.outcome in _UNEVENTFUL and not treats(attempt) for attempt in record.attempts)


def is_untouched(record: NodeRecord) -> bool:
    """Return whether nothing but drains came after the node was marked, by any run.

    A mark that another action set, such as joining, is no attempt of its own: such a node was never accepted.
    """
    for attempt in reversed(record.attempts):
        if attempt.action == "mark" and attempt.outcome != "refused":
            return True
        if attempt.action != "drain" and attempt.outcome != "refused":
            return False
    return False
