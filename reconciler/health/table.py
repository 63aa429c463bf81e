"""The consequence of each signal: the closed table of signals.yaml, reviewed like code, with a fleet's own rows.

A signal that is not listed there can't be raised (`effect_of` raises KeyError, and a test raises every signal).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from reconciler.model.after import Exchanged
from reconciler.model.desired import Profile
from reconciler.model.signal_changes import SignalChange
from reconciler.model.units import parse_duration
from reconciler.spec.kinds.signals import (
    EVENTS,
    KERNEL_LOG,
    LASTING,
    RAISED,
    First,
    Next,
    Proof,
    Scope,
    SignalClass,
    SignalRow,
)
from reconciler.spec.signals import FILE, PREFIX, is_guarded, packaged, row_for, rows_of, weaker


class Effect(StrEnum):
    """The consequence of a signal."""

    ISOLATES = "isolates"  # cordoned and marked at once, without budget, wave or brake; repaired as the budget allows
    REPAIRS = "repairs"  # unhealthy: drained and repaired as budget and brake allow
    REPORTS = "reports"  # reported as drift; nothing is done, and the node may serve


class Remedy(StrEnum):
    """The kind of repair that may heal the cause of a signal."""

    LADDER = "ladder"  # every rung of the ladder
    POWER = "power"  # a reboot or a power cycle; wiping a disk brings no part back
    PERSON = "person"  # no rung: a person must replace a part, and further tries would harm the node or its data


_EFFECTS: Final = {First.ISOLATE: Effect.ISOLATES, First.DRAIN: Effect.REPAIRS, First.REPORT: Effect.REPORTS}
_PARTS: Final = {Scope.GPU: Exchanged.GPU, Scope.DRIVE: Exchanged.DRIVE, Scope.DIMM: Exchanged.DIMM}
_REMEDIES: Final = {Next.LADDER: Remedy.LADDER, Next.POWER: Remedy.POWER, Next.PERSON: Remedy.PERSON}


class Group(StrEnum):
    """The kind of cause outside of nodes that a signal may have, by which incidents of failure domains are grouped."""

    ENVIRONMENT = "environment"  # power, cooling
    FABRIC = "fabric"  # links, switches, clocks


class SignalRule:
    """The row of a signal, in the words of the planner.

    A `latched` signal is evidence after one reading: an event, or a state that only a repair or a reset clears. Others
    need two readings. `remedy` matters for signals that isolate or repair. `part`: what a person exchanges to heal
    it, where that is one kind of part and nothing else. `domains`: labels, as patterns, of the failure domains that
    may be its cause. `lasts_s`: for how many seconds it has to be shown before it counts.
    """

    __slots__ = ("domains", "effect", "lasts_s", "latched", "part", "remedy", "row")

    def __init__(self, row: SignalRow) -> None:
        self.row = row
        self.effect = _EFFECTS[row.first]
        self.latched = row.reads == 1
        self.lasts_s = parse_duration(row.window) if row.fact == LASTING and row.window is not None else 0.0
        self.remedy = Remedy.LADDER if row.next is None else _REMEDIES[row.next]
        exchanged = row.next is Next.PERSON or row.healed_by == (Proof.NEW_SERIAL,)
        self.part = _PARTS.get(row.scope) if exchanged else None
        self.domains = row.may_be_caused_by

    @property
    def group(self) -> Group:
        return Group.ENVIRONMENT if self.row.cause is SignalClass.ENVIRONMENT else Group.FABRIC


@dataclass(frozen=True, slots=True)
class CounterGroup:
    """The key of a look at counters: a field of `HostFacts`, and a window as the rows write it, like 12h."""

    field: str
    window: str

    @property
    def seconds(self) -> float:
        return parse_duration(self.window)


@dataclass(frozen=True, slots=True)
class CounterRule:
    """A signal of counters: it is raised when they rise by `threshold`, together and on one device, in the window."""

    name: str
    counters: tuple[str, ...]
    threshold: float
    rule: SignalRule


@dataclass(frozen=True, slots=True, eq=False)
class HealthTable:
    """The rules by name of signal. A name that ends in "_" is for all that begin with it and have no row.

    `counted`: signals of counters, by the look that these are compared with. `own_events`, `own_lines`: the text, in
    lower case, that each row of the fleet's own looks for in the BMC's log, and in the kernel log. `raised`: signals of
    these lines, and of extensions, which a reading tells by name. `weakened`: what the fleet's rows do less than the
    packaged ones that isolate, in words by name.
    """

    rules: Mapping[str, SignalRule]
    own_events: Mapping[str, str] = field(default_factory=dict)
    own_lines: Mapping[str, str] = field(default_factory=dict)
    raised: tuple[str, ...] = ()
    weakened: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[CounterGroup, tuple[CounterRule, ...]] = field(default_factory=dict)
    _found: dict[str, SignalRule | None] = field(default_factory=dict, repr=False)

    def rule_of(self, name: str) -> SignalRule:
        """Return the rule for a signal. Raise KeyError when there is none."""
        found = self._rule(name)
        if found is None:
            raise KeyError(f"signal {name!r} has no row in health/{FILE}")
        return found

    def effect_of(self, name: str) -> Effect:
        return self.rule_of(name).effect

    def threshold(self, name: str) -> float:
        """Return the number from which, or below which, a signal is raised. Raise KeyError where its row has none."""
        found = self.rule_of(name).row.threshold
        if found is None:
            raise KeyError(f"signal {name!r} has no threshold in health/{FILE}")
        return found

    def window_s(self, name: str) -> float:
        """Return how old an event of a signal may be when it is read. Raise KeyError where its row has no window."""
        found = self.rule_of(name).row.window
        if found is None:
            raise KeyError(f"signal {name!r} has no window in health/{FILE}")
        return parse_duration(found)

    def remedy_of(self, names: Iterable[str]) -> Remedy:
        """Return the strictest remedy of these signals: a node returns to service only when all of them are healed."""
        found = {self.rule_of(name).remedy for name in names}
        return next((one for one in (Remedy.PERSON, Remedy.POWER) if one in found), Remedy.LADDER)

    def services(self) -> tuple[str, ...]:
        """Return the units that rows name, each once."""
        return tuple(sorted({rule.row.service for rule in self.rules.values() if rule.row.service is not None}))

    def rungs_of(self, names: Iterable[str]) -> frozenset[str] | None:
        """Return the rungs that may heal each of these signals; None where none of their rows names any."""
        named = [rungs for name in names if (rungs := self.rule_of(name).row.rungs) is not None]
        return frozenset[str](named[0]).intersection(*named[1:]) if named else None

    def for_a_person(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return those value paths whose signals no rung of the ladder heals."""
        return tuple(path for path in paths if (row := self.rule_at(path)) is not None and row.remedy is Remedy.PERSON)

    def isolating(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return those value paths (health.NAME) whose signals isolate: `host_down`, without a rule, does not."""
        return tuple(
            path for path in paths if (row := self.rule_at(path)) is not None and row.effect is Effect.ISOLATES
        )

    def part_at(self, path: str) -> Exchanged | None:
        """Return the part whose exchange heals the signal of a value path; None where it is not one kind of part."""
        row = self.rule_at(path)
        return None if row is None else row.part

    def class_at(self, path: str) -> str:
        """Return the class of the signal of a value path; "" for what is no signal of the table."""
        row = self.rule_at(path)
        return "" if row is None else row.row.cause.value

    def rule_at(self, path: str) -> SignalRule | None:
        """Return the rule for the signal of a value path; None for what is no signal of the table."""
        name = path.removeprefix(PREFIX)
        return None if name == path else self._rule(name)

    def _rule(self, name: str) -> SignalRule | None:
        if name not in self._found:
            self._found[name] = row_for(name, self.rules)
        return self._found[name]


def _counted(rules: Mapping[str, SignalRule]) -> Mapping[CounterGroup, tuple[CounterRule, ...]]:
    found: dict[CounterGroup, list[CounterRule]] = {}
    for name, rule in rules.items():
        row = rule.row
        if row.counters is not None and row.window is not None and row.threshold is not None:
            group = CounterGroup(row.fact.partition(".")[2], row.window)
            found.setdefault(group, []).append(CounterRule(name, row.counters, row.threshold, rule))
    return {group: tuple(of_it) for group, of_it in found.items()}


def health_table(changes: tuple[SignalChange, ...] = ()) -> HealthTable:
    """Return the packaged table with a fleet's rows. Raise ValueError for a row that breaks a rule of the table."""
    return _table(changes)


@lru_cache(maxsize=64)
def _table(changes: tuple[SignalChange, ...]) -> HealthTable:
    before, rows = packaged().signals, rows_of(changes)
    texts = [(name, row.fact, row.contains.casefold()) for name, row in rows.items() if row.contains is not None]
    events = {name: text for name, fact, text in texts if fact == EVENTS}
    lines = {name: text for name, fact, text in texts if fact == KERNEL_LOG}
    weakened = {}
    for change in changes:
        row = row_for(change.name, before)
        if row is not None and is_guarded(row) and (lost := weaker(row, rows[change.name])):
            weakened[change.name] = "; ".join(lost)
    rules = {name: SignalRule(row) for name, row in rows.items()}
    raised = tuple(name for name, row in rows.items() if row.fact == RAISED or name in lines)
    return HealthTable(rules, events, lines, raised, weakened, _counted(rules))


def table_of(profile: Profile) -> HealthTable:
    """Return the table that the nodes of a profile are judged by."""
    return health_table(profile.health)
