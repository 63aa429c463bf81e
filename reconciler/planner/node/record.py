"""What the ledger's record of a node tells of the conditions that it is in now."""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.gate.certificate import same_machine
from reconciler.health.ladder import REMEDIATION
from reconciler.health.table import for_a_person
from reconciler.model.gate import Binding
from reconciler.model.records import Mark, NodeRecord, isolated_for
from reconciler.planner.node.actions import spec_of

DETECTOR_S = 600.0  # what runs in containers on top of drivers in containers takes minutes to speak after a boot
_NO_TRY = frozenset({"refused", "started"})
_UNEVENTFUL = frozenset({"done", *_NO_TRY})


def drained(record: NodeRecord, mark: Mark | None) -> bool:
    """A drain that ended well, and no admission after it: what a drain command or `none` leaves as proof."""
    for attempt in reversed(record.attempts):
        if attempt.action == "admit" and attempt.outcome == "done":
            return False
        if attempt.action == "drain" and attempt.outcome == "done":
            return mark is None or attempt.at.isoformat() >= mark.at
    return False


def isolated(record: NodeRecord, mark: Mark) -> tuple[str, ...]:
    """The signals on which our mark was set, while the node has neither been drained nor treated since; else ()."""
    signals = isolated_for(mark.reason)
    for attempt in reversed(record.attempts) if signals else ():
        if attempt.outcome == "refused" or spec_of(attempt.action).harmless:
            continue
        if attempt.action == "admit" and attempt.outcome != "done":
            continue  # the mark still stands, and its jobs run on
        return signals if attempt.action == "mark" else ()
    return signals


def failed_gate(record: NodeRecord, binding: Binding | str) -> str:
    """What the gate found wrong with this very machine; "" when nothing did, or a repair is on record since.

    A failure is evidence, and is not tried again before a repair (DESIGN 7.4): other hardware, a treatment, an
    install, new firmware; or a hold that somebody lifted again, who has then seen to it.
    """
    tried = [attempt for attempt in record.attempts if attempt.outcome not in _NO_TRY]
    last = next((attempt for attempt in reversed(tried) if attempt.action == "run_gate"), None)
    if last is None or last.outcome != "permanent" or record.certificate is None:
        return ""
    if isinstance(binding, str) or not same_machine(record.certificate, binding):
        return ""
    repaired = any(a.at > last.at and (a.cause == REMEDIATION or spec_of(a.action).overwrites) for a in tried)
    released = record.released_at is not None and record.released_at > last.at
    return "" if repaired or released else last.detail


def detectors_until(record: NodeRecord, now: datetime) -> datetime | None:
    """Until when a condition of the node object may be of before the latest treatment; None: it is of now.

    Node objects outlive reboots: what a detector once said stands there until it runs again and takes it back.
    """
    for attempt in reversed(record.attempts):
        if attempt.action == "admit" and attempt.outcome == "done":
            return None
        if attempt.cause == REMEDIATION and attempt.outcome != "refused":
            until = (attempt.ended_at or attempt.at) + timedelta(seconds=DETECTOR_S)
            return until if until > now else None
    return None


def treated_after(record: NodeRecord) -> tuple[str, ...]:
    """What was done to the machine itself since its certificate, which proves nothing of what came after it.

    The certificate's binding shows other hardware and firmware, not that a sick node was treated or wiped, nor what a
    person has replaced for whom it was drained.
    """
    if record.certificate is None:
        return ()
    issued = record.certificate.issued_at
    done = [attempt for attempt in record.attempts if attempt.at >= issued and attempt.outcome != "refused"]
    treated = (attempt.action for attempt in done if attempt.cause == REMEDIATION or spec_of(attempt.action).overwrites)
    told = [f"{action} after the certificate was issued" for action in dict.fromkeys(treated)]
    left = (path for attempt in done if attempt.action == "drain" for path in for_a_person(attempt.cause.split(", ")))
    return (*told, *(f"left to a person for {path} after the certificate was issued" for path in dict.fromkeys(left)))


def uneventful(record: NodeRecord) -> bool:
    """Nothing has failed and nothing was treated: what was tried before decides nothing of what is to be done now."""
    return all(attempt.outcome in _UNEVENTFUL and attempt.cause != REMEDIATION for attempt in record.attempts)


def untouched(record: NodeRecord) -> bool:
    """Whether the node is as it was when it was marked: nothing came after that but drains, by any run.

    A mark that came with something else, such as joining, says that the node was never accepted.
    """
    for attempt in reversed(record.attempts):
        if attempt.action == "mark" and attempt.outcome != "refused":
            return True
        if attempt.action != "drain" and attempt.outcome != "refused":
            return False
    return False
