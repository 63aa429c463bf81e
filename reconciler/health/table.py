"""The consequence of each signal: the closed table of signals.yaml, reviewed like code.

A signal that is not listed there can't be raised (`effect_of` raises KeyError, and a test raises every signal).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Final

from reconciler.model.after import Exchanged
from reconciler.model.units import parse_duration
from reconciler.spec.kinds.signals import First, Next, Scope, SignalRow, SignalTable
from reconciler.strict_yaml.read import InvalidFile, model_of

FILE: Final = "signals.yaml"


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


class SignalRule:
    """The row of a signal, in the words of the planner.

    A `latched` signal is evidence after one reading: an event, or a state that only a repair or a reset clears. Others
    need two readings. `remedy` matters for signals that isolate or repair. `part`: what a person exchanges to heal
    it, where that is one kind of part and nothing else.
    """

    __slots__ = ("effect", "latched", "part", "remedy", "row")

    def __init__(self, row: SignalRow) -> None:
        self.row = row
        self.effect = _EFFECTS[row.first]
        self.latched = row.reads == 1
        self.remedy = Remedy.LADDER if row.next is None else _REMEDIES[row.next]
        self.part = _PARTS.get(row.scope) if row.next is Next.PERSON else None


@cache
def packaged() -> SignalTable:
    """Return the table of this version, read from the package when it is first needed."""
    found = pkgutil.get_data(__package__, FILE)
    if found is None:
        raise InvalidFile(f"{FILE}: is not in the package")
    return model_of(SignalTable, found.decode(), f"{__package__}/{FILE}")


@cache
def signal_rules() -> Mapping[str, SignalRule]:
    """Return the rules by name of signal. A name that ends in "_" is for all that begin with it without a row."""
    return {name: SignalRule(row) for name, row in packaged().signals.items()}


@cache
def threshold(name: str) -> float:
    """Return the number from which, or below which, a signal is raised. Raise KeyError where its row has none."""
    found = rule_of(name).row.threshold
    if found is None:
        raise KeyError(f"signal {name!r} has no threshold in health/{FILE}")
    return found


@cache
def window_s(name: str) -> float:
    """Return how old an event of a signal may be when it is read. Raise KeyError where its row has no window."""
    found = rule_of(name).row.window
    if found is None:
        raise KeyError(f"signal {name!r} has no window in health/{FILE}")
    return parse_duration(found)


def rule_of(name: str) -> SignalRule:
    """Return the rule for a signal. Raise KeyError when there is none."""
    rules = signal_rules()
    found = rules.get(name)
    if found is None:
        prefixes = [known for known in rules if known.endswith("_") and name.startswith(known)]
        if not prefixes:
            raise KeyError(f"signal {name!r} has no row in health/{FILE}")
        found = rules[max(prefixes, key=len)]
    return found


def remedy_of(names: Iterable[str]) -> Remedy:
    """Return the strictest remedy of these signals: a node returns to service only when all of them are healed."""
    found = {rule_of(name).remedy for name in names}
    return next((one for one in (Remedy.PERSON, Remedy.POWER) if one in found), Remedy.LADDER)


def effect_of(name: str) -> Effect:
    return rule_of(name).effect


def for_a_person(paths: Iterable[str]) -> tuple[str, ...]:
    """Return those value paths whose signals no rung of the ladder heals."""
    return tuple(path for path in paths if (row := _rule_at(path)) is not None and row.remedy is Remedy.PERSON)


def isolating(paths: Iterable[str]) -> tuple[str, ...]:
    """Return those value paths (health.NAME) whose signals isolate. `host_down` and others without a rule do not."""
    return tuple(path for path in paths if (row := _rule_at(path)) is not None and row.effect is Effect.ISOLATES)


def part_at(path: str) -> Exchanged | None:
    """Return the part whose exchange heals the signal of a value path; None where it is not one kind of part."""
    row = _rule_at(path)
    return None if row is None else row.part


@cache
def _rule_at(path: str) -> SignalRule | None:
    name = path.removeprefix("health.")
    try:
        return None if name == path else rule_of(name)
    except KeyError:
        return None
