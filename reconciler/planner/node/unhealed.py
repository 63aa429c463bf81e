"""Signals that were seen and are not proved healed: what is shown no more need not be well.

Entries of logs age, rotate away and are cleared, so an event counts from the first time that it is seen. A state is
read anew each time, and a node that serves is taken out by what it shows alone. But once a node is out for a state,
that it is gone is not all that its row may ask for: a module that a BMC calls well after its own reset is the same
module. So the ledger keeps both, with the boot that they were seen in and the parts at fault, until what their row
names under `healedBy` has happened, the BMC has marked an entry as settled, or a person has set a hold on the node and
released it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from reconciler.health.signals import Signal
from reconciler.health.table import Effect, SignalRule, table_of
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Source
from reconciler.planner.node.kept_keys import KeptKey, boot_digest, kept_keys, parsed
from reconciler.planner.node.proofs import Proofs, boot_of, is_event, parts_at_fault, resets, resets_in
from reconciler.planner.node.record import is_admission, is_known_to_serve, taken_out_for, was_taken_out_for
from reconciler.spec.kinds.signals import Proof
from reconciler.spec.signals import PREFIX

_MORE: Final = frozenset({Proof.FACT_CLEAR_AFTER_NEW_BOOT, Proof.FACT_CLEAR_AFTER_RESET, Proof.NEW_SERIAL})
_OF_BOOT: Final = "host.boot_id"  # judged from the ledger, boot by boot: planner/node/boot_proofs.py
_SOURCES: Final = {"bmc": Source.REDFISH, "host": Source.SSH, "member": Source.KUBERNETES}


@dataclass(frozen=True, slots=True)
class Kept:
    """A signal that the ledger keeps. `text`: its key; "" = there is none. `tried`: the node's attempts tell of it."""

    key: KeptKey
    since: datetime
    text: str = ""
    tried: bool = False


def is_kept(rule: SignalRule) -> bool:
    """Return whether a signal that is shown no more counts until its proof: an event, or a state that asks for more.

    A state that is only reported takes nobody out, so nobody comes back from it.
    """
    row = rule.row
    if is_event(rule):
        return True
    return rule.effect is not Effect.REPORTS and row.fact != _OF_BOOT and not _MORE.isdisjoint(row.healed_by)


def kept_of(record: NodeRecord) -> Mapping[str, Kept]:
    """Return the signals that the ledger keeps, by value path.

    What the node was isolated, drained or treated for counts as seen, unless it was admitted, certified or released by
    a person since: it may be gone before the next look at it. A ledger of an older version kept no states, and at first
    no events.
    """
    found: dict[str, Kept] = {}
    attempts = min(record.since_certificate, record.since_release, key=len) if record.attempts else ()
    for attempt in reversed(attempts):
        if is_admission(attempt):
            break
        for path in taken_out_for(attempt):
            boot = boot_digest(attempt.boot_id)
            key = KeptKey(path, boot, resets_in(record, boot, before=attempt))
            found.setdefault(path, Kept(key, attempt.at, tried=True))
    for text in kept_keys(record):
        key = parsed(text)
        tried = key.path in found and found[key.path].tried
        found[key.path] = Kept(replace(key, once=key.once and not tried), record.silent_since[text], text, tried)
    return found


def unhealed_signals(
    desired: Desired, observed: Observed, record: NodeRecord, shown: Collection[Signal]
) -> tuple[Signal, ...]:
    """Return the signals that were seen earlier, are not among those shown now, and are not proved healed."""
    found = []
    for kept, rule, lacking, _ in _open(desired, observed, record, shown):
        if lacking:
            seen = f"seen at {kept.since:%Y-%m-%d %H:%M} UTC, and not proved healed"
            source = _SOURCES[rule.row.fact.partition(".")[0]]
            detail = f"{seen}: that takes {' and '.join(lacking)}"
            found.append(Signal(kept.key.path.removeprefix(PREFIX), detail, rule, source))
    return tuple(found)


def _open(
    desired: Desired, observed: Observed, record: NodeRecord, shown: Collection[Signal]
) -> Iterator[tuple[Kept, SignalRule, tuple[str, ...], bool]]:
    """Yield each signal that is kept, not shown and not healed, with the proofs that it lacks, and if it is unread."""
    kept = kept_of(record) if record.silent_since or record.attempts else {}
    if not kept:
        return
    proofs, paths, table = Proofs(desired, observed, record), {one.path for one in shown}, table_of(desired.profile)
    serves = is_known_to_serve(desired, observed, record)
    for path, one in kept.items():
        rule = None if path in paths else table.rule_at(path)
        if rule is None or one.key.healed or not is_kept(rule) or (not is_event(rule) and (serves or one.key.once)):
            continue
        if proofs.is_taken_back(path, rule, one.since):
            continue
        lacking, unread = proofs.lacking(one.key, rule, one.since), proofs.is_unread(path)
        if lacking or unread:
            yield one, rule, lacking, unread


