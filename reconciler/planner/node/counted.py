"""Counters of errors, judged by how much they rise within the window of a signal.

Their values say nothing: links go down while a boot trains them, and links of today always have errors that they
correct. So the ledger keeps a look at them for each window, beside the node's silences, and a later pass compares. A
look is of one boot, as a boot sets counters back and may bring other parts. Without a look nothing is judged. A look is
replaced when its window is over, but not while a signal is raised by it: the rise would be forgotten. A counter that
fell was reset, and counts anew.

How a signal that was raised is healed is what its row says (unhealed.py): that a counter rests heals nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.health.signals import Signal
from reconciler.health.table import CounterGroup, CounterRule, table_of
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Counters, HostFacts, Observed
from reconciler.model.records import COUNTED, IN_BOOT, NodeRecord
from reconciler.model.units import format_duration
from reconciler.planner.node.unhealed import boot_digest


@dataclass(slots=True)
class _Look:
    """A look at counters in this boot. `keys`: those of the ledger by device; "" is for the time of the look."""

    since: datetime | None = None
    values: dict[str, Mapping[str, int]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def rise(self, device: str, counters: Mapping[str, int], names: Collection[str]) -> int | None:
        """Return by how much counters of a device have risen together; None when one fell, which is a reset."""
        before = self.values.get(device, {})
        rises = [counters.get(name, 0) - before.get(name, 0) for name in names]
        return None if min(rises) < 0 else sum(rises)


def counter_signals(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[Signal, ...]:
    """Return the signals of counters that have risen since the ledger's look at them, in the present boot."""
    facts, groups = _facts(observed), table_of(desired.profile).counted
    if facts is None or not any(getattr(facts, group.field) for group in groups):
        return ()  # as for nearly all nodes: no counter is above zero
    looks = _looks(record, boot_digest(facts.boot_id or ""))
    return tuple(
        signal
        for group, rules in groups.items()
        if (look := looks.get(group)) is not None and look.since is not None and not _is_released(record, look.since)
        for signal in _risen(group, rules, getattr(facts, group.field) or {}, look, _age_s(observed, look.since))
    )


def counter_updates(
    desired: Desired, observed: Observed, record: NodeRecord, shown: Collection[Signal]
) -> Iterator[tuple[str, bool]]:
    """Yield (key, whether it is kept from now on) for looks that begin, and for those that are over.

    `shown`: the signals that are raised by the looks of the ledger. A look ends before the next one begins.
    """
    facts, groups = _facts(observed), table_of(desired.profile).counted
    if facts is None:
        return
    boot = boot_digest(facts.boot_id or "")
    looks = _looks(record, boot)
    known = {key for look in looks.values() for key in look.keys.values()}
    yield from ((key, False) for key in record.silent_since if key.startswith(COUNTED) and key not in known)
    raised = {signal.name for signal in shown}
    for group, look in looks.items():
        if group not in groups:
            yield from ((key, False) for key in look.keys.values())
    for group, rules in groups.items():
        counters: Counters | None = getattr(facts, group.field)
        if counters is None:
            continue
        look = looks.get(group) or _Look()
        names = frozenset(name for rule in rules for name in rule.counters)
        if look.since is None or _is_released(record, look.since):
            begins = True
        else:
            over = _age_s(observed, look.since) >= group.seconds
            begins = over and not any(rule.name in raised for rule in rules)
        if begins:
            if "" in look.keys:
                yield look.keys[""], False
            yield _key(group, boot), True
        for device in {*counters, *(look.values if begins else ())}:
            values = {name: value for name in names if (value := counters.get(device, {}).get(name))}
            if begins or look.rise(device, values, names) is None:
                yield from _moved(look.keys.get(device), _key(group, boot, device, values) if values else None)


def _moved(before: str | None, now: str | None) -> Iterator[tuple[str, bool]]:
    if before == now:
        return
    if before is not None:
        yield before, False
    if now is not None:
        yield now, True


def _risen(
    group: CounterGroup, rules: Collection[CounterRule], counters: Counters, look: _Look, age_s: float
) -> Iterator[Signal]:
    windows = max(1.0, age_s / group.seconds)
    for device, values in counters.items():
        for one in rules:
            rise = look.rise(device, values, one.counters)
            if rise is not None and rise >= one.threshold * windows:
                within = format_duration(max(age_s, 1.0))
                detail = f"{device}: {' and '.join(one.counters)} rose by {rise} within {within}"
                yield Signal(one.name, detail, one.rule)


def _facts(observed: Observed) -> HostFacts | None:
    facts = observed.host.value if isinstance(observed.host, Answered) else None
    return facts if facts is not None and facts.boot_id else None


def _age_s(observed: Observed, since: datetime) -> float:
    """Return how old a look is. A clock that was set back makes it new, which asks for no smaller rise."""
    return max(0.0, (observed.host.at - since).total_seconds())


def _is_released(record: NodeRecord, since: datetime) -> bool:
    """Return whether a person has released the node since: what was exchanged under the hold counts anew."""
    return record.released_at is not None and record.released_at > since


# --- the keys of the ledger -------------------------------------------------------------------------------------------


def _key(group: CounterGroup, boot: str, device: str = "", values: Mapping[str, int] | None = None) -> str:
    """Return "counted FIELD WINDOW in boot DIGEST", or with "DEVICE a=1,b=2" after the window."""
    said = f" {device} " + ",".join(f"{name}={(values or {})[name]}" for name in sorted(values or {})) if device else ""
    return f"{COUNTED}{group.field} {group.window}{said}{IN_BOOT}{boot}"


def _looks(record: NodeRecord, boot: str) -> dict[CounterGroup, _Look]:
    """Return the looks of a boot. A key that can't be read is of none, and is replaced."""
    found: dict[CounterGroup, _Look] = {}
    for key, since in record.silent_since.items():
        if not key.startswith(COUNTED) or not key.endswith(IN_BOOT + boot):
            continue
        words = key.removeprefix(COUNTED).removesuffix(IN_BOOT + boot).split(" ")
        values = _values(words[3]) if len(words) == 4 else {}
        if len(words) not in (2, 4) or values is None:
            continue
        look = found.setdefault(CounterGroup(words[0], words[1]), _Look())
        if len(words) == 2:
            look.since, look.keys[""] = since, key
        else:
            look.values[words[2]], look.keys[words[2]] = values, key
    return found


def _values(text: str) -> dict[str, int] | None:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and number.isdecimal() and len(number) <= 20 for name, _, number in pairs):
        return None
    return {name: int(number) for name, _, number in pairs}
