"""Facts and signals of extensions and of a fleet's own rows, beside those of this package.

What one of them does wrong costs itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.drivers.ssh.facts.own_lines import own_lines
from reconciler.model.gate import CommandResult
from reconciler.model.observed import HostFacts

_FIELD: Final = "extensions."  # before a fact's name in HostFacts.unknown
_ASKED: Final = "extension_"  # before it in the facts program, whose names have no dots
LONGEST: Final = 1000  # characters of a value, and of the evidence of a signal


@dataclass(frozen=True, slots=True)
class ExtendedSignals:
    """Signals of one extension. `reads`: the facts that it needs, all of them. `names`: those that it may raise."""

    names: tuple[str, ...]
    reads: tuple[str, ...]
    judge: Callable[[Mapping[str, str]], Iterable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Extended:
    """All that a fleet adds to the facts of hosts: by extensions, and by rows with texts for the kernel log."""

    facts: tuple[Fact[str], ...] = ()
    signals: tuple[ExtendedSignals, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()  # signal and text, in lower case

    @property
    def asked(self) -> tuple[Fact[Any], ...]:
        return (*self.facts, own_lines(self.rows)) if self.rows else self.facts


def fact(name: str, command: str, parse: Callable[[CommandResult], str], timeout_s: float) -> Fact[str]:
    """Return a fact whose parser may do anything: what it raises makes the fact unknown."""

    def guarded(answer: CommandResult) -> Parsed[str]:
        try:
            value = parse(answer)
        except Unreadable:
            raise
        except Exception as error:  # code of others may raise anything
            raise _failed(error) from error
        if not isinstance(value, str):
            raise Unreadable(f"the extension returned a {type(value).__name__}, not text")
        return Parsed(excerpt(value, LONGEST))

    return Fact(f"{_ASKED}{name}", command, guarded, (f"{_FIELD}{name}",), timeout_s)


def with_extensions(facts: HostFacts, answers: Mapping[str, CommandResult], extended: Extended) -> HostFacts:
    """Return the facts with what the fleet adds to them. A signal that is not in `raised` was not read."""
    if extended == Extended():
        return facts
    values, unknown = {}, dict(facts.unknown)
    for one in extended.facts:
        read = one.read(answers)
        unknown |= read.notes
        if read.value is not None:
            values[one.name.removeprefix(_ASKED)] = read.value
    raised: dict[str, tuple[str, ...]] = {}
    for signals in extended.signals:
        try:
            raised |= _judged(signals, values)
        except Unreadable as why:
            unknown |= {f"raised.{name}": str(why) for name in signals.names}
    if extended.rows:
        lines = own_lines(extended.rows).read(answers)
        unknown |= lines.notes
        raised |= lines.value or {}
    return replace(facts, extensions=values, raised=raised, unknown=unknown)


def _judged(signals: ExtendedSignals, values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the evidence of each signal by name, () where there is none. Raise Unreadable where it can't be told."""
    lacking = [name for name in signals.reads if name not in values]
    if lacking:
        raise Unreadable(f"{', '.join(lacking)} was not read")
    try:
        told = [(str(name), str(said)) for name, said in signals.judge({name: values[name] for name in signals.reads})]
    except Exception as error:  # code of others may raise anything
        raise _failed(error) from error
    found: dict[str, tuple[str, ...]] = dict.fromkeys(signals.names, ())
    for name, evidence in told:
        if name not in found:
            raise Unreadable(f"the extension raised {excerpt(name)!r}, which it does not list")
        found[name] += (excerpt(evidence, LONGEST),)
    return found


def _failed(error: Exception) -> Unreadable:
    """Return the reason that a bug of foreign code leaves: it must not cost other facts and signals."""
    return Unreadable(f"the extension failed: {type(error).__name__}: {excerpt(str(error))}")
