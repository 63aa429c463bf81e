"""Events that were seen and are not proved healed: a log that rotates or grows old heals nothing.

A state is read anew each time, so that it is gone when it is not read any more. An event is not: entries of logs age,
rotate away and are cleared. So the ledger keeps each one, with the boot that it was seen in, until what its row names
under `healedBy` has happened, its BMC has marked it as settled, or a person has set a hold on the node and released it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.gate.exchanged import exchanged
from reconciler.health.bmc import logged
from reconciler.health.cure import proved_by_reset
from reconciler.health.signals import Signal, unread_signals
from reconciler.health.table import SignalRule, table_of
from reconciler.health.xids import is_hardware, is_withdrawn
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed, Xid
from reconciler.model.records import IN_BOOT, UNHEALED, Attempt, NodeRecord, isolated_for, unhealed_paths
from reconciler.model.vocab import Source
from reconciler.planner.node.record import is_admission
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.spec.kinds.signals import COUNTED, EVENTS, Proof
from reconciler.spec.signals import PREFIX

_OF_HOST: Final = ("host.xids", "host.kernel_events", *COUNTED)
_FACTS: Final = {EVENTS: Source.REDFISH, **dict.fromkeys(_OF_HOST, Source.SSH)}
_AFTER_RESETS: Final = "+"  # in a key, after the boot
_WORDS: Final = {
    Proof.FACT_CLEAR: "an entry that is gone or settled",
    Proof.FACT_CLEAR_AFTER_NEW_BOOT: "a boot without it",
    Proof.FACT_CLEAR_AFTER_RESET: "a reset of the GPUs or a boot without it",
    Proof.NEW_SERIAL: "another part",
}


def is_event(rule: SignalRule) -> bool:
    """Return whether a signal is read from a log, or is a rise of a counter: to see it no more is no healing."""
    return rule.row.fact in _FACTS


def key_of(path: str, observed: Observed, record: NodeRecord) -> str:
    """Return the key under which the ledger keeps an event that this observation shows.

    It tells the resets of GPUs that went before: an event that is shown after one is a new one, as after a boot.
    """
    boot_id = (observed.host.value.boot_id or "") if isinstance(observed.host, Answered) else ""
    before = sum(attempt.boot_id == boot_id for attempt in _resets(record)) if boot_id else 0
    return _key(path, boot_id) + (f"{_AFTER_RESETS}{before}" if before else "")


def _key(path: str, boot_id: str) -> str:
    """Return the key of an event that was seen in a boot; "" = not known in which. A published key tells no boot id."""
    return f"{UNHEALED}{path}{IN_BOOT}{boot_digest(boot_id)}"


def boot_digest(boot_id: str) -> str:
    return hashlib.sha256(boot_id.encode()).hexdigest()[:12] if boot_id else ""


def _boot_of(key: str) -> str:
    return key.partition(_AFTER_RESETS)[0]


def _resets(record: NodeRecord) -> Iterator[Attempt]:
    return (one for one in record.attempts if one.action == RungAction.GPU_RESET and one.outcome == "done")


def _is_from_before_a_reset(observed: Observed, record: NodeRecord) -> bool:
    host = observed.host
    ends = [one.ended_at for one in _resets(record) if one.ended_at is not None]
    return isinstance(host, Answered) and any(host.at < end for end in ends)


def kept_events(record: NodeRecord) -> Mapping[str, tuple[str, datetime]]:
    """Return the events that the ledger keeps: value path -> (its key, since when).

    A ledger of an older version keeps none, and forgot them after a while. There, what the node was isolated or drained
    for counts as seen, unless it was admitted or certified since: what serves again is not condemned by an upgrade.
    """
    found: dict[str, tuple[str, datetime]] = {}
    for attempt in reversed(record.since_certificate):
        if is_admission(attempt):
            break
        causes = isolated_for(attempt.cause) if attempt.action == "mark" else ()
        causes = tuple(attempt.cause.split(", ")) if attempt.action == "drain" else causes
        for path in causes if attempt.outcome != "refused" else ():
            found[path] = _key(path, attempt.boot_id), attempt.at
    found |= {path: (key, record.silent_since[key]) for key, path in unhealed_paths(record.silent_since).items()}
    return found


def unhealed_signals(
    desired: Desired, observed: Observed, record: NodeRecord, shown: Collection[Signal]
) -> tuple[Signal, ...]:
    """Return the events that were seen earlier, are not among those shown now, and are not proved healed."""
    if not record.silent_since and not record.attempts:
        return ()
    kept = kept_events(record)
    return tuple(_unhealed(desired, observed, record, kept, {signal.path for signal in shown})) if kept else ()


def _unhealed(
    desired: Desired,
    observed: Observed,
    record: NodeRecord,
    kept: Mapping[str, tuple[str, datetime]],
    shown: Collection[str],
) -> Iterator[Signal]:
    seen = _Seen(desired, observed, record)
    for path, (key, since) in kept.items():
        rule = None if path in shown else table_of(desired.profile).rule_at(path)
        if rule is None or not is_event(rule) or seen.is_taken_back(path, rule, since):
            continue
        if lacking := [_WORDS[proof] for proof in rule.row.healed_by if not seen.has(proof, path, rule, key, since)]:
            detail = f"seen at {since:%Y-%m-%d %H:%M} UTC, and not proved healed: that takes {' and '.join(lacking)}"
            yield Signal(path.removeprefix(PREFIX), detail, rule, _FACTS[rule.row.fact])


def event_updates(
    observed: Observed, record: NodeRecord, shown: Collection[Signal], unhealed: Collection[Signal]
) -> Iterator[tuple[str, bool]]:
    """Yield (key, whether it is kept from now on) for events that are new to the ledger, or healed.

    An event that is shown in another boot than before is a new one. A reading from before the end of a reset of GPUs
    tells nothing new: whoever reset them has read the log again since, and it is as long as the boot.
    """
    kept = kept_events(record)
    known = {path: key for path, (key, _) in kept.items() if key in record.silent_since}
    wanted = {signal.path: known.get(signal.path) or kept[signal.path][0] for signal in unhealed}
    old = _is_from_before_a_reset(observed, record)
    for signal in shown:
        if is_event(signal.rule) and old:
            wanted |= {signal.path: known[signal.path]} if signal.path in known else {}
        elif is_event(signal.rule):
            key = key_of(signal.path, observed, record)
            wanted[signal.path] = known.get(signal.path, key) if key.endswith(IN_BOOT) else key
    for path, key in known.items():
        if wanted.get(path) != key:
            yield key, False
    for path, key in wanted.items():
        if known.get(path) != key:
            yield key, True


class _Seen:
    """One look at a node, for all of its events that are kept and not shown."""

    def __init__(self, desired: Desired, observed: Observed, record: NodeRecord) -> None:
        self._desired, self._observed, self._record = desired, observed, record
        self._unread = unread_signals(desired.profile, observed)
        self._table = table_of(desired.profile)

    def is_taken_back(self, path: str, rule: SignalRule, since: datetime) -> bool:
        """Return whether a person, the policy or the log itself says that this event is none, or none any more."""
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

    def has(self, proof: Proof, path: str, rule: SignalRule, key: str, since: datetime) -> bool:
        """Return whether an event has a proof. The gate is asked for at admission, of every node that was out."""
        if proof is Proof.GATE:
            return True
        if path.startswith(self._unread):
            return False
        if proof is Proof.FACT_CLEAR:
            return (
                rule.row.fact != EVENTS
                or not logged(path.removeprefix(PREFIX), self._observed, self._table, since).is_open
            )
        if proof is Proof.NEW_SERIAL:
            return self._has_new_part(rule)
        if proved_by_reset(path.removeprefix(PREFIX), rule.row) and self._was_reset(key, since):
            return True
        return self._was_booted(path, key, since)

    def _was_reset(self, key: str, since: datetime) -> bool:
        """Return whether GPUs were reset since: the key counts those before, and no clock that is set back does."""
        boot, _, before = key.partition(IN_BOOT)[2].partition(_AFTER_RESETS)
        resets = list(_resets(self._record))
        if not boot:
            return any(one.at > since for one in resets)
        return sum(boot_digest(one.boot_id) == boot for one in resets) > int(before or 0)

    def _was_booted(self, path: str, key: str, since: datetime) -> bool:
        now, host = _boot_of(key_of(path, self._observed, self._record)), self._observed.host
        if not key.endswith(IN_BOOT):
            return now != _boot_of(key) and not now.endswith(IN_BOOT)
        uptime_s = host.value.uptime_s if isinstance(host, Answered) else None
        return uptime_s is not None and host.at - timedelta(seconds=uptime_s) > since

    def _has_new_part(self, rule: SignalRule) -> bool:
        """Return whether another part of the kind at fault is there than the certificate binds."""
        acceptance, known = self._desired.profile.acceptance, self._record.certificate
        if acceptance is None or known is None:
            return False
        binding = binding_of(self._desired, self._observed, tests_digest(acceptance))
        if isinstance(binding, str):
            return False
        found = exchanged(known.binding, binding)
        return bool(found) if rule.part is None else rule.part in found
