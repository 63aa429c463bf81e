"""Counters of errors, judged by how much they rise within the window of a signal.

Their values say nothing: links go down while a boot trains them, and links of today always have errors that they
correct. So the ledger keeps a look at them for each window, beside the node's silences, and a later pass compares. A
look is of one boot, as a boot sets counters back and may bring other parts. Without a look nothing is judged. A look is
replaced when its window is over, but not while a signal is raised by it: the rise would be forgotten. A counter that
fell was reset, and counts anew. An absent counter is zero, but for what `HostFacts.unknown` names: that was not read.
It neither rises nor falls, and where the look has no value of it, the first one that is read is what later ones are
compared with.

A node that is out of service is judged by the rate, as its gate takes minutes and a window is hours (`_beyond`). It is
not admitted before its counters were watched for `WATCHED_S` in this boot, whatever the gate ran.

How a signal that was raised is healed is what its row says (unhealed.py): that a counter rests heals nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from reconciler.gate.certificate import CLOCK_SKEW
from reconciler.health.signals import Signal, rise_of
from reconciler.health.table import CounterGroup, CounterRule, Effect, table_of
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Counters, HostFacts, Observed
from reconciler.model.records import COUNTED, IN_BOOT, OWNER_ANNOTATION, NodeRecord, read_mark
from reconciler.model.units import format_duration
from reconciler.planner.node.kept_keys import boot_digest
from reconciler.planner.node.record import is_drained

WATCHED_S: Final = 60.0
_UNREAD: Final = "unread"  # in a key in the place of a device: the counters, and devices, that a look has no value of


@dataclass(slots=True)
class _Look:
    """A look at counters in this boot. `keys`: those of the ledger by device; "" is for the time of the look."""

    since: datetime | None = None
    values: dict[str, Mapping[str, int]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def rise(self, device: str, counters: Mapping[str, int], names: Collection[str]) -> int | None:
        """Return by how much counters of a device have risen together; None when one fell, which is a reset.

        All of `names` were read, then and now.
        """
        before = self.values.get(device, {})
        rises = [counters.get(name, 0) - before.get(name, 0) for name in names]
        return None if min(rises, default=0) < 0 else sum(rises)

    @property
    def unread(self) -> frozenset[str]:
        return frozenset(self.values.get(_UNREAD, ()))

    def moved(
        self, device: str, counters: Mapping[str, int], names: frozenset[str], unread: frozenset[str]
    ) -> Mapping[str, int] | None:
        """Return the values of a device that the look goes on with; None where it keeps those that it has."""
        if device in unread:
            return None
        read = names - unread
        first = read if device in self.unread else read & self.unread
        fell = self.rise(device, counters, read - first) is None
        if not fell and not first:
            return None
        anew, before = read if fell else first, self.values.get(device, {})
        return {name: (counters if name in anew else before).get(name, 0) for name in names}


def counter_signals(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[Signal, ...]:
    """Return the signals of counters that have risen since the ledger's look at them, in the present boot."""
    facts, groups = _facts(observed), table_of(desired.profile).counted
    if facts is None or not any(getattr(facts, group.field) for group in groups):
        return ()  # as for nearly all nodes: no counter is above zero
    looks, by_rate = _looks(record, boot_digest(facts.boot_id or "")), _is_out(observed, record)
    return tuple(
        signal
        for group in groups
        if (look := looks.get(group)) is not None and look.since is not None and not _is_released(record, look.since)
        for signal in _risen(
            _compared(facts, group, groups, look), look, partial(_Age.of, group, observed, look, by_rate)
        )
    )


def watched_until(desired: Desired, observed: Observed, record: NodeRecord) -> datetime | None:
    """Return until when the counters of a node that is out of service are watched in this boot, before its admission.

    None: they have been, or there is nothing to watch: it serves, or its counters can't be read. Whoever acts keeps a
    look at them first (converge/execute.py), so a record without one is planned from and never acted upon.
    """
    facts = _facts(observed)
    if facts is None or not _is_out(observed, record):
        return None
    looks, groups, at = (
        _looks(record, boot_digest(facts.boot_id or "")),
        table_of(desired.profile).counted,
        observed.host.at,
    )
    began = [
        look.since
        for group, look in looks.items()
        if look.since is not None and any(_acts(one) for one in groups.get(group, ()))
    ]
    if not began:
        return None
    until = min(began) + timedelta(seconds=WATCHED_S)  # another may be new, as its window is over
    return until if until > at else None


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
        if look.since is None or _is_released(record, look.since):
            begins = True
        else:
            at, lasts = observed.host.at, timedelta(seconds=group.seconds)
            over = at >= look.since + lasts or at < look.since - CLOCK_SKEW  # of a clock that was set back
            begins = over and not any(rule.name in raised for rule in rules)
        if begins:
            if "" in look.keys:
                yield look.keys[""], False
            yield _key(group, boot), True
        yield from _values_moved(_Sample(group, boot, counters, _unread(facts, group, groups)), look, rules, begins)