def unread_causes(desired: Desired, observed: Observed, record: NodeRecord) -> Iterator[tuple[str, str]]:
    """Yield (value path, why) of what a node is out of service for and what was not read: a silence heals nothing."""
    if not record.attempts and not record.silent_since:
        return
    if is_known_to_serve(desired, observed, record):
        return
    proofs, table = Proofs(desired, observed, record), table_of(desired.profile)
    kept = (one.key.path for one, rule, _, unread in _open(desired, observed, record, ()) if unread)
    for path in dict.fromkeys((*was_taken_out_for(record), *kept)):
        rule = table.rule_at(path)
        if rule is not None and rule.effect is not Effect.REPORTS and proofs.is_unread(path):
            yield path, _not_read(observed, rule)


def _not_read(observed: Observed, rule: SignalRule) -> str:
    source, _, field = rule.row.fact.partition(".")
    host = observed.host.value if source == "host" and isinstance(observed.host, Answered) else None
    why = "" if host is None else host.unknown.get(field, "")
    return f"{rule.row.fact} could not be read" + (f" ({why})" if why else "")


def kept_updates(
    desired: Desired, observed: Observed, record: NodeRecord, shown: Collection[Signal]
) -> Iterator[tuple[str, bool]]:
    """Yield (key, whether it is kept from now on) for signals that are new to the ledger, or healed.

    What is shown in another boot than before is new. A reading from before the end of a reset of GPUs tells nothing
    new: whoever reset them has read the log again since, and it is as long as the boot.
    """
    kept = kept_of(record)
    if not kept and not any(is_kept(signal.rule) for signal in shown):
        return  # as of most nodes
    known = {path: one.text for path, one in kept.items() if one.text}
    wanted = {one.key.path: one.text or one.key.text for one, *_ in _open(desired, observed, record, shown)}
    old, again = _is_from_before_a_reset(observed, record), set()
    for signal in shown:
        before = kept.get(signal.path)
        if not is_kept(signal.rule):
            continue
        if old:
            wanted |= {signal.path: known[signal.path]} if signal.path in known else {}
            continue
        if before is not None and not is_event(signal.rule) and _is_released(record, before):
            before = None
            again.add(signal.path)
        wanted[signal.path] = _key_of(signal, desired, observed, record, before)
    out = not is_known_to_serve(desired, observed, record)
    for path, one in kept.items():
        if path not in wanted and one.text and one.tried and out and not _is_released(record, one):
            wanted[path] = replace(one.key, healed=True).text
    for path, key in known.items():
        if wanted.get(path) != key or path in again:
            yield key, False
    for path, key in wanted.items():
        if known.get(path) != key or path in again:
            yield key, True


def _is_released(record: NodeRecord, before: Kept) -> bool:
    return record.released_at is not None and record.released_at > before.since


def _key_of(signal: Signal, desired: Desired, observed: Observed, record: NodeRecord, before: Kept | None) -> str:
    """Return the key of a signal that this observation shows.

    It tells the resets of GPUs that went before: what is shown after one is new, as after a boot.
    """
    boot = boot_of(observed)
    if is_event(signal.rule) and not boot and before is not None and before.text:
        return before.text
    made = KeptKey(signal.path, boot, resets_in(record, boot))
    if is_event(signal.rule):
        return made.text
    parts, total = parts_at_fault(desired, observed, signal.path, signal.rule)
    if before is not None:
        made = made if boot else replace(made, boot=before.key.boot, resets=before.key.resets)
        total = max(total, before.key.total) if parts else before.key.total
        parts = tuple(sorted({*parts, *before.key.parts}))
    once = not (signal.rule.latched or _was_read_before(signal, observed, before))
    return replace(made, parts=parts, total=total, once=once).text


def _was_read_before(signal: Signal, observed: Observed, before: Kept | None) -> bool:
    """Return whether an earlier reading than this one has shown a state: a single one may be wrong."""
    if before is None:
        return False
    reading = observed.inventory if signal.source is Source.REDFISH else observed.host
    return not before.key.once or reading.at > before.since


def _is_from_before_a_reset(observed: Observed, record: NodeRecord) -> bool:
    host = observed.host
    ends = [one.ended_at for one in resets(record) if one.ended_at is not None]
    return isinstance(host, Answered) and any(host.at < end for end in ends)
