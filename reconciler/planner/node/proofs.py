"""Judge whether what heals a signal has happened since it was seen: a boot, a reset of the GPUs, another part."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.gate.exchanged import exchanged
from reconciler.health.bmc import MISSING, logged
from reconciler.health.cure import proved_by_reset
from reconciler.health.placed_parts import faulty_parts, placed_parts
from reconciler.health.signals import unread_signals
from reconciler.health.table import SignalRule, table_of
from reconciler.health.xids import is_hardware, is_withdrawn
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed, Xid
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.node.kept_keys import KeptKey, boot_digest, part_digest
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.spec.kinds.signals import COUNTED, EVENTS, Proof
from reconciler.spec.signals import PREFIX

_LOGS: Final = frozenset({EVENTS, "host.xids", "host.kernel_events", *COUNTED})
_WORDS: Final = {
    Proof.FACT_CLEAR: "an entry that is gone or settled",
    Proof.FACT_CLEAR_AFTER_NEW_BOOT: "a boot without it",
    Proof.FACT_CLEAR_AFTER_RESET: "a reset of the GPUs or a boot without it",
    Proof.NEW_SERIAL: "another part",
}


def is_event(rule: SignalRule) -> bool:
    """Return whether a signal is read from a log, or is a rise of a counter: to see it no more is no healing."""
    return rule.row.fact in _LOGS


def boot_of(observed: Observed) -> str:
    """Return the digest of the boot that the host tells; "" where it tells none."""
    return boot_digest((observed.host.value.boot_id or "") if isinstance(observed.host, Answered) else "")


def resets(record: NodeRecord) -> Iterator[Attempt]:
    """Yield the resets of GPUs that were done."""
    return (one for one in record.attempts if one.action == RungAction.GPU_RESET and one.outcome == "done")


def resets_in(record: NodeRecord, boot: str, before: Attempt | None = None) -> int:
    """Return how many resets of GPUs were done in a boot, and before an attempt if one is given."""
    if not boot:
        return 0
    found = list(record.attempts)
    at = next((at for at, one in enumerate(found) if one is before), len(found))
    earlier = {id(one) for one in found[:at]}
    return sum(boot_digest(one.boot_id) == boot for one in resets(record) if id(one) in earlier)


def parts_at_fault(desired: Desired, observed: Observed, path: str, rule: SignalRule) -> tuple[tuple[str, ...], int]:
    """Return the digests of the parts that a signal speaks against, and how many parts of that kind there are.

    (), 0: its row asks for no other part, or not all of them tell a serial number.
    """
    if Proof.NEW_SERIAL not in rule.row.healed_by or rule.part is None:
        return (), 0
    faulty = faulty_parts(desired.profile, observed, (path,))
    serials = [one.part.serial for one in faulty if _is_of(one.part.kind, rule)]
    if not all(serials):
        return (), 0
    there = _parts_there(desired.node, observed, rule)
    return tuple(sorted({part_digest(desired.node, serial) for serial in serials if serial})), len(there)


def _is_of(kind: str, rule: SignalRule) -> bool:
    return rule.part is not None and rule.part.part.lower() == kind


def _parts_there(node: str, observed: Observed, rule: SignalRule) -> frozenset[str]:
    found = (one.serial for one in placed_parts(observed) if _is_of(one.kind, rule))
    return frozenset(part_digest(node, serial) for serial in found if serial)


class Proofs:
    """One look at a node, for all of its signals that the ledger keeps and that are not shown."""

    def __init__(self, desired: Desired, observed: Observed, record: NodeRecord) -> None:
        self._desired, self._observed, self._record = desired, observed, record
        self._unread = unread_signals(desired.profile, observed)
        self._table = table_of(desired.profile)

    def is_unread(self, path: str) -> bool:
        """Return whether the signal can't be told, as what it is read from was not read."""
        return path.startswith(self._unread)

    def is_taken_back(self, path: str, rule: SignalRule, since: datetime) -> bool:
        """Return whether a person, the policy or the log itself says that this signal is none, or none any more."""
        if self._record.released_at is not None and self._record.released_at > since:
            return True
        name = path.removeprefix(PREFIX)
        if rule.row.fact == EVENTS:
            return logged(name, self._observed, self._table, since).is_settled
        kind, _, code = name.partition("_")
        if kind != "xid" or not code.isdecimal():
            return False
        policy, host = self._desired.profile.remediation, self._observed.host
        told = host.value.xids or () if isinstance(host, Answered) else ()
        ignored = () if policy is None else policy.ignore_xids
        return is_withdrawn(int(code), told) or not is_hardware(Xid(int(code), "", 1), ignored)

    def lacking(self, kept: KeptKey, rule: SignalRule, since: datetime) -> tuple[str, ...]:
        """Return the proofs that its row asks for and that are missing, in words.

        The gate is asked for at admission, of every node that was out. That an event was not read proves nothing; a
        state that was not read is judged by the other proofs here, and by `is_unread`.
        """
        asked = (proof for proof in rule.row.healed_by if proof is not Proof.GATE)
        return tuple([_WORDS[proof] for proof in asked if not self._has(proof, kept, rule, since)])

    def _has(self, proof: Proof, kept: KeptKey, rule: SignalRule, since: datetime) -> bool:
        if is_event(rule) and self.is_unread(kept.path):
            return False
        name = kept.path.removeprefix(PREFIX)
        if proof is Proof.FACT_CLEAR:
            return rule.row.fact != EVENTS or not logged(name, self._observed, self._table, since).is_open
        if proof is Proof.NEW_SERIAL and name in MISSING:
            return not self.is_unread(kept.path)  # as many as declared are there again: those are the other parts
        if proof is Proof.NEW_SERIAL:
            return self._has_other_parts(kept, rule) if kept.parts else self._has_other_kind(rule)
        return (proved_by_reset(name, rule.row) and self._was_reset(kept, since)) or self._was_booted(kept, since)

    def _was_reset(self, kept: KeptKey, since: datetime) -> bool:
        """Return whether GPUs were reset since: the key counts those before, and no clock that is set back does."""
        if not kept.boot:
            return any(one.at > since for one in resets(self._record))
        return resets_in(self._record, kept.boot) > kept.resets

    def _was_booted(self, kept: KeptKey, since: datetime) -> bool:
        now, host = boot_of(self._observed), self._observed.host
        if kept.boot:
            return bool(now) and now != kept.boot
        uptime_s = host.value.uptime_s if isinstance(host, Answered) else None
        return uptime_s is not None and host.at - timedelta(seconds=uptime_s) > since

    def _has_other_parts(self, kept: KeptKey, rule: SignalRule) -> bool:
        """Return whether each part at fault is gone, and others are there: one that reads no more is no exchange."""
        there = _parts_there(self._desired.node, self._observed, rule)
        return there.isdisjoint(kept.parts) and len(there) >= kept.total

    def _has_other_kind(self, rule: SignalRule) -> bool:
        """Return whether another part of the kind at fault is there than the certificate binds."""
        acceptance, known = self._desired.profile.acceptance, self._record.certificate
        if acceptance is None or known is None:
            return False
        binding = binding_of(self._desired, self._observed, tests_digest(acceptance))
        if isinstance(binding, str):
            return False
        found = exchanged(known.binding, binding)
        return bool(found) if rule.part is None else rule.part in found