@dataclass(frozen=True, slots=True)
class _Sample:
    """A reading of a group of counters. `unread`: the counters, and the devices, that were not read."""

    group: CounterGroup
    boot: str
    counters: Counters
    unread: frozenset[str]

    def key(self, device: str, values: Mapping[str, int]) -> str | None:
        above = {name: value for name, value in values.items() if value}
        return _key(self.group, self.boot, device, above) if above else None


def _values_moved(
    sample: _Sample, look: _Look, rules: Collection[CounterRule], begins: bool
) -> Iterator[tuple[str, bool]]:
    lacks = sample.unread if begins else sample.unread & look.unread
    yield from _moved(look.keys.get(_UNREAD), sample.key(_UNREAD, dict.fromkeys(lacks, 1)))
    devices = {*sample.counters, *(look.values if begins else ())} - {_UNREAD}
    names = _names(rules) if devices else frozenset[str]()
    for device in devices:
        now = sample.counters.get(device, {})
        values = {name: now.get(name, 0) for name in names} if begins else look.moved(device, now, names, sample.unread)
        if values is not None:
            yield from _moved(look.keys.get(device), sample.key(device, values))


def _unread(
    facts: HostFacts, group: CounterGroup, groups: Mapping[CounterGroup, Collection[CounterRule]]
) -> frozenset[str]:
    """Return the counters of a group, and the devices, that were not read, as the notes of the source say."""
    begin = f"{group.field}."
    noted = {key.removeprefix(begin) for key in facts.unknown if key.startswith(begin)}
    if not noted:
        return frozenset()
    of_others = {name for other in groups if other.field == group.field for name in _names(groups[other])}
    return frozenset(noted.difference(of_others) | noted.intersection(_names(groups[group])))


def _names(rules: Collection[CounterRule]) -> frozenset[str]:
    return frozenset(name for rule in rules for name in rule.counters)


def _moved(before: str | None, now: str | None) -> Iterator[tuple[str, bool]]:
    if before == now:
        return
    if before is not None:
        yield before, False
    if now is not None:
        yield now, True


@dataclass(frozen=True, slots=True)
class _Age:
    """How old a look is. `windows`: the same in windows of its group. `by_rate`: the node is not to be admitted yet."""

    seconds: float
    windows: float
    by_rate: bool

    @classmethod
    def of(cls, group: CounterGroup, observed: Observed, look: _Look, by_rate: bool) -> _Age:
        seconds = _age_s(observed, look.since or observed.host.at)
        return cls(seconds, seconds / group.seconds, by_rate)


def _compared(
    facts: HostFacts, group: CounterGroup, groups: Mapping[CounterGroup, Collection[CounterRule]], look: _Look
) -> Iterator[tuple[str, Mapping[str, int], CounterRule]]:
    """Yield the counters of each device with each rule all of whose counters were read, now and at the look."""
    unread = look.unread | _unread(facts, group, groups)
    for device, values in (getattr(facts, group.field) or {}).items():
        if device not in unread:
            yield from ((device, values, one) for one in groups[group] if unread.isdisjoint(one.counters))


def _risen(
    compared: Iterator[tuple[str, Mapping[str, int], CounterRule]], look: _Look, aged: Callable[[], _Age]
) -> Iterator[Signal]:
    for device, values, one in compared:
        rise = look.rise(device, values, one.counters)
        if rise and _beyond(one, rise, age := aged()):  # what rests is no evidence, however old the look
            detail = rise_of(device, one.counters, rise, format_duration(max(age.seconds, 1.0)))
            yield Signal(one.name, detail, one.rule)


def _beyond(one: CounterRule, rise: int, age: _Age) -> bool:
    """Return whether counters have risen by the threshold of a row in its window, or by the same rate in a longer time.

    By the rate in a shorter one, too, where nothing is admitted that is to be taken out again: from three standard
    deviations of a count (Poisson) above what the rate gives for the time. Few events are no rate.
    """
    if rise >= one.threshold * max(1.0, age.windows):
        return True
    due = one.threshold * age.windows
    return age.by_rate and _acts(one) and rise >= due + 3 * math.sqrt(due) + 3


def _acts(one: CounterRule) -> bool:
    return one.rule.effect is not Effect.REPORTS


def _is_out(observed: Observed, record: NodeRecord) -> bool:
    """Return whether a reconciler has taken the node out of service, or has not admitted it yet."""
    if not isinstance(observed.member, Answered):
        return bool(record.attempts) and is_drained(record, None)
    member = observed.member.value
    return member is not None and read_mark(member.annotations.get(OWNER_ANNOTATION)) is not None


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
